"""Which partition of ``__consumer_offsets`` holds a group; the broker that leads it coordinates the group."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"

_BITS = 32
_ALL = 2**_BITS - 1
_SIGN = 2 ** (_BITS - 1)


def java_hash(text: str) -> int:
    """Return what Java's ``String.hashCode`` returns: 32 bits with a sign, over UTF-16 code units.

    A character beyond the first 65,536, an emoji say, is two code units there and one character here.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for index in range(0, len(units), 2):
        found = (31 * found + (units[index] << 8 | units[index + 1])) & _ALL
    return found - 2**_BITS if found >= _SIGN else found


def group_partition(group_id: str, partition_count: int) -> int:
    """Return the partition of the offsets topic that holds a group.

    As in Kafka's ``Utils.abs``, the smallest number counts as 0: it has no positive counterpart in 32 bits.

    Parameters
    ----------
    group_id : str
        The group.
    partition_count : int
        How many partitions ``__consumer_offsets`` has.
    """
    hashed = java_hash(group_id)
    return (0 if hashed == -_SIGN else abs(hashed)) % partition_count
