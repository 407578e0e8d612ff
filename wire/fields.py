"""Writes and reads the fields of Kafka's protocol.

Newer versions of each kind of request are *flexible* (KIP-482).  Texts, bytes and arrays then begin with a varint:
their length plus 1, or 0 for null.  Each structure ends with tagged fields.  In older versions, lengths have 16 or 32
bits, and -1 means null.  `Writer` and `Reader` handle both, so that a message is described once.

Data from a broker is never trusted.  Any problem is a `ProtocolError`, and the received bytes limit the memory.
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
MAX_INT16 = 2**15 - 1
_VARINT_BITS = 32
_NO_UUID = bytes(_UUID_BYTES)


class Writer:
    """Collects the fields of a request.

    Parameters
    ----------
    flexible
        Whether its version is flexible.
    """

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._parts = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._parts)

    def boolean(self, value: bool) -> None:
        """Write a boolean."""
        self._parts.append(value)

    def int8(self, value: int) -> None:
        """Write an 8-bit number."""
        self._parts += _INT8.pack(value)

    def int16(self, value: int) -> None:
        """Write a 16-bit number."""
        self._parts += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """Write a 32-bit number."""
        self._parts += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """Write a 64-bit number."""
        self._parts += _INT64.pack(value)

    def varint(self, value: int) -> None:
        """Write an unsigned number, with 7 bits per byte, the lowest bits first."""
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
        if not self._flexible and encoded is not None and len(encoded) > MAX_INT16:
            raise ProtocolError(f"a text of {len(encoded)} bytes cannot be sent")
        self._length(None if encoded is None else len(encoded), self.int16)
        self._parts += encoded or b""

    def data(self, value: bytes | None) -> None:
        """Write bytes, or null."""
        self._length(None if value is None else len(value), self.int32)
        self._parts += value or b""

    def array(self, items: Iterable[T] | None, write: Callable[[T], None]) -> None:
        """Write an array, or null; ``write`` writes one item."""
        whole = None if items is None else list(items)
        self._length(None if whole is None else len(whole), self.int32)
        for item in whole or ():
            write(item)

    def append(self, fields: bytes) -> None:
        """Write already encoded fields."""
        self._parts += fields

    def end(self) -> None:
        """End a structure, without tagged fields."""
        if self._flexible:
            self.varint(0)

    def _length(self, length: int | None, write: Callable[[int], None]) -> None:
        if self._flexible:
            self.varint(0 if length is None else length + 1)
        else:
            write(-1 if length is None else length)


class Reader:
    """Reads the fields of a response one by one.

    Parameters
    ----------
    data
        The response, without its size and correlation id.
    flexible
        Whether its version is flexible.
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
        """The number of unread bytes."""
        return len(self._data) - self._at

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read the next fields."""
        try:
            fields = layout.unpack_from(self._data, self._at)
        except struct.error:
            raise ProtocolError("a response is shorter than it says") from None
        self._at += layout.size
        return fields

    def boolean(self) -> bool:
        """Read a boolean."""
        return self.take(_INT8)[0] != 0

    def int8(self) -> int:
        """Read an 8-bit number."""
        return self.take(_INT8)[0]

    def int16(self) -> int:
        """Read a 16-bit number."""
        return self.take(_INT16)[0]

    def int32(self) -> int:
        """Read a 32-bit number, or the length of an array, which is -1 for null."""
        return self.take(_INT32)[0]

    def int64(self) -> int:
        """Read a 64-bit number."""
        return self.take(_INT64)[0]

    def varint(self) -> int:
        """Read an unsigned number of up to 32 bits."""
        value = 0
        for shift in range(0, _VARINT_BITS, 7):
            (byte,) = self.bytes(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ProtocolError("a number of a response has no end")

    def bytes(self, length: int) -> memoryview:
        """Read this number of bytes, none if `length` is negative."""
        if length > len(self._data) - self._at:
            raise ProtocolError("a response is shorter than it says")
        found = self._data[self._at : self._at + max(0, length)]
        self._at += len(found)
        return found

    def uuid(self) -> str | None:
        """Read a topic id in Kafka's text form; None for all zeros."""
        found = bytes(self.bytes(_UUID_BYTES))
        return None if found == _NO_UUID else urlsafe_b64encode(found).decode().rstrip("=")

    def text(self) -> str:
        """Read a string; null becomes empty."""
        return self.nullable_text() or ""

    def nullable_text(self) -> str | None:
        """Read a string or None."""
        length = self._length(self.int16)
        return None if length < 0 else str(self.bytes(length), "utf-8", "replace")

    def payload(self) -> memoryview:
        """Read bytes after their length; null becomes empty."""
        return self.bytes(self._length(self.int32))

    def array(self, read: Callable[[], T]) -> list[T]:
        """Read the items of an array; ``read`` reads one.  Null becomes empty."""
        length = self._length(self.int32)
        if length > self.left:  # each item takes at least a byte
            raise ProtocolError("a response is shorter than it says")
        return [read() for _ in range(length)]

    def int32s(self) -> tuple[int, ...]:
        """Read an array of 32-bit numbers."""
        length = max(0, self._length(self.int32))
        found = self.bytes(length * _INT32.size)
        return struct.unpack(f">{length}i", found)

    def end(self) -> None:
        """End a structure: skip tagged fields."""
        if self._flexible:
            for _ in range(self.varint()):
                self.varint()
                self.bytes(self.varint())

    def _length(self, read: Callable[[], int]) -> int:
        return self.varint() - 1 if self._flexible else read()
