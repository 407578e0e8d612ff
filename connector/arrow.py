"""From messages of one partition to Arrow record batches, equal to the rows of Spark's own Kafka source.

`collect` takes the fields out of confluent-kafka's messages, `RecordBatchBuilder` turns them into columns.  Runs in
executors' Python workers.  Which messages belong to a range is decided in `reading`.

The shape of both follows measurements: one plain loop over the accessors is the cheapest way out of the messages,
``pa.array`` over a list of bytes beats building the buffers in Python, and columns that are constant within a
partition are made once and sliced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import TYPE_CHECKING, cast

from pyspark_kafka_group.offsets.errors import DataError
from pyspark_kafka_group.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

log = logging.getLogger("pyspark_kafka_group.reading")

Headers = list[tuple[str, bytes | None]]

_NO_TIMESTAMP_TYPE, _CREATE_TIME, _LOG_APPEND_TIME = -1, 0, 1
_SPARK_TIMESTAMP_TYPES = {0: _NO_TIMESTAMP_TYPE, 1: _CREATE_TIME, 2: _LOG_APPEND_TIME}
"""confluent-kafka's ``TIMESTAMP_*`` constants to the ids of Kafka's ``TimestampType``, which Spark passes on."""

_MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
"""Beyond this, either side of 1970, milliseconds do not fit into Spark's 64-bit microseconds."""


@dataclass(slots=True)
class Columns:
    """The fields of consecutive records of one partition: lists of equal length, in offset order.

    ``timestamps`` are milliseconds since 1970 (-1: the record has none), ``timestamp_types`` are confluent-kafka's
    constants, ``headers`` stays empty where headers are not asked for.
    """

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    timestamp_types: list[int] = field(default_factory=list)
    headers: list[Headers | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, stop: int) -> Columns:
        """The records at positions ``[start, stop)``."""
        return Columns(*(getattr(self, column.name)[start:stop] for column in fields(self)))

    def data_bytes(self) -> int:
        """Bytes of keys, values and headers together: what can make a batch too large."""
        total = _total_bytes(self.keys) + _total_bytes(self.values)
        for headers in filter(None, self.headers):
            total += sum(len(key) + len(value or b"") for key, value in headers)
        return total


def _total_bytes(values: list[bytes | None]) -> int:
    try:
        return sum(map(len, values))  # type: ignore[arg-type]  # tried first because it takes two thirds of the time
    except TypeError:
        return sum(map(len, filter(None, values)))


def collect(messages: Sequence[Message], *, include_headers: bool) -> Columns:
    """Take the fields out of the leading records of `messages`.

    Stops before the first message that is an event (an error, or the end of the partition), so that
    ``messages[len(columns)]`` is that event, if there is one.

    Raises
    ------
    DataError
        Headers are asked for, and those of a record cannot be read.
    """
    columns = Columns()
    add_key = columns.keys.append
    add_value = columns.values.append
    add_offset = columns.offsets.append
    add_timestamp = columns.timestamps.append
    add_timestamp_type = columns.timestamp_types.append
    for message in messages:
        if message.error() is not None:
            break
        add_key(message.key())
        add_value(message.value())
        add_offset(message.offset())  # type: ignore[arg-type]  # only an event has none
        timestamp_type, timestamp = message.timestamp()
        add_timestamp_type(timestamp_type)
        add_timestamp(timestamp)
    if include_headers:
        columns.headers = [_headers_of(message) for message in messages[: len(columns)]]
    return columns


def _headers_of(message: Message) -> Headers | None:
    try:
        return cast("Headers | None", message.headers())
    except (SystemError, UnicodeDecodeError) as problem:
        # confluent-kafka 2.16 cannot decode such a key, and a second call would return an invalid object.  (Spark's own
        # source has the key with replacement characters, as Kafka's Java client decodes it.)
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        raise DataError(
            f"{topic}-{partition}: the record at offset {offset} has a header whose key is not UTF-8, which "
            f"confluent-kafka cannot read. Set includeHeaders=false, or keep such records out of the topic.",
            topic=topic,
            partition=partition,
            offset=offset,
        ) from problem


class RecordBatchBuilder:
    """Builds the record batches of one topic-partition.

    Parameters
    ----------
    topic, partition
        The topic-partition, for the two columns that it alone decides.
    include_headers
        Whether the batches have the column ``headers``.
    max_records
        The most records that one batch will have.
    """

    def __init__(self, topic: str, partition: int, *, include_headers: bool, max_records: int) -> None:
        import pyarrow as pa

        self._topic_partition = f"{topic}-{partition}"
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers=include_headers)
        self._topics = pa.repeat(pa.scalar(topic, pa.string()), max_records)
        self._partitions = pa.repeat(pa.scalar(partition, pa.int32()), max_records)
        # Nearly every topic has one type of timestamp throughout.
        self._timestamp_types = {
            kafka_type: pa.repeat(pa.scalar(spark_type, pa.int32()), max_records)
            for kafka_type, spark_type in _SPARK_TIMESTAMP_TYPES.items()
        }

    def build(self, columns: Columns) -> pa.RecordBatch:
        """One record batch of all records in `columns`."""
        import pyarrow as pa

        length = len(columns)
        arrays = [
            pa.array(columns.keys, pa.binary()),
            pa.array(columns.values, pa.binary()),
            self._topics.slice(0, length),
            self._partitions.slice(0, length),
            pa.array(columns.offsets, pa.int64()),
            self._timestamp_column(columns),
            self._timestamp_type_column(columns.timestamp_types),
        ]
        if self._include_headers:
            arrays.append(_header_column(columns.headers, self._schema.field("headers").type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def build_bounded(self, columns: Columns, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """Record batches of at most `max_bytes` of data each; a larger record gets a batch of its own."""
        if columns.data_bytes() <= max_bytes:
            if columns:
                yield self.build(columns)
            return
        start = size = 0
        for position in range(len(columns)):
            record_bytes = columns.part(position, position + 1).data_bytes()
            if position > start and size + record_bytes > max_bytes:
                yield self.build(columns.part(start, position))
                start, size = position, 0
            size += record_bytes
        yield self.build(columns.part(start, len(columns)))

    def _timestamp_column(self, columns: Columns) -> pa.Array:
        import pyarrow as pa

        milliseconds, microseconds = pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")
        try:
            return pa.array(columns.timestamps, milliseconds).cast(microseconds)
        except pa.ArrowInvalid:
            # A producer's mistake (nanoseconds, say).  Spark's own source fails here with an arithmetic overflow,
            # at each restart again; the column is nullable, and null is the truth about a time Spark cannot hold.
            possible = [t if abs(t) <= _MAX_TIMESTAMP_MS else None for t in columns.timestamps]
            first = columns.offsets[possible.index(None)]
            log.warning(
                "%s: %d records from offset %d on have a timestamp beyond what Spark can hold; it becomes null",
                self._topic_partition,
                possible.count(None),
                first,
            )
            return pa.array(possible, milliseconds).cast(microseconds)

    def _timestamp_type_column(self, kafka_types: list[int]) -> pa.Array:
        import pyarrow as pa

        length = len(kafka_types)
        if kafka_types.count(kafka_types[0]) == length:
            return self._timestamp_types[kafka_types[0]].slice(0, length)
        return pa.array([_SPARK_TIMESTAMP_TYPES[kafka_type] for kafka_type in kafka_types], pa.int32())


def _header_column(headers: list[Headers | None], list_type: pa.DataType) -> pa.Array:
    """The column ``headers``: order and duplicate keys kept, null for a record without headers, as in Spark."""
    import pyarrow as pa

    present = [record_headers for record_headers in headers if record_headers]
    if not present:
        return pa.nulls(len(headers), list_type)
    flat = list(chain.from_iterable(present))
    # A null at position i of the offsets makes list i null.
    list_starts: list[int | None] = []
    end = 0
    for record_headers in headers:
        list_starts.append(end if record_headers else None)
        end += len(record_headers or ())
    structs = pa.StructArray.from_arrays(
        [
            pa.array([key for key, _ in flat], pa.string()),
            pa.array([value for _, value in flat], pa.binary()),
        ],
        fields=list(list_type.value_type),
    )
    return pa.ListArray.from_arrays(pa.array([*list_starts, end], pa.int32()), structs, type=list_type)
