"""Finds the brokers to read from: the leaders, or the followers that they name in the client's rack."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import error_code
from pyspark_kafka_group.wire.leaders import Connect, find_brokers, find_leaders
from pyspark_kafka_group.wire.types import Address, FetchError, ProtocolError


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTimings:
    """The timings of the search for leaders.

    Attributes
    ----------
    pause_s, longest_pause_s : float
        The pause between two attempts to find a leader, which doubles each time.  As in librdkafka
        (``retry.backoff.ms``, ``retry.backoff.max.ms``).
    follower_s : float
        How long to read from a follower before asking the leader again.  As in Java's client
        (``metadata.max.age.ms``).
    """

    pause_s: float = 0.1
    longest_pause_s: float = 1.0
    follower_s: float = 300.0


class Found(NamedTuple):
    """The partitions whose leader was found, and the errors of others."""

    partitions: list[TopicPartition]
    missing: list[FetchError]


_NO_LEADER, _NO_PARTITION = error_code("LEADER_NOT_AVAILABLE"), error_code("UNKNOWN_TOPIC_OR_PARTITION")
_MOST_DOUBLED = 20


@dataclass(slots=True)
class _PartitionSearch:
    """The search for one leader.  No fetcher has the partition meanwhile.  `left` is the broker that has refused."""

    due_at: Deadline
    left: Address | None = None


class LeaderSearch:
    """Finds leaders.  Belongs to one thread.

    Parameters
    ----------
    servers
        The bootstrap servers.
    connect
        Opens a connection to a broker.
    timings
        The timings of the search.

    Attributes
    ----------
    leaders : dict of TopicPartition to Address
        The known leaders, or the followers that they have named.  Kept from one task to the next.
    """

    def __init__(self, servers: list[Address], connect: Connect, timings: SearchTimings) -> None:
        self._servers = servers
        self._connect = connect
        self._timings = timings
        self.leaders: dict[TopicPartition, Address] = {}
        self._brokers: Mapping[int, Address] = {}
        # Only for partitions that are read from followers.
        self._ask_leader_again: dict[TopicPartition, Deadline] = {}
        self._searches: dict[TopicPartition, _PartitionSearch] = {}
        # How often the leader was lost or not found since the last records of the partition.
        self._leaderless: dict[TopicPartition, int] = {}

    @property
    def next_at(self) -> Deadline:
        """When the next attempt is due; never without a search."""
        return min((search.due_at for search in self._searches.values()), default=Deadline.after(math.inf))

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin to search for the unknown leaders of these partitions."""
        for tp in partitions:
            until = self._ask_leader_again.get(tp)
            if until is not None and until.passed:
                self.leaders.pop(tp, None)
                del self._ask_leader_again[tp]
            self._leaderless.pop(tp, None)
            if tp not in self.leaders:
                self._searches[tp] = _PartitionSearch(Deadline.after(0))

    def lose(self, tp: TopicPartition) -> None:
        """Begin to search for the leader again: the current one has refused, or does not answer."""
        left = self.leaders.pop(tp, None)
        if self._ask_leader_again.pop(tp, None) is not None:
            left = None  # a follower has refused, not the leader
        search = self._searches[tp] = _PartitionSearch(Deadline.after(0), left)
        if self.lost(tp):
            self._put_off(tp, search)
        self._leaderless[tp] = self.lost(tp) + 1

    def lost(self, tp: TopicPartition) -> int:
        """Return how often the leader was lost or not found since the last records of the partition."""
        return self._leaderless.get(tp, 0)

    def note_records(self, tp: TopicPartition) -> None:
        """Note that records of the partition were read."""
        self._leaderless.pop(tp, None)

    def follow(self, tp: TopicPartition, broker_id: int) -> None:
        """Read from the broker that the leader has named, for some time.

        Raises
        ------
        OSError, ProtocolError
            If no server answers, or there is no such broker.
        """
        if broker_id not in self._brokers:
            self._brokers = find_brokers(self._servers, self._connect)
        address = self._brokers.get(broker_id)
        if address is None or address == self.leaders.get(tp):
            raise ProtocolError(f"the leader of {tp} names broker {broker_id}, which is unknown, or the leader itself")
        self.leaders[tp] = address
        self._ask_leader_again[tp] = Deadline.after(self._timings.follower_s)

    def follows(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether one of the partitions is read from a follower."""
        return not self._ask_leader_again.keys().isdisjoint(partitions)

    def drop(self, tp: TopicPartition) -> None:
        """Stop the search for one partition."""
        self._searches.pop(tp, None)
        self._leaderless.pop(tp, None)

    def drop_all(self) -> None:
        """Stop all searches, and keep the known leaders."""
        self._searches.clear()
        self._leaderless.clear()

    def forget_all(self) -> None:
        """Stop all searches, and forget leaders and brokers."""
        self.drop_all()
        self.leaders.clear()
        self._brokers = {}
        self._ask_leader_again.clear()

    def look(self) -> Found | None:
        """Look for the leaders that are due; return None if none was due.

        The pauses between two attempts grow up to a second.  The caller decides when to stop.

        Raises
        ------
        OSError, ProtocolError
            If no server answers, or the brokers refuse a topic.  The searches go on.
        """
        due = [tp for tp, search in self._searches.items() if search.due_at.passed]
        if not due:
            return None
        # Begin with another server each time: one may not know the new leader yet.
        first = max(map(self.lost, due)) % len(self._servers)
        try:
            found = find_leaders(due, self._servers[first:] + self._servers[:first], self._connect)
        except (OSError, ProtocolError):
            for tp in due:
                self._miss(tp)
            raise
        missing: list[FetchError] = []
        for tp in due:
            leader, search = found.get(tp), self._searches[tp]
            if leader is None:
                code = _NO_LEADER if tp in found else _NO_PARTITION
                missing.append(FetchError(f"the leader of {tp}", code))
            if leader is None or leader == search.left:
                search.left = None  # accept it in the next attempt: it may be the leader again
                self._miss(tp)
                continue
            self.leaders[tp] = leader
            del self._searches[tp]
        return Found([tp for tp in due if tp in self.leaders], missing)

    def _miss(self, tp: TopicPartition) -> None:
        self._put_off(tp, self._searches[tp])
        self._leaderless[tp] = self.lost(tp) + 1

    def _put_off(self, tp: TopicPartition, search: _PartitionSearch) -> None:
        pause_s = self._timings.pause_s * 2 ** min(self.lost(tp), _MOST_DOUBLED)
        search.due_at = Deadline.after(min(pause_s, self._timings.longest_pause_s))


HIDDEN_S = 300.0
"""How long requests omit the rack after reading from a follower has failed.  A leader keeps naming a follower that
answers only the leader, or that has just stalled.  Without a rack, the leader names no follower.  The time is that of
reading from a follower without asking the leader again (``metadata.max.age.ms``)."""


class Rack:
    """The rack of one client.  The fetching threads read it.  The reading thread hides it.

    Parameters
    ----------
    name : str or None
        The property ``client.rack``; None if it is not set.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._hidden_until = Deadline.after(0)

    @property
    def name(self) -> str | None:
        """The rack in requests; None if they contain no rack."""
        return None if self.hidden else self._name

    @property
    def hidden(self) -> bool:
        """Whether requests omit the rack."""
        return not self._hidden_until.passed

    def hide(self) -> None:
        """Omit the rack from requests for some time."""
        self._hidden_until = Deadline.after(HIDDEN_S)
