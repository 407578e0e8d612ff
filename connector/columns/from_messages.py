"""Converts confluent-kafka's messages of one partition to Arrow record batches, with the rows of Spark's Kafka source.

`collect` takes the fields from the messages, and `RecordBatchBuilder` converts them to columns.  Runs in executors'
Python workers if `direct_client` is not available.

Measurements decided the implementation.  One plain loop over the accessors is the fastest way to read messages.
``pa.array`` over a list of bytes is faster than building buffers in Python.  Constant columns are built once, and then
sliced.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import TYPE_CHECKING, cast

from pyspark_kafka_group.columns.constant_columns import MAX_TIMESTAMP_MS, ConstantColumns
from pyspark_kafka_group.columns.limits import HEADER_BYTES
from pyspark_kafka_group.columns.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

Headers = list[tuple[str, bytes | None]]

_TIMESTAMP_TYPES = {0: -1, 1: 0, 2: 1}
"""Maps librdkafka's ``rd_kafka_timestamp_type_t`` to the ids of Kafka's ``TimestampType``, which Spark uses: none,
CreateTime and LogAppendTime."""


@dataclass(slots=True)
class Columns:
    """The fields of consecutive records of one partition: lists of equal length, in offset order.

    ``timestamps`` are milliseconds since 1970, or -1 without a timestamp.  ``timestamp_types`` are confluent-kafka's
    constants.  ``headers`` is empty if headers are not read.
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
        """Return the records at positions ``[start, stop)``."""
        return Columns(*(getattr(self, column.name)[start:stop] for column in fields(self)))

    def data_bytes(self) -> int:
        """Return the total size of keys, values and headers, in bytes."""
        total = _total_bytes(self.keys) + _total_bytes(self.values)
        for headers in filter(None, self.headers):
            total += sum(HEADER_BYTES + len(key) + len(value or b"") for key, value in headers)
        return total


def _total_bytes(values: list[bytes | None]) -> int:
    try:
        return sum(map(len, values))  # type: ignore[arg-type]  # tried first because it takes two thirds of the time
    except TypeError:
        return sum(map(len, filter(None, values)))


def collect(messages: Sequence[Message], *, include_headers: bool) -> Columns:
    """Take the fields from the leading records of `messages`.

    Stops before the first event (an error, or the end of the partition).  So ``messages[len(columns)]`` is that event.
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
        add_timestamp(timestamp if timestamp_type else -1)  # librdkafka says 0, and Kafka's own client -1
    if include_headers:
        with _replaced_characters():
            columns.headers = [cast("Headers | None", message.headers()) for message in messages[: len(columns)]]
    return columns


class _Replacing(threading.local):
    """Whether this thread decodes keys of headers."""

    on = False


_REPLACING = _Replacing()


def _strict(problem: UnicodeError) -> tuple[str | bytes, int]:
    if _REPLACING.on:
        return codecs.replace_errors(problem)
    raise problem


@contextmanager
def _replaced_characters() -> Iterator[None]:
    """Let this thread decode keys that are not UTF-8 with replacement characters, as Kafka's client in Java does.

    confluent-kafka (2.16) decodes keys in C, strictly, and destroys the headers of a record if that fails.  There is no
    other way to read them.  So this replaces the handler of strict decoding.  In other threads it does what it does
    without.  It can go when `Message.headers` returns such keys.
    """
    before = codecs.lookup_error("strict")
    codecs.register_error("strict", _strict)
    _REPLACING.on = True
    try:
        yield
    finally:
        _REPLACING.on = False
        codecs.register_error("strict", before)


class RecordBatchBuilder:
    """Builds the record batches of one topic-partition.

    Parameters
    ----------
    topic, partition
        The topic-partition, for its two constant columns.
    columns
        The names of the columns, a subsequence of `schema.COLUMNS`.
    """

    def __init__(self, topic: str, partition: int, columns: tuple[str, ...]) -> None:
        self._schema = arrow_schema(columns)
        self._constant = ConstantColumns(topic, partition)

    def build(self, columns: Columns) -> pa.RecordBatch:
        """Return one record batch with all records in `columns`."""
        import pyarrow as pa

        return pa.RecordBatch.from_arrays([self._column(field, columns) for field in self._schema], schema=self._schema)

    def build_bounded(self, columns: Columns, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `max_bytes` of data each.  A larger record gets its own batch."""
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

    def _column(self, field: pa.Field, columns: Columns) -> pa.Array:
        import pyarrow as pa

        length = len(columns)
        match field.name:
            case "key":
                return pa.array(columns.keys, field.type)
            case "value":
                return pa.array(columns.values, field.type)
            case "topic":
                return self._constant.topic(length)
            case "partition":
                return self._constant.partition(length)
            case "offset":
                return pa.array(columns.offsets, field.type)
            case "timestamp":
                return self._timestamp_column(columns)
            case "timestampType":
                return self._timestamp_type_column(columns.timestamp_types)
            case _:
                return _header_column(columns.headers, field.type)

    def _timestamp_column(self, columns: Columns) -> pa.Array:
        import pyarrow as pa

        milliseconds, microseconds = pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")
        try:
            return pa.array(columns.timestamps, milliseconds).cast(microseconds)
        except pa.ArrowInvalid:
            possible = [t if abs(t) <= MAX_TIMESTAMP_MS else None for t in columns.timestamps]
            self._constant.warn_of_timestamps(possible.count(None), columns.offsets[possible.index(None)])
            return pa.array(possible, milliseconds).cast(microseconds)

    def _timestamp_type_column(self, kafka_types: list[int]) -> pa.Array:
        import pyarrow as pa

        length = len(kafka_types)
        if kafka_types.count(kafka_types[0]) == length:
            return self._constant.timestamp_type(_TIMESTAMP_TYPES[kafka_types[0]], length)
        return pa.array([_TIMESTAMP_TYPES[kafka_type] for kafka_type in kafka_types], pa.int32())


def _header_column(headers: list[Headers | None], list_type: pa.DataType) -> pa.Array:
    """Return the column ``headers``, as in Spark: with duplicate keys, in order, null for a record without headers."""
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
