"""The request for everything that a group has committed."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.group_requests import FetchedOffsets, OffsetFetch
from pyspark_kafka_group.wire.requests import Api, Request


@dataclass(frozen=True, slots=True)
class AllOffsetsFetch(Request[FetchedOffsets]):
    """Asks for the committed offsets of all partitions for which there are any.

    It is OffsetFetch with null in place of the topics.

    Attributes
    ----------
    group_id : str
        Whose.
    require_stable : bool
        Whether partitions in an open transaction answer UNSTABLE_OFFSET_COMMIT instead (KIP-447).  A partition without
        a committed offset is left out also then.
    """

    group_id: str
    require_stable: bool = False

    api = Api(9, "OffsetFetch", 7, 9, flexible=6, since="2.5")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""

        def group(group_id: str) -> None:
            out.text(group_id)
            if version >= 9:
                out.text(None)  # member id
                out.int32(-1)  # member epoch
            out.array(None, out.int32)  # topics
            if version >= 8:
                out.end()

        if version >= 8:
            out.array([self.group_id], group)
        else:
            group(self.group_id)
        out.boolean(self.require_stable)
        out.end()

    def read(self, answer: Reader, version: int) -> FetchedOffsets:
        """Read the fields of the answer, which is that of any OffsetFetch."""
        return OffsetFetch(self.group_id, (), require_stable=False).read(answer, version)
