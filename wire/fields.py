"""The fields of Kafka's protocol, one by one, as bytes and back.

From some version on each kind of request is *flexible* (KIP-482): texts, bytes and arrays begin with a varint that is
one more than their length, 0 for null, and each structure ends with tagged fields.  Before that, lengths have 16 or 32
bits, -1 for null.  `Writer` and `Reader` know which of the two it is, so that a message is described once.

What a broker sends is never trusted: whatever is wrong with it is a `ProtocolError`, and no more memory is taken than
the bytes that have really come can fill.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import TypeVar

from pyspark_kafka_group.wire.types import ProtocolError

T = TypeVar("T")

_INT8, _INT16, _INT32, _INT64 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_UUID_BYTES = 16
_MAX_INT16 = 2**15 - 1
_VARINT_BITS = 32
_NO_UUID = bytes(_UUID_BYTES)


class Writer:
    """Collects the fields of a request.

    Parameters
    ----------
    flexible
        Whether its version is a flexible one.
    """

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._parts = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._parts)

    def boolean(self, value: bool) -> None:
        """Write true or false."""
        self._parts.append(value)

    def int8(self, value: int) -> None:
        """Write 8 bits."""
        self._parts += _INT8.pack(value)

    def int16(self, value: int) -> None:
        """Write 16 bits."""
        self._parts += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """Write 32 bits."""
        self._parts += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """Write 64 bits."""
        self._parts += _INT64.pack(value)

    def varint(self, value: int) -> None:
        """Write an unsigned number, 7 bits to the byte, the lowest first."""
        while value >= 0x80:
            self._parts.append(value & 0x7F | 0x80)
            value >>= 7
        self._parts.append(value)

    def uuid(self, value: str | None) -> None:
        """Write a topic id; None is all zeros."""
        self._parts += _NO_UUID if value is None else urlsafe_b64decode(value + "==")

    def text(self, value: str | None) -> None:
        """Write a string, or null."""
        encoded = None if value is None else value.encode()
        if not self._flexible and encoded is not None and len(encoded) > _MAX_INT16:
            raise ProtocolError(f"a text of {len(encoded)} bytes cannot be sent")
        self._length(None if encoded is None else len(encoded), self.int16)
        self._parts += encoded or b""

    def data(self, value: bytes | None) -> None:
        """Write bytes, or null."""
        self._length(None if value is None else len(value), self.int32)
        self._parts += value or b""

    def array(self, items: Iterable[T] | None, write: Callable[[T], None]) -> None:
        """Write an array with what writes one item, or null."""
        whole = None if items is None else list(items)
        self._length(None if whole is None else len(whole), self.int32)
        for item in whole or ():
            write(item)

    def append(self, fields: bytes) -> None:
        """Write fields that are bytes already."""
        self._parts += fields

    def end(self) -> None:
        """End a structure: there are no tagged fields."""
        if self._flexible:
            self.varint(0)

    def _length(self, length: int | None, write: Callable[[int], None]) -> None:
        if self._flexible:
            self.varint(0 if length is None else length + 1)
        else:
            write(-1 if length is None else length)


class Reader:
    """Takes the fields of a response one by one.

    Parameters
    ----------
    data
        The response, without its size and correlation id.
    flexible
        Whether its version is a flexible one.
    """

    def __init__(self, data: memoryview, *, flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self._flexible = flexible

    @property
    def data(self) -> memoryview:
        """The whole response."""
        return self._data

    @property
    def left(self) -> int:
        """How many bytes were not taken yet."""
        return len(self._data) - self._at

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next fields."""
        try:
            fields = layout.unpack_from(self._data, self._at)
        except struct.error:
            raise ProtocolError("a response is shorter than it says") from None
        self._at += layout.size
        return fields

    def boolean(self) -> bool:
        """The next field, true or false."""
        return self.take(_INT8)[0] != 0

    def int8(self) -> int:
        """The next field, of 8 bits."""
        return self.take(_INT8)[0]

    def int16(self) -> int:
        """The next field, of 16 bits."""
        return self.take(_INT16)[0]

    def int32(self) -> int:
        """The next field, of 32 bits; also the length of an array, -1 for null."""
        return self.take(_INT32)[0]

    def int64(self) -> int:
        """The next field, of 64 bits."""
        return self.take(_INT64)[0]

    def varint(self) -> int:
        """The next field, an unsigned number of up to 32 bits."""
        value = 0
        for shift in range(0, _VARINT_BITS, 7):
            (byte,) = self.bytes(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ProtocolError("a number of a response has no end")

    def bytes(self, length: int) -> memoryview:
        """So many bytes, none if `length` is negative."""
        if length > len(self._data) - self._at:
            raise ProtocolError("a response is shorter than it says")
        found = self._data[self._at : self._at + max(0, length)]
        self._at += len(found)
        return found

    def uuid(self) -> str | None:
        """A topic id as Kafka prints it; None for all zeros."""
        found = bytes(self.bytes(_UUID_BYTES))
        return None if found == _NO_UUID else urlsafe_b64encode(found).decode().rstrip("=")

    def text(self) -> str:
        """A string; empty if it is null."""
        return self.nullable_text() or ""

    def nullable_text(self) -> str | None:
        """A string, or None."""
        length = self._length(self.int16)
        return None if length < 0 else str(self.bytes(length), "utf-8", "replace")

    def payload(self) -> memoryview:
        """Bytes with their length before them; none if they are null."""
        return self.bytes(self._length(self.int32))

    def array(self, read: Callable[[], T]) -> list[T]:
        """The items of an array, with what reads one; none if it is null."""
        length = self._length(self.int32)
        if length > self.left:  # each item takes a byte at least
            raise ProtocolError("a response is shorter than it says")
        return [read() for _ in range(length)]

    def int32s(self) -> tuple[int, ...]:
        """The numbers of an array, of 32 bits each."""
        length = max(0, self._length(self.int32))
        found = self.bytes(length * _INT32.size)
        return struct.unpack(f">{length}i", found)

    def end(self) -> None:
        """End a structure: pass over tagged fields."""
        if self._flexible:
            for _ in range(self.varint()):
                self.varint()
                self.bytes(self.varint())

    def _length(self, read: Callable[[], int]) -> int:
        return self.varint() - 1 if self._flexible else read()
