"""Who leads which partition: what brokers have named last, and when to ask them again.  Sends no requests."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import error_code
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata
from pyspark_kafka_group.wire.types import Address, TopicPartition

NO_LEADER, NO_PARTITION = error_code("LEADER_NOT_AVAILABLE"), error_code("UNKNOWN_TOPIC_OR_PARTITION")

_MOST_DOUBLED = 20


class LeaderTimings(NamedTuple):
    """When to ask for leaders again.

    Attributes
    ----------
    pause_s, longest_pause_s : float
        The pause before the next question about a partition, in seconds, which doubles each time.  As in librdkafka
        (``retry.backoff.ms``, ``retry.backoff.max.ms``).
    age_s : float
        How long :meth:`Leaders.want` believes an answer, in seconds.
    """

    pause_s: float = 0.1
    longest_pause_s: float = 1.0
    age_s: float = math.inf


_DEFAULT = LeaderTimings()


class Replica(NamedTuple):
    """The broker to ask about a partition.

    Attributes
    ----------
    address : Address
        Its address.
    until : Deadline
        How long to believe this.
    epoch : int
        The leader epoch; -1 if unknown.
    leads : bool
        Whether it is the leader.  Otherwise it is a follower that the leader has named (KIP-392).
    """

    address: Address
    until: Deadline
    epoch: int = -1
    leads: bool = True


@dataclass(slots=True)
class _Doubt:
    """A partition whose leader is unknown: when to ask, and the broker that was the leader until it refused."""

    due_at: Deadline
    left: Address | None = None


class Leaders:
    """The leaders of partitions, as brokers have named them.  Belongs to one thread.

    The owner asks brokers for the metadata of the partitions that are :meth:`due`, and passes the answer to
    :meth:`learn`, or calls :meth:`put_off` if there is none.  After an error of a leader, it calls :meth:`doubt`.  The
    owner decides how long this may last.

    Parameters
    ----------
    timings : LeaderTimings
        When to ask again.

    Attributes
    ----------
    timings : LeaderTimings
        The parameter.
    known : dict of TopicPartition to Replica
        The leaders that are not in doubt, or the followers that they have named.
    errors : dict of TopicPartition to int
        Kafka's error code for partitions for which the last answer has named no leader.
    """

    def __init__(self, timings: LeaderTimings = _DEFAULT) -> None:
        self.timings = timings
        self.known: dict[TopicPartition, Replica] = {}
        self.errors: dict[TopicPartition, int] = {}
        self._doubts: dict[TopicPartition, _Doubt] = {}
        # How often the leader was doubted or not found since the partition was confirmed.
        self._failures: dict[TopicPartition, int] = {}

    @property
    def next_at(self) -> Deadline:
        """When the next partition is due; never if no leader is in doubt."""
        return min((doubt.due_at for doubt in self._doubts.values()), default=Deadline.after(math.inf))

    def due(self) -> list[TopicPartition]:
        """Return the partitions to ask about now."""
        return [tp for tp, doubt in self._doubts.items() if doubt.due_at.passed]

    def due_at(self, tp: TopicPartition) -> Deadline:
        """Return when to ask about a partition that is in doubt."""
        return self._doubts[tp].due_at

    def failures(self, tp: TopicPartition) -> int:
        """Return how often the leader was doubted or not found since the partition was confirmed."""
        return self._failures.get(tp, 0)

    def want(self, partitions: Iterable[TopicPartition]) -> None:
        """Let partitions be due now if their leaders are unknown, or if the answer is too old."""
        for tp in partitions:
            self.confirm(tp)
            if tp in self.known and self.known[tp].until.passed:
                del self.known[tp]
            if tp not in self.known:
                self._doubts[tp] = _Doubt(Deadline.after(0))

    def doubt(self, partitions: Iterable[TopicPartition], *, moved: bool = False) -> None:
        """Forget leaders: they have refused, or do not answer.  Those that are already in doubt stay as they are.

        Parameters
        ----------
        partitions : iterable of TopicPartition
            The partitions.
        moved : bool
            Whether another broker probably leads.  Then the first question needs no pause, and an answer that still
            names the same broker counts only from the second time.
        """
        for tp in partitions:
            if tp in self._doubts:
                continue
            before = self.known.pop(tp, None)
            left = before.address if moved and before is not None and before.leads else None
            self._doubts[tp] = _Doubt(Deadline.after(0), left)
            if moved and not self.failures(tp):
                self._failures[tp] = 1
            else:
                self.put_off([tp])

    def put_off(self, partitions: Iterable[TopicPartition]) -> None:
        """Let partitions that are in doubt be due after a pause, because there was no answer about them."""
        for tp in partitions:
            self.errors.pop(tp, None)
            pause_s = self.timings.pause_s * 2 ** min(self.failures(tp), _MOST_DOUBLED)
            self._doubts[tp].due_at = Deadline.after(min(pause_s, self.timings.longest_pause_s))
            self._failures[tp] = self.failures(tp) + 1

    def learn(self, metadata: ClusterMetadata, asked: Collection[TopicPartition] | None = None) -> None:
        """Take an answer about some partitions.  Those without a leader stay in doubt, and are due after a pause.

        Parameters
        ----------
        metadata : ClusterMetadata
            The answer.
        asked : collection of TopicPartition, optional
            The partitions.  By default, all those in the answer that are not in doubt.
        """
        named = {
            TopicPartition(topic.name, found.number): found for topic in metadata.topics for found in topic.partitions
        }
        refused = {topic.name: topic.error for topic in metadata.topics if topic.error}
        until = Deadline.after(self.timings.age_s)
        for tp in named.keys() - self._doubts.keys() if asked is None else asked:
            found, doubt = named.get(tp), self._doubts.get(tp)
            address = None if found is None else metadata.brokers.get(found.leader)
            if found is not None and address is not None and (doubt is None or doubt.left != address):
                self.known[tp] = Replica(address, until, found.leader_epoch)
                self._doubts.pop(tp, None)
                self.errors.pop(tp, None)
                continue
            self.known.pop(tp, None)
            if doubt is not None:
                doubt.left = None  # it may be the leader again
                self.put_off([tp])
            if address is None:
                self.errors[tp] = refused.get(tp.topic) or (NO_PARTITION if found is None else NO_LEADER)

    def follow(self, tp: TopicPartition, address: Address) -> None:
        """Use the follower that the leader has named, until this is too old."""
        self.known[tp] = Replica(address, Deadline.after(self.timings.age_s), leads=False)
        self._doubts.pop(tp, None)

    def confirm(self, tp: TopicPartition) -> None:
        """Forget the failures of a partition, because its leader has returned or written records."""
        self._failures.pop(tp, None)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask no longer about partitions."""
        for tp in partitions:
            self._doubts.pop(tp, None)
            self.confirm(tp)
