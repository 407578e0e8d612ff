"""Limits the memory for values that become Python objects before they become a column.

A few bytes may be an element of an array, and the element takes room in each part of its column.  So elements are
counted before they are created.  A library that parses a whole record gets it only if it cannot make too many objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.columns import limits

if TYPE_CHECKING:
    import pyarrow as pa

_OBJECTS = 4
"""The size of Python objects, as a multiple of the size of their column."""

_EACH = 64
"""The bytes that an element takes besides, because narrow elements are objects too.  The library for Protobuf, and the
dictionary of a message, take more: 240 bytes for an empty one."""


class Budget:
    """Counts the size of elements of arrays and maps, in all values that are decoded together."""

    def __init__(self) -> None:
        self._left = 0

    def begin(self, size: int) -> None:
        """Start again for other values, which have `size` bytes together."""
        self._left = most_bytes(size)

    def spend(self, elements: int, width: int) -> None:
        """Count elements of a width (see `width_of`) before they are created; raise `limits.TooLargeError`."""
        self.spend_bytes(elements * (width * _OBJECTS + _EACH))

    def spend_bytes(self, size: int) -> None:
        """Count bytes before they are allocated; raise `limits.TooLargeError`."""
        self._left -= size
        if self._left < 0:
            raise limits.TooLargeError


def most_bytes(size: int) -> int:
    """Return how many bytes may be decoded from `size` bytes."""
    return limits.MAX_DECODED_BYTES + 2 * size


def cost_of(kind: pa.DataType) -> int:
    """Return how much of a budget a value of a type takes as Python objects, without elements of arrays and maps."""
    return width_of(kind) * _OBJECTS + _parts_of(kind) * _EACH


def _parts_of(kind: pa.DataType) -> int:
    import pyarrow as pa

    if not pa.types.is_struct(kind):
        return 1
    return 1 + sum(_parts_of(kind.field(n).type) for n in range(kind.num_fields))


def width_of(kind: pa.DataType) -> int:
    """Return the minimum size of a value of a type in a column, in bytes."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return sum(width_of(kind.field(n).type) for n in range(kind.num_fields))
    if pa.types.is_nested(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 4
    return max(int(kind.bit_width) // 8, 1)


def largest_element(kind: pa.DataType, measure: Callable[[pa.DataType], int]) -> int:
    """Return the largest `width_of` or `cost_of` of an element of arrays and maps in a type; 0 if there are none."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        entry = pa.struct([kind.key_field, kind.item_field])
        return max(measure(entry), largest_element(kind.item_type, measure))
    if pa.types.is_list(kind):
        return max(measure(kind.value_type), largest_element(kind.value_type, measure))
    if pa.types.is_struct(kind):
        return max((largest_element(kind.field(n).type, measure) for n in range(kind.num_fields)), default=0)
    return 0


def counter(kind: pa.DataType, budget: Budget) -> Callable[[Any], None] | None:
    """Return a function that counts the elements in values for `pyarrow.array`; None if they have no elements."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        parts = {}
        for n in range(kind.num_fields):
            part = counter(kind.field(n).type, budget)
            if part is not None:
                parts[kind.field(n).name] = part
        return _of_struct(parts) if parts else None
    if pa.types.is_map(kind):
        return _of_map(width_of(kind.key_type) + width_of(kind.item_type), counter(kind.item_type, budget), budget)
    if pa.types.is_list(kind):
        return _of_list(width_of(kind.value_type), counter(kind.value_type, budget), budget)
    return None


# A value may have another type than its column, because fastavro resolves some types only by name.  Arrow refuses such
# values.


def _of_struct(parts: dict[str, Callable[[Any], None]]) -> Callable[[Any], None]:
    def count(found: Any) -> None:
        if isinstance(found, dict):
            for name, part in parts.items():
                part(found.get(name))

    return count


def _of_list(width: int, inner: Callable[[Any], None] | None, budget: Budget) -> Callable[[Any], None]:
    def count(found: Any) -> None:
        if isinstance(found, list):
            budget.spend(len(found), width)
            if inner is not None:
                for one in found:
                    inner(one)

    return count


def _of_map(width: int, inner: Callable[[Any], None] | None, budget: Budget) -> Callable[[Any], None]:
    def count(found: Any) -> None:
        if isinstance(found, list):
            budget.spend(len(found), width)
            if inner is not None:
                for one in found:
                    inner(one[1] if isinstance(one, tuple) else None)

    return count
