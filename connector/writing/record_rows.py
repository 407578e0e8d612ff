"""Converts and checks the columns of a DataFrame for a producer.  No Kafka.

Names, types and error texts are those of Spark's own sink (``KafkaWriter``), whose users know them.  The sink ignores
columns with other names.
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
    """The positions of the columns.  None for a column that does not exist or is not used."""

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
        The schema of the DataFrame.
    topic : str or None
        The option ``topic``, which has precedence over the column.

    Raises
    ------
    ColumnError
        If a column is missing or has another type.
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
            "required attribute 'value' not found. Name the column to be written value, for example with "
            ".select(to_json(struct('*')).alias('value')).",
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
    """Return whether two types are the same, apart from nullability and collations."""
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
    """The rows of one batch.  A column that does not exist is None.

    Attributes
    ----------
    count : int
        The number of rows.
    topics : tuple of str
        The topics of the rows, without duplicates.
    topic : pa.Int32Array or None
        The index of each row's topic; None if there is only one topic.
    partition : pa.Int32Array or None
        The partition of each row; -1 if the partitioner decides.
    key, value : pa.BinaryArray or None
        Key and value of each row.  ``value`` always exists.
    headers : pa.ListArray or None
        For each row a list of structs ``key`` (text as bytes) and ``value`` (binary).
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
        The batch from Spark.
    columns : RecordColumns
        The positions of the columns.
    topic : str or None
        The option ``topic``.

    Raises
    ------
    ColumnError
        If a row has a value that is not possible in a record.
    """
    topics, topic_of = ((topic,), None) if topic is not None else _topics(batch.column(columns.topic))
    return Rows(
        batch.num_rows,
        topics,
        topic_of,
        None if columns.partition is None else _partitions(batch.column(columns.partition)),
        None if columns.key is None else _bytes(batch.column(columns.key), "key"),
        _bytes(batch.column(columns.value), "value"),
        None if columns.headers is None else _headers(batch.column(columns.headers)),
    )


def _bytes(column: pa.Array, name: str) -> pa.BinaryArray:
    import pyarrow as pa

    if pa.types.is_binary(column.type):
        return column
    try:
        return column.cast(pa.binary())
    except pa.ArrowInvalid:  # a column of large values has more than 2 GB
        raise ColumnError(
            name,
            "the rows that Spark gives to Python at once have more than 2 GB in it. Set "
            "spark.sql.execution.arrow.maxRecordsPerBatch lower.",
        ) from None


def _topics(column: pa.Array) -> tuple[tuple[str, ...], pa.Int32Array | None]:
    if column.null_count:
        raise ColumnError(
            "topic",
            "the data contains a null topic (KAFKA_NULL_TOPIC_IN_DATA). Give each row one, or set the option topic.",
        )
    import pyarrow as pa

    # Deliberate: a column that is a dictionary already may have other indices.
    encoded = (column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column).dictionary_encode()
    try:
        topics = tuple(encoded.dictionary.to_pylist())
    except UnicodeDecodeError:
        raise ColumnError("topic", "a row has a topic that is not valid UTF-8. Correct the column.") from None
    if "" in topics:
        raise ColumnError("topic", "a row has an empty topic. Give each row a topic, or set the option topic.")
    if any("\0" in topic for topic in topics):  # librdkafka would cut the name off there
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
            f"{lowest} is not the number of a partition. Use null to let the partitioner decide.",
        )
    return column.fill_null(-1) if column.null_count else column


def _headers(column: pa.Array) -> pa.ListArray | None:
    import pyarrow as pa

    if column.null_count == len(column):
        return None
    entries = column.flatten()
    if entries.null_count or entries.field(0).null_count:
        raise ColumnError(
            "headers", "a header is null, or has no key. Remove it, as in filter(headers, h -> h.key IS NOT NULL)."
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
            arguments["headers"] = [(_name(header["key"]), header["value"]) for header in headers[at]]
        yield rows.topics[0 if topic_of is None else topic_of[at]], arguments


def _name(key: bytes) -> str:
    """Return the name of a header for librdkafka; the direct producer takes any."""
    try:
        name = key.decode()
    except UnicodeDecodeError:
        raise ColumnError("headers", "a header has a key that is not valid UTF-8. Correct the column.") from None
    if "\0" in name:  # librdkafka would cut it off there
        raise ColumnError("headers", "a header has a zero byte in its key. Correct the column.")
    return name
