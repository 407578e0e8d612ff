"""Limits the memory that Google's library takes for a record of Protobuf, before it parses the record.

Two bytes may be a message, which takes hundreds.  So a walk over the tags counts messages, values and unknown fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_group.formats.budget import Budget, most_bytes

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_MESSAGE_BYTES, _FIELD_BYTES = 400, 100
"""The size of a message with its dictionary and its list of unknown fields, and of each of its fields."""

_VALUE_BYTES = 128
"""The size of a value, which may be one of an unknown field."""

_PACKED_BYTES = 64
_VARINT, _FIXED_64, _BYTES, _GROUP, _END, _FIXED_32 = range(6)
_NO_END = bytes(range(0x80, 0x100))
"""The bytes that do not end a number."""

_DEEP = 100
"""How deeply messages may be nested: the limit of Protobuf's parser."""


@dataclass(slots=True)
class MessageCost:
    """The memory that a decoded message takes.

    Attributes
    ----------
    size : int
        The bytes of a message without fields.
    inner : dict of int to MessageCost
        The messages in it, by the numbers of their fields.
    packed : dict of int to int
        The size of a packed value, by the numbers of their fields; 0 for numbers of variable length.
    """

    size: int
    inner: dict[int, MessageCost] = field(default_factory=dict)
    packed: dict[int, int] = field(default_factory=dict)

    def dearest(self) -> int:
        """Return the most bytes that a byte of a record may take."""
        known, costs = {id(self)}, [self]
        for cost in costs:  # the list grows in the loop
            more = [one for one in cost.inner.values() if id(one) not in known]
            known.update(map(id, more))
            costs += more
        return max(_VALUE_BYTES, *((one.size + _VALUE_BYTES) // 2 for one in costs))


_UNKNOWN = MessageCost(_VALUE_BYTES)


def cost_of_message(message: Descriptor, known: dict[str, MessageCost] | None = None) -> MessageCost:
    """Return what a message costs."""
    known = {} if known is None else known
    if message.full_name not in known:
        found = known[message.full_name] = MessageCost(_MESSAGE_BYTES + _FIELD_BYTES * len(message.fields))
        for one in message.fields:
            if one.message_type is not None:
                found.inner[one.number] = cost_of_message(one.message_type, known)
            elif one.is_repeated and one.cpp_type != one.CPPTYPE_STRING:
                found.packed[one.number] = _fixed_size(one)
    return known[message.full_name]


def _fixed_size(one: FieldDescriptor) -> int:
    if one.type in (one.TYPE_FIXED32, one.TYPE_SFIXED32, one.TYPE_FLOAT):
        return 4
    return 8 if one.type in (one.TYPE_FIXED64, one.TYPE_SFIXED64, one.TYPE_DOUBLE) else 0


def check_size(value: bytes, begin: int, cost: MessageCost) -> None:
    """Raise `TooLargeError` if the message that begins at a position may take too much memory.

    The walk and the library both end at the first tag that the library refuses.
    """
    budget = Budget()
    budget.begin(len(value))
    budget.spend_bytes(cost.size)
    at = begin
    stack = [(cost, len(value))]
    while stack:
        cost, end = stack[-1]
        if at == end:
            stack.pop()
            continue
        tag, at = _number(value, at, end)
        if at < 0:
            return
        number, wire = tag >> 3, tag & 7
        budget.spend_bytes(_VALUE_BYTES)
        if wire == _VARINT:
            _, at = _number(value, at, end)
        elif wire in (_FIXED_64, _FIXED_32):
            at += 8 if wire == _FIXED_64 else 4
        elif wire == _BYTES:
            size, at = _number(value, at, end)
            if number in cost.inner and at + size <= end:
                stack.append((cost.inner[number], at + size))
                budget.spend_bytes(cost.inner[number].size)
            else:
                if number in cost.packed and at + size <= end:
                    width = cost.packed[number]
                    found = size // width if width else len(value[at : at + size].translate(None, _NO_END))
                    budget.spend_bytes(found * _PACKED_BYTES)
                at += size
        elif wire == _GROUP:
            group = cost.inner.get(number, _UNKNOWN)
            stack.append((group, end))
            budget.spend_bytes(group.size)
        elif wire == _END:
            stack.pop()
        if at < 0 or at > end or wire > _FIXED_32 or len(stack) > _DEEP + 1:  # with the message itself
            return


def is_large(value: bytes, dearest: int) -> bool:
    """Return whether a record is so large that its parts must be counted."""
    return len(value) * dearest > most_bytes(len(value))


def _number(value: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of variable length, and the position behind it; the position is -1 if the number is cut off."""
    number = shift = 0
    while at < end and shift < 70:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    return 0, -1
