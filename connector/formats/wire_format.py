"""What Confluent's serializers put before a record: a zero, its schema's id, and for Protobuf which message it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_group.formats.decoder import MalformedValueError

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD = 5
_DEEP = 100  # more messages inside of messages than anybody has


def schema_id(value: bytes) -> int:
    """Return the id of the schema that a record was written with; raise :class:`MalformedValueError`."""
    if len(value) < _HEAD:
        raise MalformedValueError(f"it has {len(value)} bytes, and the id of a schema alone takes {_HEAD}")
    if value[0] != 0:
        raise MalformedValueError(f"it begins with byte {value[0]}, and a record with the id of a schema with 0")
    return int.from_bytes(value[1:_HEAD], "big")


def schema_ids(values: pa.BinaryArray) -> list[int]:
    """Return the ids that records begin with, each once; first those that most records have."""
    import pyarrow.compute as pc

    heads = pc.binary_slice(values, 0, _HEAD).drop_null().value_counts()
    counted = zip(heads.field("values").to_pylist(), heads.field("counts").to_pylist(), strict=True)
    most_first = sorted(counted, key=lambda one: -one[1])
    return [int.from_bytes(head[1:], "big") for head, _ in most_first if len(head) == _HEAD and head[0] == 0]


def with_length(value: bytes) -> bytes:
    """Return a record with an id, and behind it the length of the rest, as Avro writes bytes."""
    size = len(value) - _HEAD << 1  # zigzag
    found = bytearray(value[:_HEAD])
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*found, size]) + value[_HEAD:]


def message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message of its file a record of Protobuf is, and where it begins.

    Raises
    ------
    MalformedValueError
        If that is cut off, or senseless.
    """
    count, at = _zigzag(value, _HEAD)
    if not 0 <= count <= _DEEP:
        raise MalformedValueError(f"it says to be message {count} levels deep")
    if count == 0:
        return (0,), at
    indexes = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 64:
        if at >= len(value):
            raise MalformedValueError("it ends within what says which message it is")
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise MalformedValueError("what says which message it is has no end")
