"""The schema is that of Spark's own Kafka source, and its Arrow form the one that Spark checks against."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_kafka_group.schema import arrow_schema, spark_schema

# From KafkaRecordToRowConverter of Spark 4.3: StructField's and ArrayType's defaults, so all nullable.
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
    schema = spark_schema(include_headers=False)
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in schema.fields] == OF_SPARKS_OWN_SOURCE


def test_headers_are_an_array_of_key_and_value_all_nullable() -> None:
    headers = spark_schema(include_headers=True).fields[-1]
    assert headers.jsonValue() == {
        "name": "headers",
        "nullable": True,
        "metadata": {},
        "type": {
            "type": "array",
            "containsNull": True,
            "elementType": {
                "type": "struct",
                "fields": [
                    {"name": "key", "type": "string", "nullable": True, "metadata": {}},
                    {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
                ],
            },
        },
    }


def test_headers_are_the_only_difference() -> None:
    with_headers = spark_schema(include_headers=True).fields
    assert with_headers[:-1] == spark_schema(include_headers=False).fields


@pytest.mark.parametrize("include_headers", [False, True])
def test_arrow_schema_equals_the_one_spark_derives(include_headers: bool) -> None:
    derived = to_arrow_schema(spark_schema(include_headers=include_headers), timezone="UTC")
    assert arrow_schema(include_headers=include_headers).equals(derived, check_metadata=True)
