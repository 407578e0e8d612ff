"""Which columns of a DataFrame become what of a record; pure.

Names, types and the words of the errors are those of Spark's own sink (``KafkaWriter``), whose users know them.
Columns with other names are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from pyspark_kafka_group.offsets.errors import ColumnError

_TEXT_OR_BYTES = (StringType(), BinaryType())
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """The positions of the columns; None for one that is not there, or not used.

    Attributes
    ----------
    value : int
        The one that is always there.
    key, topic, partition, headers : int or None
        The others.
    """

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None


def record_columns(schema: StructType, *, topic: str | None) -> RecordColumns:
    """Find the columns of records, and check their types.

    Parameters
    ----------
    schema : StructType
        Of the DataFrame.
    topic : str or None
        The option ``topic``, which goes before the column.

    Raises
    ------
    ColumnError
        If one is missing or has another type.
    """
    topics = None if topic is not None else _find(schema, "topic", (StringType(),))
    if topic is None and topics is None:
        raise ColumnError(
            "topic",
            "topic option required when no 'topic' attribute is present. Set the option topic, or add a column topic.",
        )
    key = _find(schema, "key", _TEXT_OR_BYTES)
    value = _find(schema, "value", _TEXT_OR_BYTES)
    if value is None:
        raise ColumnError(
            "value",
            "required attribute 'value' not found. Name the column to be written value, as in .select(to_json("
            "struct('*')).alias('value')).",
        )
    headers = _find(schema, "headers", (_HEADERS,))
    partition = _find(schema, "partition", (IntegerType(),))
    return RecordColumns(value=value, key=key, topic=topics, partition=partition, headers=headers)


def _find(schema: StructType, name: str, types: tuple[DataType, ...]) -> int | None:
    at = next((at for at, field in enumerate(schema) if field.name == name), None)
    if at is not None and not any(_same(schema[at].dataType, wanted) for wanted in types):
        found = schema[at].dataType.simpleString()
        wanted = " or ".join(one.simpleString() for one in types)
        raise ColumnError(
            name, f"{name} attribute unsupported type {found}. {name} must be a(n) {wanted}. Cast it, or leave it out."
        )
    return at


def _same(found: DataType, wanted: DataType) -> bool:
    """Tell whether two types are the same but for what may be null, and for collations."""
    if isinstance(wanted, ArrayType):
        return isinstance(found, ArrayType) and _same(found.elementType, wanted.elementType)
    if isinstance(wanted, StructType):
        return (
            isinstance(found, StructType)
            and found.names == wanted.names
            and all(_same(one.dataType, other.dataType) for one, other in zip(found, wanted, strict=True))
        )
    return type(found) is type(wanted)
