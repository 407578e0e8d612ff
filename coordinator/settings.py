"""The user's options, as far as the coordinator needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from pyspark_kafka_group.cluster.properties.client_config import value_of
from pyspark_kafka_group.cluster.properties.kafka_properties import default_of
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.start_inputs import StartPolicy
from pyspark_kafka_group.offsets.types import TopicPartition


class CommitMode(Enum):
    """The ways to commit offsets."""

    TRANSACTION = "transaction"  # fenced by generation; the default
    PLAIN = "plain"  # one OffsetCommit, for clusters that allow no transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of one member of one group.

    Attributes
    ----------
    properties : mapping of str to str
        The user's ``kafka.*`` properties, without the prefix.  Hidden from ``repr``, because they contain secrets.
    group_id : str
        The option ``kafka.group.id``, or the beginning of a generated name, see :meth:`for_query`.
    topics : tuple of str
        The topics to subscribe to; empty with a pattern.
    commit_mode : CommitMode
        The option ``commitMode``.
    drain_timeout_s : float
        The option ``drainTimeoutMs``, in seconds: how long a hand-over may wait for the running batch.
    read_committed : bool
        Whether the readers skip aborted transactions and wait for open ones.
    start : StartPolicy
        Where partitions start.
    pattern : str or None
        A regular expression.  The query subscribes to the topics whose whole name matches it.
    partitions : tuple of TopicPartition
        The option ``assign``: the partitions to read without being a member.  Empty for a member.
    commits : bool
        Whether the query commits to a group.  False with ``assign`` and without a group.
    made_up : bool
        Whether :meth:`for_query` still has to complete the group's name.
    session_timeout_s : float
        How long the group keeps the place of a dead member, in seconds.  Under KIP-848 the broker decides, and this
        is its default.
    """

    properties: Mapping[str, str] = field(repr=False)
    group_id: str
    topics: tuple[str, ...]
    commit_mode: CommitMode
    drain_timeout_s: float
    read_committed: bool
    start: StartPolicy
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    commits: bool = True
    made_up: bool = False
    session_timeout_s: float = int(default_of("session.timeout.ms")) / 1000

    @property
    def topics_refresh_s(self) -> float:
        """The pause between two checks of the matching topics and their partitions, in seconds."""
        refresh_ms = int(value_of("topic.metadata.refresh.interval.ms", self.properties))
        if "metadata.max.age.ms" in self.properties:
            # Users of Spark's own source set this property, some of them to 1 ms.
            refresh_ms = min(refresh_ms, max(1000, int(value_of("metadata.max.age.ms", self.properties))))
        return refresh_ms / 1000

    @property
    def leaves_with_a_request(self) -> bool:
        """Whether leaving needs a request: under the classic protocol, for members that are not static."""
        static = "group.instance.id" in self.properties
        return not self.partitions and not static and value_of("group.protocol", self.properties) == "classic"

    @property
    def under_kip_848(self) -> bool:
        """Whether the query is a member under KIP-848's protocol."""
        return not self.partitions and value_of("group.protocol", self.properties) == "consumer"

    @property
    def asks_for(self) -> str:
        """The option that names the topics."""
        return "assign" if self.partitions else "subscribe"

    def for_query(self, query_id: str) -> GroupSettings:
        """Return the settings with the final name of the group, the same for the whole life of a query."""
        if not self.made_up:
            return self
        group_id = f"{self.group_id}-{query_id}" if self.commits else self.group_id
        return replace(self, group_id=group_id, made_up=False, start=replace(self.start, group_id=group_id))

    def partitions_of(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        """Return the partitions to read.

        Parameters
        ----------
        counts : mapping of str to int
            The number of partitions of each topic.

        Raises
        ------
        OptionError
            If a partition of ``assign`` does not exist.
        """
        if not self.partitions:
            return [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
        _check_exist("assign", self.partitions, counts)
        return [*self.partitions]

    def check_starts(self, counts: Mapping[str, int]) -> None:
        """Refuse a start for a partition that does not exist.

        Only for a new query.  Later, the topic may have been deleted, and its start no longer matters.

        Parameters
        ----------
        counts : mapping of str to int
            The number of partitions of each topic.

        Raises
        ------
        OptionError
            If a partition or a topic that the user named does not exist.
        """
        for topic in self.start.topics.keys() - counts.keys():
            raise OptionError("startingOffsets", f"there is no topic {topic!r}.", "Remove it, or correct its name.")
        _check_exist("startingOffsets", self.start.explicit, counts)
        _check_exist("startingOffsetsByTimestamp", self.start.times_ms, counts)


def _check_exist(option: str, named: Iterable[TopicPartition], counts: Mapping[str, int]) -> None:
    for topic, n in named:
        if n >= counts.get(topic, 0):
            has = f"it has {counts[topic]}, counted from 0" if topic in counts else "there is no such topic"
            raise OptionError(
                option,
                f"the topic {topic!r} has no partition {n}: {has}.",
                "Remove it, or add partitions to the topic.",
            )
