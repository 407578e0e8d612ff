"""A fake cluster for batch reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset, TopicInfo
from pyspark_kafka_group.cluster.group_description import GroupMember
from pyspark_kafka_group.offsets.errors import ActiveGroupError, UnknownTopicError
from pyspark_kafka_group.offsets.notes import BookmarkNote, read
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

Offsets = dict[TopicPartition, Offset]


@dataclass
class FakeLookup:
    """A fake of :class:`~pyspark_kafka_group.cluster.range_lookup.RangeLookup`.

    Attributes
    ----------
    logs : dict of TopicPartition to OffsetRange
        The range of each log.
    stored : dict of TopicPartition to Offset
        The committed offsets of the group.
    metadata : dict of TopicPartition to str
        The metadata of the committed offsets.
    truncated : dict of TopicPartition to Offset
        Where the logs were truncated after leader epoch 7, which all commits have.
    topic_ids : dict of str to str
        The ids of the topics.
    cluster_id : str
        The id of the cluster.
    present : tuple of Member
        The members of the group.
    problem : Exception or None
        The error that a commit raises after it has succeeded.
    commits : list of TopicPartition
        The partitions of all commits.
    """

    logs: dict[TopicPartition, OffsetRange]
    stored: Offsets = field(default_factory=dict)
    metadata: dict[TopicPartition, str] = field(default_factory=dict)
    truncated: Offsets = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    cluster_id: str = "here"
    present: tuple[GroupMember, ...] = ()
    problem: Exception | None = None
    commits: list[TopicPartition] = field(default_factory=list)

    def topics(self, names: Collection[str], *, option: str = "subscribe") -> dict[str, TopicInfo]:
        if missing := {*names} - {tp.topic for tp in self.logs}:
            raise UnknownTopicError([*missing], option=option)
        numbers = {name: {tp.partition: 0 for tp in self.logs if tp.topic == name} for name in names}
        return {name: TopicInfo(self.topic_ids.get(name), numbers[name], self.cluster_id) for name in names}

    def log_starts(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {tp: self.logs[tp].start for tp in partitions}

    def log_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {tp: self.logs[tp].until for tp in partitions}

    def log_ends_reaching(self, wanted: Offsets, *, open_transactions: bool) -> Offsets:
        return self.log_ends(wanted)

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(partitions, 7)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Offsets:
        assert {*epochs.values()} <= {7}
        return {tp: min(self.logs[tp].until, self.truncated.get(tp, self.logs[tp].until)) for tp in epochs}

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        assert not times_ms
        return {}

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        return {
            tp: CommittedOffset(self.stored[tp], self._epoch(tp), self.metadata.get(tp, ""))
            for tp in partitions
            if tp in self.stored
        }

    def _epoch(self, tp: TopicPartition) -> int | None:
        note = read(self.metadata.get(tp), tp, self.cluster_id)
        return note.leader_epoch if isinstance(note, BookmarkNote) else None

    def check_group(self) -> None:
        if self.present:
            raise ActiveGroupError.of_bookmark("g", [member.client_id for member in self.present])

    def commit(self, offsets: Mapping[TopicPartition, tuple[Offset, str]]) -> None:
        for tp, (self.stored[tp], self.metadata[tp]) in offsets.items():
            self.commits.append(tp)
        if self.problem is not None:
            raise self.problem

    def close(self) -> None:
        """Do nothing."""


def logs(*sizes: int, topic: str = "t") -> dict[TopicPartition, OffsetRange]:
    """Return logs for the partitions of a topic, with these numbers of records."""
    return {TopicPartition(topic, n): OffsetRange(Offset(0), Offset(size)) for n, size in enumerate(sizes)}
