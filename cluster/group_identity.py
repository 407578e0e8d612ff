"""Who a member is to its group, read from the bytes that librdkafka keeps it in.

``Consumer.consumer_group_metadata()`` returns them (librdkafka 2.0 to 2.16, `rd_kafka_consumer_group_metadata_write`):
``CGMDv2:``, the generation in the machine's byte order, the group and the member id, each ended by a zero byte, a byte
that is 1 if there is no instance id, and else the instance id and a zero byte.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_BEGIN = b"CGMDv2:"
_GENERATION = struct.Struct("=i")
_NO_INSTANCE = b"\x01"


class GroupIdentity(NamedTuple):
    """What fences a commit.

    Attributes
    ----------
    generation : int
        The generation, or the member epoch (KIP-848); -1 for one that has not joined.
    member_id : str
        Its member id; empty for one that has none.
    instance_id : str or None
        Its ``group.instance.id``.
    """

    generation: int
    member_id: str
    instance_id: str | None


def no_member(group_id: str) -> bytes:
    """Return the bytes of one that has not joined the group."""
    return b"".join((_BEGIN, _GENERATION.pack(-1), group_id.encode(), b"\0", b"\0", _NO_INSTANCE))


def group_identity(metadata: bytes) -> GroupIdentity:
    """Read the bytes.

    Raises
    ------
    ValueError
        They are of another form: another version of librdkafka writes them.
    """
    at = len(_BEGIN) + _GENERATION.size
    texts = metadata[at:].split(b"\0", 2)
    if not metadata.startswith(_BEGIN) or len(texts) != 3:
        raise ValueError(f"group metadata of an unknown form: {metadata[: len(_BEGIN)]!r}...")
    _, member_id, rest = texts
    instance_id = None
    if rest != _NO_INSTANCE:
        if len(rest) < 2 or rest[0] or rest.find(b"\0", 1) != len(rest) - 1:
            raise ValueError("group metadata of an unknown form: no instance id, and no sign that there is none")
        instance_id = rest[1:-1].decode()
    (generation,) = _GENERATION.unpack_from(metadata, len(_BEGIN))
    return GroupIdentity(generation, member_id.decode(), instance_id)
