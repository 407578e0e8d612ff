"""The identity of a member in its group, read from the bytes in which librdkafka keeps it.

``Consumer.consumer_group_metadata()`` returns them (librdkafka 2.0 to 2.16,
`rd_kafka_consumer_group_metadata_write`):

* ``CGMDv2:``;
* the generation in the machine's byte order;
* the group and the member id, each with a zero byte after it;
* a byte 1 without an instance id, or a byte 0, the instance id, and a zero byte.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_BEGIN = b"CGMDv2:"
_GENERATION = struct.Struct("=i")
_NO_INSTANCE = b"\x01"


class GroupIdentity(NamedTuple):
    """The identity that fences a commit.

    Attributes
    ----------
    generation : int
        The generation, or the member epoch (KIP-848); -1 before the join.
    member_id : str
        The member id; empty before the join.
    instance_id : str or None
        The ``group.instance.id``; None if the member is not static.
    """

    generation: int
    member_id: str
    instance_id: str | None


def no_member(group_id: str) -> bytes:
    """Return the bytes of a client that has not joined the group."""
    return b"".join((_BEGIN, _GENERATION.pack(-1), group_id.encode(), b"\0", b"\0", _NO_INSTANCE))


def group_identity(metadata: bytes) -> GroupIdentity:
    """Read the bytes.

    Raises
    ------
    ValueError
        If they have another form, from another version of librdkafka.
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
