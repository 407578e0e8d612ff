"""Which columns of a DataFrame the sink writes, and what it says about the others."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from pyspark_kafka_group.offsets.errors import ColumnError
from pyspark_kafka_group.writing.record_rows import RecordColumns, record_columns

TEXT, BYTES, INT = StringType(), BinaryType(), IntegerType()


def headers(key: str = "key", value: DataType = BYTES, *, nullable: bool = True) -> ArrayType:
    fields = [StructField(key, TEXT, nullable), StructField("value", value, nullable)]
    return ArrayType(StructType(fields), containsNull=nullable)


def schema(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


@pytest.mark.parametrize(
    ("fields", "topic", "found"),
    [
        ([("value", TEXT)], "t", RecordColumns(value=0)),
        ([("topic", TEXT), ("value", BYTES)], None, RecordColumns(value=1, topic=0)),
        ([("topic", TEXT), ("value", BYTES)], "t", RecordColumns(value=1)),
        ([("topic", INT), ("value", BYTES)], "t", RecordColumns(value=1)),
        (
            [("x", INT), ("key", BYTES), ("value", TEXT), ("headers", headers()), ("partition", INT)],
            "t",
            RecordColumns(value=2, key=1, headers=3, partition=4),
        ),
        ([("value", TEXT), ("value2", MapType(INT, INT)), ("VALUE", INT), ("Key", INT)], "t", RecordColumns(value=0)),
        ([("value", TEXT), ("headers", headers(nullable=False))], "t", RecordColumns(value=0, headers=1)),
        ([("value", StringType("UTF8_LCASE"))], "t", RecordColumns(value=0)),
    ],
)
def test_columns_are_found_by_their_exact_names(
    fields: list[tuple[str, DataType]], topic: str | None, found: RecordColumns
) -> None:
    assert record_columns(schema(*fields), topic=topic) == found


@pytest.mark.parametrize(
    ("fields", "topic", "column", "problem"),
    [
        ([("value", TEXT)], None, "topic", "topic option required when no 'topic' attribute is present"),
        ([("topic", INT), ("value", TEXT)], None, "topic", "unsupported type int. topic must be a(n) string."),
        ([("key", TEXT)], "t", "value", "required attribute 'value' not found"),
        ([("Value", TEXT)], "t", "value", "required attribute 'value' not found"),
        ([("value", INT)], "t", "value", "value must be a(n) string or binary. Cast it, or leave it out."),
        ([("value", TEXT), ("key", NullType())], "t", "key", "key attribute unsupported type void."),
        ([("value", TEXT), ("partition", TEXT)], "t", "partition", "partition must be a(n) int"),
        ([("value", TEXT), ("partition", LongType())], "t", "partition", "partition must be a(n) int"),
        ([("value", TEXT), ("headers", TEXT)], "t", "headers", "must be a(n) array<struct<key:string,value:binary>>"),
        ([("value", TEXT), ("headers", headers("name"))], "t", "headers", "unsupported type array<struct<name"),
        ([("value", TEXT), ("headers", headers(value=TEXT))], "t", "headers", "unsupported type"),
    ],
)
def test_what_cannot_be_written_is_told_in_the_words_of_sparks_sink(
    fields: list[tuple[str, DataType]], topic: str | None, column: str, problem: str
) -> None:
    with pytest.raises(ColumnError) as raised:
        record_columns(schema(*fields), topic=topic)
    assert raised.value.column == column
    assert problem in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
