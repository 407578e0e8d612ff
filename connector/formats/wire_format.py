"""What Confluent's serializers put before a record: a zero, its schema's id, and for Protobuf which message it is."""

from __future__ import annotations

from pyspark_kafka_group.formats.decoder import MalformedValueError

_HEAD = 5
_DEEP = 100  # more messages inside of messages than anybody has


def schema_id(value: bytes) -> int:
    """Return the id of the schema that a record was written with; raise :class:`MalformedValueError`."""
    if len(value) < _HEAD:
        raise MalformedValueError(f"it has {len(value)} bytes, and the id of a schema alone takes {_HEAD}")
    if value[0] != 0:
        raise MalformedValueError(f"it begins with byte {value[0]}, and a record with the id of a schema with 0")
    return int.from_bytes(value[1:_HEAD], "big")


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
