"""Make record batches from messages, in Kafka's layout."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

TRANSACTIONAL, CONTROL = 0x10, 0x20
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ABORT, COMMIT = 0, 1


def varint(value: int) -> bytes:
    bits = (value << 1) ^ (value >> 63)
    found = bytearray()
    while bits > 0x7F:
        found.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*found, bits])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def _bit_by_bit(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRCS = [_bit_by_bit(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """Compute the checksum, with a table that follows the standard."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRCS[crc & 0xFF ^ byte]
    return crc ^ 0xFFFFFFFF


def compress(codec: str, data: bytes) -> bytes:
    match codec:
        case "none":
            return data
        case "gzip":
            return gzip.compress(data)
        case "snappy":
            return cast(bytes, pa.compress(data, "snappy", asbytes=True))
        case "xerial":  # blocks of snappy, as Java's clients write them
            blocks = [
                cast(bytes, pa.compress(data[at : at + 50], "snappy", asbytes=True)) for at in range(0, len(data), 50)
            ]
            framed = [struct.pack(">i", len(block)) + block for block in blocks]
            return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(framed)
        case _:
            out = pa.BufferOutputStream()
            with pa.CompressedOutputStream(out, codec) as stream:
                stream.write(data)
            return cast(bytes, out.getvalue().to_pybytes())


def framed(
    base_offset: int,
    last_delta: int,
    records: bytes,
    count: int,
    *,
    codec: str = "none",
    attributes: int = 0,
    first_timestamp: int = 0,
    max_timestamp: int = 0,
    producer: int = -1,
) -> bytes:
    """Return a batch of these records."""
    attributes |= CODECS.get(codec, CODECS["snappy"])
    tail = struct.pack(
        ">hiqqqhii", attributes, last_delta, first_timestamp, max_timestamp, producer, 0, 0, count
    ) + compress(codec, records)
    head = struct.pack(">ibI", 0, 2, crc32c(tail))
    return struct.pack(">qi", base_offset, len(head) + len(tail)) + head + tail


def record_bytes(message: Message, base_offset: int, base_timestamp: int) -> bytes:
    """Return one record of a batch."""
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    body = b"".join(
        [
            b"\0",
            varint(message.timestamp()[1] - base_timestamp),
            varint(cast(int, message.offset()) - base_offset),
            sized(message.key()),
            sized(message.value()),
            varint(len(headers)),
            *(sized(key.encode()) + sized(value) for key, value in headers),
        ]
    )
    return varint(len(body)) + body


def batch_of(messages: Sequence[Message], **fields: Any) -> bytes:
    """Return one batch.

    Its messages have one kind of timestamp, and also one time if the broker sets the timestamps.
    """
    first, last = cast(int, messages[0].offset()), cast(int, messages[-1].offset())
    kind, time = messages[0].timestamp()
    if kind == TIMESTAMP_LOG_APPEND_TIME:
        fields["attributes"] = fields.get("attributes", 0) | 0x08
    records = b"".join(record_bytes(message, first, time) for message in messages)
    return framed(first, last - first, records, len(messages), first_timestamp=time, max_timestamp=time, **fields)


def marker(offset: int, producer: int, kind: int) -> bytes:
    """Return the marker that ends a transaction."""
    body = b"\0" + varint(0) + varint(0) + sized(struct.pack(">hh", 0, kind)) + sized(b"\0" * 6) + varint(0)
    return framed(offset, 0, varint(len(body)) + body, 1, attributes=TRANSACTIONAL | CONTROL, producer=producer)
