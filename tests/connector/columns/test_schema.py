"""The schema is that of Spark's own Kafka source.  Its Arrow form is the one that Spark expects."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from pyspark_kafka_group.columns import chunk_reader
from pyspark_kafka_group.columns.schema import COLUMNS, DEFAULT_COLUMNS, spark_schema

# From KafkaRecordToRowConverter of Spark 4.3.  StructField and ArrayType are nullable by default, so all fields are.
OF_SPARKS_OWN_SOURCE = [
    ("key", "binary", True),
    ("value", "binary", True),
    ("topic", "string", True),
    ("partition", "int", True),
    ("offset", "bigint", True),
    ("timestamp", "timestamp", True),
    ("timestampType", "int", True),
]


def test_columns_are_those_of_sparks_own_kafka_source() -> None:
    schema = spark_schema(DEFAULT_COLUMNS)
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in schema.fields] == OF_SPARKS_OWN_SOURCE


def test_headers_are_the_only_difference_and_all_of_it_is_nullable() -> None:
    *others, headers = spark_schema(COLUMNS).fields
    assert others == spark_schema(DEFAULT_COLUMNS).fields
    fields = StructType([StructField("key", StringType(), True), StructField("value", BinaryType(), True)])
    assert headers == StructField("headers", ArrayType(fields, containsNull=True), True)


def test_some_columns_are_those_of_the_whole() -> None:
    assert spark_schema(("value", "offset")).fields == [spark_schema(COLUMNS)["value"], spark_schema(COLUMNS)["offset"]]


def test_keys_of_headers_that_are_not_utf8_are_replaced_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small batch may have millions of them."""
    monkeypatch.setattr(chunk_reader, "_KEYS_AT_ONCE", 2)
    keys = pa.array([b"a", b"\xff", b"c", b"d", b"\xfe\xff"], pa.binary())
    assert chunk_reader._text(keys).to_pylist() == ["a", "\ufffd", "c", "d", "\ufffd\ufffd"]
