"""The structures that Python and the C library share: each is declared here and in a `.c` file, with equal fields.

`mismatch` compares their sizes when the library is loaded: a library that was built from other sources would write
beyond what Python has allocated.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from pyspark_kafka_group.columns.librdkafka_library import POINTER, TEXT

_INT32, _INT64 = ctypes.c_int32, ctypes.c_int64

_ERROR_TEXT_BYTES = 512
_TOPIC_BYTES = 256

KAFKA_FUNCTIONS = {
    "consume_batch": "rd_kafka_consume_batch_queue",
    "destroy": "rd_kafka_message_destroy",
    "timestamp": "rd_kafka_message_timestamp",
    "headers": "rd_kafka_message_headers",
    "header_count": "rd_kafka_header_cnt",
    "header_at": "rd_kafka_header_get_all",
    "topic_name": "rd_kafka_topic_name",
    "error_text": "rd_kafka_message_errstr",
}
"""The functions of librdkafka that `_native.c` calls, by the names it has for them, in its order."""

PRODUCER_FUNCTIONS = {
    "produce": "rd_kafka_produce",
    "producev": "rd_kafka_producev",
    "headers_new": "rd_kafka_headers_new",
    "header_add": "rd_kafka_header_add",
    "headers_destroy": "rd_kafka_headers_destroy",
    "last_error": "rd_kafka_last_error",
}
"""The functions of librdkafka that `_produce.c` calls, by the names it has for them, in its order."""

AVRO_OPERATIONS = (
    "FAIL", "SKIP_FIXED", "SKIP_VARINT", "SKIP_BYTES", "SKIP_ARRAY", "SKIP_MAP", "SEQUENCE", "BRANCH", "DEFAULT",
    "TO_END", "NULL_VALUE", "BOOLEAN", "INT", "LONG", "LONG_TIMES", "INT_AS_FLOAT", "INT_AS_DOUBLE", "FLOAT",
    "FLOAT_AS_DOUBLE", "DOUBLE", "BYTES", "STRING", "FIXED", "DECIMAL", "ENUM", "RECORD", "ARRAY", "MAP", "MEMBER",
)  # fmt: skip
"""The operations of a program for `_avro.c`, as it numbers them."""


class MessageSource(ctypes.Structure):
    """Functions of librdkafka, or of `_record_batches.c`, to take and look at messages; ``source_t``."""

    _fields_ = [(name, POINTER) for name in (*KAFKA_FUNCTIONS, "sized_header_at")]


class Request(ctypes.Structure):
    """The records to measure; ``request_t`` of `_native.c`."""

    _fields_ = (
        ("topic", TEXT),
        ("start", _INT64),
        ("until", _INT64),
        ("take", _INT64),
        ("max_records", _INT64),
        ("max_bytes", _INT64),
        ("partition", _INT32),
        ("timeout_ms", _INT32),
        ("want_key", _INT32),
        ("want_value", _INT32),
        ("want_headers", _INT32),
    )


class Chunk(ctypes.Structure):
    """The records that were measured; ``chunk_t`` of `_native.c`."""

    records: int
    last_offset: int
    key_bytes: int
    key_nulls: int
    value_bytes: int
    value_nulls: int
    header_lists: int
    headers: int
    header_key_bytes: int
    header_value_bytes: int
    header_value_nulls: int
    bad_timestamps: int
    first_bad_timestamp: int
    other_offset: int
    other_partition: int
    timestamp_type: int
    timestamp_types_differ: int
    follows: int
    error: int
    other_topic: bytes
    error_text: bytes

    _fields_ = (
        ("records", _INT64),
        ("last_offset", _INT64),
        ("key_bytes", _INT64),
        ("key_nulls", _INT64),
        ("value_bytes", _INT64),
        ("value_nulls", _INT64),
        ("header_lists", _INT64),
        ("headers", _INT64),
        ("header_key_bytes", _INT64),
        ("header_value_bytes", _INT64),
        ("header_value_nulls", _INT64),
        ("bad_timestamps", _INT64),
        ("first_bad_timestamp", _INT64),
        ("other_offset", _INT64),
        ("other_partition", _INT32),
        ("timestamp_type", _INT32),
        ("timestamp_types_differ", _INT32),
        ("follows", _INT32),
        ("error", _INT32),
        ("other_topic", ctypes.c_char * _TOPIC_BYTES),
        ("error_text", ctypes.c_char * _ERROR_TEXT_BYTES),
    )


class Binary(ctypes.Structure):
    """The buffers of a column of variable length; ``binary_t`` of `_native.c`."""

    _fields_ = (("offsets", POINTER), ("data", POINTER), ("valid", POINTER))


class Buffers(ctypes.Structure):
    """Where records are copied to; ``buffers_t`` of `_native.c`."""

    _fields_ = (
        ("keys", Binary),
        ("values", Binary),
        ("offsets", POINTER),
        ("timestamps", POINTER),
        ("timestamps_valid", POINTER),
        ("timestamp_types", POINTER),
        ("header_offsets", POINTER),
        ("header_valid", POINTER),
        ("header_keys", Binary),
        ("header_values", Binary),
    )


class Scan(ctypes.Structure):
    """The batches of a response; ``scan_t`` of `_record_batches.c`."""

    begin: int
    bytes: int
    next_offset: int
    batches: int
    compressed: int
    bad_offset: int
    problem: int

    _fields_ = (
        ("begin", _INT64),
        ("bytes", _INT64),
        ("next_offset", _INT64),
        ("batches", _INT64),
        ("compressed", _INT64),
        ("bad_offset", _INT64),
        ("problem", _INT32),
    )


class Aborted(ctypes.Structure):
    """An aborted transaction; ``aborted_t`` of `_record_batches.c`."""

    _fields_ = (("producer", _INT64), ("first_offset", _INT64), ("state", _INT64))


class AvroColumn(ctypes.Structure):
    """A column that grows; ``column_t`` of `_avro_columns.h`."""

    length: int
    bytes: int
    valid: int | None
    offsets: int | None
    data: int | None

    _fields_ = (
        ("length", _INT64),
        ("bytes", _INT64),
        ("valid", POINTER),
        ("offsets", POINTER),
        ("data", POINTER),
        ("valid_room", _INT64),
        ("offsets_room", _INT64),
        ("data_room", _INT64),
        ("kind", _INT32),
        ("width", _INT32),
        ("first_child", _INT32),
        ("children", _INT32),
    )


class AvroProgram(ctypes.Structure):
    """How records of one schema are decoded; ``program_t`` of `_avro.c`."""

    _fields_ = (("id", _INT64), ("code", POINTER), ("constants", POINTER))


class AvroRows(ctypes.Structure):
    """The records to decode; ``rows_t`` of `_avro.c`."""

    _fields_ = (("offsets", POINTER), ("data", POINTER), ("valid", POINTER), ("first", _INT64))


class AvroOutput(ctypes.Structure):
    """The columns that are filled; ``output_t`` of `_avro_columns.h`."""

    status: int
    count: int
    unknown_id: int
    declined_count: int
    declined: Any
    columns: Any
    room_left: int

    _fields_ = (
        ("status", _INT32),
        ("count", _INT32),
        ("unknown_id", _INT64),
        ("declined_count", _INT64),
        ("declined", ctypes.POINTER(_INT32)),
        ("columns", ctypes.POINTER(AvroColumn)),
        ("room_left", _INT64),
        ("declined_room", _INT64),
        ("table_room", _INT64),
        ("table", POINTER),
    )


class ProducerFunctions(ctypes.Structure):
    """Functions of librdkafka; ``producer_t`` of `_produce.c`."""

    _fields_ = [(name, POINTER) for name in PRODUCER_FUNCTIONS]


class ProducerColumn(ctypes.Structure):
    """A column to write; ``column_t`` of `_produce.c`."""

    _fields_ = (("offsets", POINTER), ("data", POINTER), ("valid", POINTER), ("first", _INT64))


class ProducerRows(ctypes.Structure):
    """The rows to write; ``rows_t`` of `_produce.c`."""

    _fields_ = (
        ("topics", POINTER),
        ("topic", POINTER),
        ("partition", POINTER),
        ("keys", ProducerColumn),
        ("values", ProducerColumn),
        ("headers", ProducerColumn),
        ("header_keys", ProducerColumn),
        ("header_values", ProducerColumn),
    )


_SHARED: dict[str, tuple[int, ...]] = {
    "kg_shared": tuple(map(ctypes.sizeof, (MessageSource, Request, Chunk, Binary, Buffers))),
    "kb_shared": tuple(map(ctypes.sizeof, (MessageSource, Scan, Aborted))),
    "ka_shared": (*map(ctypes.sizeof, (AvroColumn, AvroProgram, AvroRows, AvroOutput)), len(AVRO_OPERATIONS)),
    "kg_produce_shared": tuple(map(ctypes.sizeof, (ProducerFunctions, ProducerColumn, ProducerRows))),
}
"""What each `.c` file says that it was built with, by the function that says it."""


def mismatch(library: ctypes.CDLL) -> str:
    """Return why this Python code cannot use a C library; empty if it can.

    Parameters
    ----------
    library
        As it was loaded: no function is declared, and none but those of `_SHARED` is called.
    """
    if sys.byteorder != "little":
        return "it is for processors that put the lowest byte of a number first"
    for name, expected in _SHARED.items():
        numbers = (_INT64 * len(expected))()
        try:
            function = getattr(library, name)
        except AttributeError:
            return "it is of another version"
        function.restype = _INT32
        function.argtypes = (POINTER, _INT32)
        if function(numbers, len(expected)) != len(expected) or tuple(numbers) != expected:
            return "it is of another version"
    return ""
