"""Who leads the partitions that are read, and the search for those whose leader is not known, or not any more."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.leaders import Connect, find_leaders
from pyspark_kafka_group.wire.types import Address, ProtocolError

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
"""Between two looks for a leader, as in librdkafka (``retry.backoff.ms``, ``retry.backoff.max.ms``).  They double."""

_MAX_LEADERLESS = 10
"""How often a partition may turn out to have no leader, or another, before something of it is read: for some 6 s.
Where nobody is elected in this time librdkafka says so in its own words."""


@dataclass(slots=True)
class _Search:
    """For the leader of a partition that nobody fetches meanwhile; `left` is who has just refused."""

    reason: ProtocolError
    left: Address | None = None
    due_at: float = 0.0


class LeaderSearch:
    """Finds leaders.  Belongs to one thread.

    Parameters
    ----------
    servers
        Where to ask who leads.
    connect
        Makes a connection to a broker.

    Attributes
    ----------
    leaders : dict of TopicPartition to Address
        Those that are known; kept from one reading to the next.
    """

    def __init__(self, servers: list[Address], connect: Connect) -> None:
        self._servers = servers
        self._connect = connect
        self.leaders: dict[TopicPartition, Address] = {}
        self._searches: dict[TopicPartition, _Search] = {}
        # How often the leader was lost or not found since something of the partition was read.
        self._leaderless: dict[TopicPartition, int] = {}

    @property
    def next_at(self) -> float:
        """When the next look is due, by the monotonic clock; never if nothing is searched for."""
        return min((search.due_at for search in self._searches.values()), default=math.inf)

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Search for the leaders of partitions that are to be read, where they are not known."""
        for tp in partitions:
            self._leaderless.pop(tp, None)
            if tp not in self.leaders:
                self._searches[tp] = _Search(ProtocolError(f"{tp} has no leader"))

    def lose(self, tp: TopicPartition, reason: ProtocolError) -> None:
        """Search for another leader: the one that is known has refused."""
        search = self._searches[tp] = _Search(reason, self.leaders.pop(tp, None))
        if self.lost(tp):
            self._put_off(tp, search)
        self._leaderless[tp] = self.lost(tp) + 1

    def lost(self, tp: TopicPartition) -> int:
        """How often the leader was lost or not found since something of the partition was read."""
        return self._leaderless.get(tp, 0)

    def note_records(self, tp: TopicPartition) -> None:
        """Note that something of the partition was read."""
        self._leaderless.pop(tp, None)

    def drop(self, tp: TopicPartition) -> None:
        """Search no more: the partition is not read any more."""
        self._searches.pop(tp, None)
        self._leaderless.pop(tp, None)

    def drop_all(self) -> None:
        """Search for none any more; who leads is still known."""
        self._searches.clear()
        self._leaderless.clear()

    def look(self) -> list[TopicPartition] | None:
        """Look for the leaders that are due, and return the partitions whose leader was found; None if none was due.

        Raises
        ------
        OSError, ProtocolError
            No server answers, a partition does not exist, or it has been without a leader for too long.
        """
        now = time.monotonic()
        due = [tp for tp, search in self._searches.items() if search.due_at <= now]
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

    def _put_off(self, tp: TopicPartition, search: _Search) -> None:
        search.due_at = time.monotonic() + min(_PAUSE_S * 2 ** self.lost(tp), _LONGEST_PAUSE_S)
