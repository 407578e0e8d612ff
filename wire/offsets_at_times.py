"""The request for the offset of each partition at a time of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.requests import Api, Request, write_by_topic
from pyspark_kafka_group.wire.topic_requests import ListedOffset, ListOffsets
from pyspark_kafka_group.wire.types import TopicPartition

_CONSUMER = -1
_READ_UNCOMMITTED = 0


@dataclass(frozen=True, slots=True)
class ListOffsetsAtTimes(Request[dict[TopicPartition, ListedOffset]]):
    """Asks a leader for the first record of a time or later, in each partition; offset -1 where there is none.

    Attributes
    ----------
    partitions : mapping of TopicPartition to int
        The leader's epoch as far as the asker knows; -1 if it does not.
    times_ms : mapping of TopicPartition to int
        The time of each of these partitions, in milliseconds since 1970.
    """

    partitions: Mapping[TopicPartition, int]
    times_ms: Mapping[TopicPartition, int]

    api = Api(2, "ListOffsets", 4, 6, flexible=6, since="2.1")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version

        def partition(number: int, asked: tuple[int, int]) -> None:
            current_leader_epoch, time_ms = asked
            out.int32(number)
            out.int32(current_leader_epoch)
            out.int64(time_ms)
            out.end()

        out.int32(_CONSUMER)
        out.int8(_READ_UNCOMMITTED)
        write_by_topic(out, {tp: (epoch, self.times_ms[tp]) for tp, epoch in self.partitions.items()}, partition)
        out.end()

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, ListedOffset]:
        """Read the fields of the answer, which is that of any ListOffsets."""
        return ListOffsets(self.partitions, 0, read_committed=False).read(answer, version)
