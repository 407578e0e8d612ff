"""Finds the leaders of the partitions that a client reads, and follows leaders that name a replica in its rack."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.leaders import Connect, find_brokers, find_leaders
from pyspark_kafka_group.wire.types import Address, ProtocolError

_MAX_LEADERLESS = 10
"""How often a partition may turn out to have no leader, or another, before something of it is read: for some 6 s.
Where nobody is elected in this time librdkafka says so in its own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTimings:
    """When to look for leaders, and to ask them.

    Attributes
    ----------
    pause_s, longest_pause_s : float
        The pause between two looks for a leader, as in librdkafka (``retry.backoff.ms``, ``retry.backoff.max.ms``).  It
        doubles each time.
    follower_s : float
        How long to read from a follower before asking the leader again: ``metadata.max.age.ms``, as in Java's client.
    """

    pause_s: float = 0.1
    longest_pause_s: float = 1.0
    follower_s: float = 300.0


@dataclass(slots=True)
class _PartitionSearch:
    """The search for one leader, during which no fetcher has the partition.  `left` is the broker that has refused."""

    reason: ProtocolError
    due_at: Deadline
    left: Address | None = None


class LeaderSearch:
    """Finds leaders.  Belongs to one thread.

    Parameters
    ----------
    servers
        Where to ask who leads.
    connect
        Makes a connection to a broker.
    timings
        When to look, and to ask.

    Attributes
    ----------
    leaders : dict of TopicPartition to Address
        The known leaders, or the followers that they have named; kept from one task to the next.
    """

    def __init__(self, servers: list[Address], connect: Connect, timings: SearchTimings) -> None:
        self._servers = servers
        self._connect = connect
        self._timings = timings
        self.leaders: dict[TopicPartition, Address] = {}
        self._brokers: Mapping[int, Address] = {}
        # Of the partitions that are read from followers.
        self._ask_leader_again: dict[TopicPartition, Deadline] = {}
        self._searches: dict[TopicPartition, _PartitionSearch] = {}
        # How often the leader was lost or not found since something of the partition was read.
        self._leaderless: dict[TopicPartition, int] = {}

    @property
    def next_at(self) -> Deadline:
        """When the next look is due; never if nothing is searched for."""
        return min((search.due_at for search in self._searches.values()), default=Deadline.after(math.inf))

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Search for the leaders of partitions that are to be read, where they are not known."""
        for tp in partitions:
            until = self._ask_leader_again.get(tp)
            if until is not None and until.passed:
                self.leaders.pop(tp, None)
                del self._ask_leader_again[tp]
            self._leaderless.pop(tp, None)
            if tp not in self.leaders:
                self._searches[tp] = _PartitionSearch(ProtocolError(f"{tp} has no leader"), Deadline.after(0))

    def lose(self, tp: TopicPartition, reason: ProtocolError) -> None:
        """Search for another leader: the present one has refused."""
        left = self.leaders.pop(tp, None)
        if self._ask_leader_again.pop(tp, None) is not None:
            left = None  # a follower that refuses says nothing against the leader
        search = self._searches[tp] = _PartitionSearch(reason, Deadline.after(0), left)
        if self.lost(tp):
            self._put_off(tp, search)
        self._leaderless[tp] = self.lost(tp) + 1

    def lost(self, tp: TopicPartition) -> int:
        """Return how often the leader was lost or not found since something of the partition was read."""
        return self._leaderless.get(tp, 0)

    def note_records(self, tp: TopicPartition) -> None:
        """Note that something of the partition was read."""
        self._leaderless.pop(tp, None)

    def follow(self, tp: TopicPartition, broker_id: int) -> None:
        """Take the broker that the leader has named for the one to read from, for some time.

        Raises
        ------
        OSError, ProtocolError
            No server answers, or there is no such broker.
        """
        if broker_id not in self._brokers:
            self._brokers = find_brokers(self._servers, self._connect)
        address = self._brokers.get(broker_id)
        if address is None or address == self.leaders.get(tp):
            raise ProtocolError(f"{tp} is to be read from broker {broker_id}, which is nowhere else")
        self.leaders[tp] = address
        self._ask_leader_again[tp] = Deadline.after(self._timings.follower_s)

    def follows(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether one of the partitions is read from a follower."""
        return not self._ask_leader_again.keys().isdisjoint(partitions)

    def drop(self, tp: TopicPartition) -> None:
        """Stop the search for a partition that is not read further."""
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

    def look(self) -> list[TopicPartition] | None:
        """Look for the leaders that are due, and return the partitions whose leader was found; None if none was due.

        Raises
        ------
        OSError, ProtocolError
            No server answers, a partition does not exist, or it has been without a leader for too long.
        """
        due = [tp for tp, search in self._searches.items() if search.due_at.passed]
        if not due:
            return None
        # Another server first each time: one may not have heard of the new leader yet.
        first = max(map(self.lost, due)) % len(self._servers)
        found = find_leaders(due, self._servers[first:] + self._servers[:first], self._connect)
        if unknown := [tp for tp in due if tp not in found]:
            raise ProtocolError(f"{unknown[0]} does not exist")
        for tp in due:
            leader, search = found[tp], self._searches[tp]
            if self.lost(tp) > _MAX_LEADERLESS:
                raise search.reason
            if leader is None or leader == search.left:
                search.left = None  # next time it is believed: it may lead again
                self._put_off(tp, search)
                self._leaderless[tp] = self.lost(tp) + 1
                continue
            self.leaders[tp] = leader
            del self._searches[tp]
        return [tp for tp in due if tp in self.leaders]

    def _put_off(self, tp: TopicPartition, search: _PartitionSearch) -> None:
        pause_s = self._timings.pause_s * 2 ** self.lost(tp)
        search.due_at = Deadline.after(min(pause_s, self._timings.longest_pause_s))


HIDDEN_S = 300.0
"""How long the rack is kept from leaders after reading from a follower has failed.  A leader goes on naming a follower
that answers the leader and not us, or that has just stalled; asking it without a rack is the way not to be sent there
again.  As long as a follower is read from without asking the leader (``metadata.max.age.ms``)."""


class Rack:
    """The rack of one client.  Its fetching threads read it; the thread that reads hides it.

    Parameters
    ----------
    name : str or None
        ``client.rack``; None if the user named none.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._hidden_until = Deadline.after(0)

    @property
    def name(self) -> str | None:
        """The rack that requests name; None if they name none."""
        return None if self.hidden else self._name

    @property
    def hidden(self) -> bool:
        """Whether requests leave it out."""
        return not self._hidden_until.passed

    def hide(self) -> None:
        """Keep it from leaders for some time."""
        self._hidden_until = Deadline.after(HIDDEN_S)
