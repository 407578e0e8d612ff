"""A consumer of another program in the same group.  It processes records and commits offsets without our metadata.

Its commits count as resets (docs/guarantees.md).  So the world uses it only with policies under which a query continues
after a reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_group.coordinator.assignment_stability import Share
from pyspark_kafka_group.offsets.types import TopicPartition
from tests.simulation.cluster import Callback, Client, Stored

if TYPE_CHECKING:
    from tests.simulation.world import World

QUERY = -1
"""Replaces the number of a query."""


class Foreigner:
    """A plain consumer.  It processes and commits in one step, and therefore repeats nothing on its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = Client(QUERY, frozenset("abc"[: len(world.config.topics)]), client_id="another-program")

    @property
    def is_member(self) -> bool:
        return self._world.group.knows(self._client)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that it has, or will have: it may not know yet, or others may have to release them."""
        share = (self._world.group.shown() or {}).get(self._client.member, Share(()))
        return frozenset({*self._client.owned, *share.assignment, *(share.target or ())})

    def act(self, arg: int) -> bool:
        """Join if it has left.  Otherwise poll, process and commit, and then leave if ``arg & 8``."""
        if not self.is_member:
            self._client = Client(QUERY, self._client.topics, client_id=self._client.client_id)
            self._world.group.join(self._client)
            return True
        self.poll()
        for tp in sorted(self._client.owned):
            self._process(tp, arg & 3)
        if arg & 8:
            self.leave()
        return True

    def poll(self) -> bool:
        """Poll the group once, and release revoked partitions at once."""
        due = self._world.group.poll(self._client)
        if not isinstance(due, Callback):
            return due
        if due.kind == "revoke":
            self._world.group.acknowledged(self._client)
        elif due.kind == "lost":
            self._client.owned = set()
        return True

    def leave(self) -> None:
        self._world.group.remove(self._client)

    def _process(self, tp: TopicPartition, most: int) -> None:
        """Process and commit up to ``most`` records from the committed offset on; with 0, commit the same offset."""
        world, log = self._world, self._world.logs.get(tp)
        stored = world.store.committed.get(tp)
        usable = log is not None and log.leader and world.store.stable(tp)
        if not usable or log is None or stored is None or not log.start <= stored.offset <= log.end:
            return
        if not world.group.accepts(self._client.member, self._client.generation):
            return
        undecided = [t for t in world.logs if t.topic == tp.topic and t not in world.store.committed]
        if world.config.latest and undecided:
            return  # it would overwrite our metadata, which shows with which partitions the group started
        until = min(log.end, stored.offset + most)
        world.judge_foreign(tp, stored.offset, until)
        world.store.land({tp: Stored(until, None)})
