"""From the columns of a DataFrame to columns that a producer takes, checked; no Kafka.

Names, types and the words of the errors are those of Spark's own sink (``KafkaWriter``), whose users know them.
Columns with other names are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from pyspark_kafka_group.offsets.errors import ColumnError

if TYPE_CHECKING:
    import pyarrow as pa

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


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one batch; columns are None where there are none.

    Attributes
    ----------
    count : int
        How many.
    topics : tuple of str
        The topics that occur.
    topic : pa.Int32Array or None
        For each row the index of its topic; None if there is one topic.
    partition : pa.Int32Array or None
        For each row its partition, -1 for none.
    key, value : pa.BinaryArray or None
        Of each row; ``value`` is always there.
    headers : pa.ListArray or None
        Of each row a list of structs of key, text, and value, binary.
    """

    count: int
    topics: tuple[str, ...]
    topic: pa.Int32Array | None
    partition: pa.Int32Array | None
    key: pa.BinaryArray | None
    value: pa.BinaryArray
    headers: pa.ListArray | None


def record_rows(batch: pa.RecordBatch, columns: RecordColumns, topic: str | None) -> Rows:
    """Return the rows of a batch.

    Parameters
    ----------
    batch : pa.RecordBatch
        As Spark passes it.
    columns : RecordColumns
        Which columns are which.
    topic : str or None
        The option ``topic``.

    Raises
    ------
    ColumnError
        If a row has a value that no record can have.
    """
    topics, topic_of = ((topic,), None) if topic is not None else _topics(batch.column(columns.topic))
    return Rows(
        batch.num_rows,
        topics,
        topic_of,
        None if columns.partition is None else _partitions(batch.column(columns.partition)),
        None if columns.key is None else _bytes(batch.column(columns.key)),
        _bytes(batch.column(columns.value)),
        None if columns.headers is None else _headers(batch.column(columns.headers)),
    )


def _bytes(column: pa.Array) -> pa.BinaryArray:
    import pyarrow as pa

    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _topics(column: pa.Array) -> tuple[tuple[str, ...], pa.Int32Array | None]:
    if column.null_count:
        raise ColumnError(
            "topic",
            "the data contains a null topic (KAFKA_NULL_TOPIC_IN_DATA). Give each row one, or set the option topic.",
        )
    encoded = column.dictionary_encode()
    topics = tuple(encoded.dictionary.to_pylist())
    if "" in topics:
        raise ColumnError("topic", "a row has an empty topic. Give each row a topic, or set the option topic.")
    if any("\0" in topic for topic in topics):  # librdkafka would take what stands before it for the name
        raise ColumnError("topic", "a row has a topic with a zero byte in its name. Correct the column.")
    return topics, encoded.indices if len(topics) > 1 else None


def _partitions(column: pa.Array) -> pa.Int32Array | None:
    import pyarrow.compute as pc

    if column.null_count == len(column):
        return None
    lowest = pc.min(column).as_py()
    if lowest < 0:
        raise ColumnError(
            "partition",
            f"{lowest} is not the number of a partition. Use null for rows that the partitioner shall place.",
        )
    return column.fill_null(-1) if column.null_count else column


def _headers(column: pa.Array) -> pa.ListArray | None:
    import pyarrow as pa

    if column.null_count == len(column):
        return None
    entries = column.flatten()
    if entries.null_count or entries.field(0).null_count:
        raise ColumnError(
            "headers", "a header is null, or has no key. Leave it out, as in filter(headers, h -> h.key IS NOT NULL)."
        )
    plain = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    return column.cast(plain)


def each(rows: Rows) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the topic of each row, and the other arguments of ``confluent_kafka.Producer.produce``."""
    topic_of = None if rows.topic is None else rows.topic.to_pylist()
    given = {
        name: column.to_pylist()
        for name, column in (("value", rows.value), ("key", rows.key), ("partition", rows.partition))
        if column is not None
    }
    headers = None if rows.headers is None else rows.headers.to_pylist()
    for at in range(rows.count):
        arguments: dict[str, Any] = {name: column[at] for name, column in given.items()}
        if headers is not None and headers[at] is not None:
            arguments["headers"] = [(header["key"].decode(), header["value"]) for header in headers[at]]
        yield rows.topics[0 if topic_of is None else topic_of[at]], arguments
