"""A model of the Kafka cluster: topics, logs, committed offsets, and the group coordinator of both protocols.

The model has no clocks: session timeouts, heartbeats and the ends of transactions are actions of a schedule.
:mod:`tests.simulation.query` feeds the state machine, and :mod:`tests.simulation.world` judges the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_kafka_group.coordinator.assignment_stability import Share
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.notes import ResetNote
from pyspark_kafka_group.offsets.start_inputs import GroupOffset, PartitionInfo
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition

Partitions = tuple[TopicPartition, ...]


Record = tuple[str, int, int]
"""A record: the id of its topic, the leader epoch under which it was written, and its offset."""


@dataclass(slots=True)
class Log:
    """One partition: a reader gets ``[start, end)``.  Records from ``end`` on are in open transactions.

    ``epochs`` contains each leader epoch and its first offset.  Without a ``leader``, no broker answers.
    From ``replaced_from`` on, a log that was restored from an older copy has other records than before.
    """

    end: int
    high: int
    topic_id: str = "a1"
    start: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    leader: bool = True
    replaced_from: int | None = None

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.epochs[-1][0])

    def truncate(self, offset: int) -> None:
        """Elect a leader that lacks the records from ``offset`` on."""
        self.high = min(self.high, offset)
        self.end = min(self.end, offset)
        self.start = min(self.start, offset)
        kept = [(epoch, start) for epoch, start in self.epochs if start < offset or epoch == 0]
        self.epochs = [*kept, (self.epochs[-1][0] + 1, offset)]

    def restore(self) -> None:
        """Restore the log from a copy that is older than the newest leader epoch."""
        _, begin = self.epochs.pop()
        self.high = min(self.high, begin)
        self.end = min(self.end, begin)
        self.start = min(self.start, begin)
        self.replaced_from = begin

    def epoch_end(self, epoch: int | None) -> Offset | None:
        """Answer OffsetForLeaderEpoch: return the end of the highest epoch that is not above ``epoch``."""
        if epoch is None or epoch > self.leader_epoch:
            return None
        return Offset(min((start for later, start in self.epochs if later > epoch), default=self.high))

    def is_behind(self, leader_epoch: int | None) -> bool:
        """Return whether a leader epoch is newer than this log, because the log was restored from an older copy."""
        return leader_epoch is not None and leader_epoch > self.leader_epoch

    def record(self, offset: int) -> Record:
        epoch = max(epoch for epoch, start in self.epochs if start <= offset)
        replaced = self.replaced_from is not None and offset >= self.replaced_from
        return self.topic_id + "'" * replaced, epoch, offset

    def has(self, offset: int, topic_id: str | None, leader_epoch: int | None) -> bool:
        """Return whether an offset with this topic id and leader epoch belongs to this log."""
        if differ(topic_id, self.topic_id) or self.is_behind(leader_epoch):
            return False
        end = self.epoch_end(leader_epoch)
        return offset <= (self.high if end is None else end)


class Stored(NamedTuple):
    """One committed offset."""

    offset: int
    note: CommitNote | None
    leader_epoch: LeaderEpoch | None = None
    reset: ResetNote | None = None


class Beginning(NamedTuple):
    """The start of a topic, as its committed offsets show it; the same for all its partitions."""

    topic_id: str
    partitions: int
    started: bool
    initial_count: int | None


@dataclass(slots=True, eq=False)
class Transaction:
    """Offsets that the broker has accepted, but has neither committed nor aborted yet.

    ``abandoned``: its process has died, or no longer waits for it.  The transaction coordinator then decides.
    """

    query: int
    offsets: dict[TopicPartition, Stored]
    abandoned: bool = False


def _initial_count(counts: list[int], partitions: list[int]) -> int | None:
    if counts:
        return 0 if 0 in counts else max(counts)
    return 1 + max(partitions) if partitions else None


@dataclass(slots=True)
class OffsetStore:
    """The group's committed offsets."""

    logs: dict[TopicPartition, Log]
    on_landed: Callable[[TopicPartition, Stored, Stored | None], None]
    committed: dict[TopicPartition, Stored] = field(default_factory=dict)
    open: list[Transaction] = field(default_factory=list)

    def land(self, offsets: dict[TopicPartition, Stored]) -> None:
        for tp, stored in offsets.items():
            if tp in self.logs:  # a deleted topic has no committed offsets
                self.on_landed(tp, stored, self.committed.get(tp))
                self.committed[tp] = stored

    def end_transaction(self, transaction: Transaction, *, commit: bool) -> None:
        self.open.remove(transaction)
        if commit:
            self.land(transaction.offsets)

    def open_of(self, query: int) -> Transaction | None:
        return next((t for t in self.open if t.query == query), None)

    def stable(self, tp: TopicPartition) -> bool:
        """Return whether OffsetFetch with require_stable answers for ``tp``."""
        return not any(tp in t.offsets for t in self.open)

    def beginning(self, tp: TopicPartition) -> Beginning:
        """Return the start of the topic of ``tp``, as its committed offsets show it."""
        log = self.logs[tp]
        of_topic = [(other, stored) for other, stored in self.committed.items() if other.topic == tp.topic]
        notes = [s.note for _, s in of_topic if s.note is None or not differ(s.note.topic_id, log.topic_id)]
        counts = [note.initial_partition_count for note in notes if note is not None]
        return Beginning(
            topic_id=log.topic_id,
            partitions=sum(1 for other in self.logs if other.topic == tp.topic),
            started=bool(notes),
            initial_count=_initial_count(counts, [other.partition for other, _ in of_topic]),
        )

    def offsets(self) -> dict[TopicPartition, GroupOffset]:
        """Return all committed offsets, as a query reads them at its start, when its own transaction has ended."""
        found = {tp: s for tp, s in self.committed.items() if tp in self.logs}
        return {
            tp: GroupOffset(Offset(s.offset), s.note, self.logs[tp].topic_id, s.leader_epoch) for tp, s in found.items()
        }

    def partition_info(
        self, tp: TopicPartition, known: Collection[LeaderEpoch], beginning: Beginning | None = None
    ) -> PartitionInfo:
        """Return the info of ``tp``, with the ends of the leader epochs that the query knows."""
        log = self.logs[tp]
        if beginning is None or beginning.topic_id != log.topic_id:
            beginning = self.beginning(tp)
        found = self.committed.get(tp)
        epochs = {*known} if found is None or found.leader_epoch is None else {*known, found.leader_epoch}
        ends = {epoch: log.epoch_end(epoch) for epoch in epochs}
        return PartitionInfo(
            committed=None if found is None else Offset(found.offset),
            note=None if found is None else found.note,
            reset=None if found is None else found.reset,
            committed_leader_epoch=None if found is None else found.leader_epoch,
            log_start=Offset(log.start),
            log_end=Offset(log.end),
            high_watermark=Offset(log.high),
            topic_partitions=beginning.partitions,
            topic_started=beginning.started,
            initial_partition_count=beginning.initial_count,
            topic_id=log.topic_id,
            leader_epoch=log.leader_epoch,
            epoch_ends={epoch: end for epoch, end in ends.items() if end is not None},
        )


@dataclass(slots=True)
class Client:
    """The state of librdkafka in one process: its member id, its generation or epoch, and its partitions.

    ``run``: 1 in the second run of a query that already runs.

    ``released``: a static member has announced the end of its process to the group.  ``refused``: the group keeps the
    place for a former process, so this one must join again.
    """

    query: int
    topics: frozenset[str]
    static: bool = False
    released: bool = False
    refused: bool = False
    client_id: str = ""
    run: int = 0
    member: int = 0
    generation: int = 0
    owned: set[TopicPartition] = field(default_factory=set)
    acknowledging: Partitions = ()  # being revoked: the callback has not returned yet
    next_assigned: Partitions = ()  # the group assigns these after the callback


@dataclass(slots=True)
class Callback:
    """The next callback of librdkafka; ``kind`` is assign, revoke or lost."""

    kind: str
    partitions: Partitions


class Group(ABC):
    """The common part of both protocols: the members, the holder of each partition, and the assignor.

    ``holder`` is the member that has received a partition and has not released it.  ``moves`` counts how often a
    partition moved from one query to another.
    """

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self.partitions = partitions
        self.members: dict[int, Client] = {}
        self.holder: dict[TopicPartition, int] = {}
        self.last_member: dict[TopicPartition, int] = {}
        self.last_query: dict[TopicPartition, tuple[int, int]] = {}
        self.moves: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
        self.salt = 0
        self.last_id = 0

    # -- changes of the group

    @abstractmethod
    def join(self, client: Client) -> None:
        """Make a process a member, or give it the place of its static predecessor."""

    @abstractmethod
    def poll(self, client: Client) -> Callback | bool:
        """Serve ``client`` once.  Return the callback to run, or whether anything happened in the background."""

    @abstractmethod
    def changed(self) -> None:
        """React to a change of members or partitions."""

    @abstractmethod
    def acknowledged(self, client: Client) -> Partitions:
        """Release the partitions of a revoke callback that has returned.  Return those of the next assign callback."""

    def remove(self, client: Client) -> None:
        """Remove a member that leaves or whose session ends, and free its partitions."""
        if self.members.get(client.member) is client:
            del self.members[client.member]
            for tp in [tp for tp, member in self.holder.items() if member == client.member]:
                del self.holder[tp]
            self.changed()

    def reshuffle(self, salt: int) -> None:
        self.salt += 1 + salt
        self.changed()

    @abstractmethod
    def accepts(self, member: int, generation: int) -> bool:
        """Return whether the broker accepts a commit of this member and generation now."""

    @abstractmethod
    def described(self) -> dict[int, set[TopicPartition]] | None:
        """Return each member's partitions, as DescribeConsumerGroups shows them; None between two generations."""

    def shown(self) -> dict[int, Share] | None:
        """Return the share of each member, as the group describes it to a run with availableNow."""
        assigned = self.described()
        return None if assigned is None else {m: Share(tps, self.target_of(m)) for m, tps in assigned.items()}

    def target_of(self, member: int) -> set[TopicPartition] | None:
        """Return the target assignment of a member, if the protocol reports one."""
        return None

    def held_by_others(self, client: Client) -> frozenset[TopicPartition] | None:
        """Return the partitions that the group has given to other queries; None while that is unclear."""
        shown = self.described()
        if shown is None or not self.knows(client):
            return None
        return frozenset(tp for m, tps in shown.items() if self.members[m].query != client.query for tp in tps)

    def may_go_to_others(self, client: Client, tp: TopicPartition) -> bool:
        """Return whether another query subscribes to a partition, so that it has it, or will get it."""
        return any(tp.topic in other.topics and other.query != client.query for other in self.members.values())

    def take_over(self, client: Client) -> bool:
        """Give a static member's place to its next process.  Return whether there was a place."""
        old = next((c for c in self.members.values() if c.query == client.query), None)
        if old is None:
            return False
        client.member = self._new_id()
        self.members = {client.member if m == old.member else m: c for m, c in self.members.items()}
        self.members[client.member] = client
        for owners in (self.holder, self.last_member):
            owners.update({tp: client.member for tp, member in owners.items() if member == old.member})
        return True

    def knows(self, client: Client) -> bool:
        return self.members.get(client.member) is client

    # -- helpers

    def _new_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def _target(self) -> dict[TopicPartition, int]:
        target: dict[TopicPartition, int] = {}
        eligible: dict[str, list[int]] = {}
        for index, tp in enumerate(self.partitions):
            members = eligible.get(tp.topic)
            if members is None:
                members = eligible[tp.topic] = [m for m, c in self.members.items() if tp.topic in c.topics]
            if members:
                target[tp] = members[(index + self.salt) % len(members)]
        return target

    def _give(self, client: Client, partitions: Partitions) -> None:
        for tp in partitions:
            self.holder[tp] = self.last_member[tp] = client.member
            query = client.query, client.run
            if self.last_query.get(tp, query) != query:
                self.moves[tp] += 1
            self.last_query[tp] = query
        client.owned.update(partitions)

    def _take(self, client: Client, partitions: Partitions) -> None:
        for tp in partitions:
            if self.holder.get(tp) == client.member:
                del self.holder[tp]
        client.owned.difference_update(partitions)


class ConsumerGroup(Group):
    """KIP-848, without a barrier: a partition moves only after its holder has acknowledged the revocation."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        super().__init__(partitions)
        self.target: dict[TopicPartition, int] = {}

    def join(self, client: Client) -> None:
        former = next((c for c in self.members.values() if client.static and c.query == client.query), None)
        client.refused = former is not None and not former.released  # UNRELEASED_INSTANCE_ID until its session ends
        if client.refused:
            return
        if former is not None:
            self.take_over(client)
            client.generation = self._new_id()
            self.changed()
            return
        client.member = client.member or self._new_id()  # Deliberate: a fenced member rejoins with the same id.
        client.generation = self._new_id()
        client.owned = set()
        self.members[client.member] = client
        self.changed()

    def changed(self) -> None:
        self.target = self._target()

    def poll(self, client: Client) -> Callback | bool:
        if client.acknowledging:
            return False
        if not self.knows(client):
            return Callback("lost", tuple(sorted(client.owned)))
        member = client.member
        revoked = tuple(sorted(tp for tp in client.owned if self.target.get(tp) != member))
        if revoked:
            client.acknowledging = revoked
            return Callback("revoke", revoked)
        left_behind = [tp for tp, m in self.holder.items() if m == member and tp not in client.owned]
        moved = [tp for tp in left_behind if self.target.get(tp) != member]
        if moved:  # its former process held them, and cannot acknowledge
            for tp in moved:
                del self.holder[tp]
            return True
        given = tuple(
            tp
            for tp in self.partitions
            if self.target.get(tp) == member and self.holder.get(tp, member) == member and tp not in client.owned
        )
        if given:
            self._give(client, given)
            client.generation = self._new_id()
            return Callback("assign", given)
        return False

    def acknowledged(self, client: Client) -> Partitions:
        self._take(client, client.acknowledging)
        client.acknowledging = ()
        if self.knows(client):
            client.generation = self._new_id()
        return ()

    def accepts(self, member: int, generation: int) -> bool:
        client = self.members.get(member)
        return client is not None and client.generation == generation

    def described(self) -> dict[int, set[TopicPartition]]:
        shown: dict[int, set[TopicPartition]] = {member: set() for member in self.members}
        for tp, member in self.holder.items():
            if tp not in self.members[member].acknowledging:
                shown[member].add(tp)
        return shown

    def target_of(self, member: int) -> set[TopicPartition]:
        return {tp for tp, m in self.target.items() if m == member}


class ClassicGroup(Group):
    """Classic cooperative protocol: a rebalance is a barrier.  The next round assigns the partitions that move."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        super().__init__(partitions)
        self.generation = 0
        self.preparing = False
        self.joined: set[int] = set()
        self.assigned: dict[int, set[TopicPartition]] = {}
        """The partitions that the last round has assigned to each member, as the coordinator describes them."""
        self.waiting: set[int] = set()
        """The members that have not yet received their assignment of the last round."""

    def join(self, client: Client) -> None:
        if client.static and self.take_over(client):
            return
        client.member = self._new_id()
        client.owned = set()
        self.members[client.member] = client
        self.changed()
        self.joined.add(client.member)
        self._complete_if_all_joined()

    def changed(self) -> None:
        if not self.preparing:
            self.preparing = True
            self.joined = set()
        self.joined &= self.members.keys()
        self.waiting &= self.members.keys()
        self._complete_if_all_joined()

    def poll(self, client: Client) -> Callback | bool:
        if client.acknowledging:
            return False
        member = client.member
        if not self.knows(client):
            return Callback("lost", tuple(sorted(client.owned)))
        if member in self.waiting:
            self.waiting.remove(member)
            client.generation, assigned = self.generation, self.assigned[member]
            revoked = tuple(sorted(client.owned - assigned))
            added = tuple(sorted(assigned - client.owned))
            if revoked:
                client.acknowledging, client.next_assigned = revoked, added
                return Callback("revoke", revoked)
            self._give(client, added)
            return Callback("assign", added) if added else True
        if self.preparing and member not in self.joined:
            self.joined.add(member)
            self._complete_if_all_joined()
            return True
        return False

    def acknowledged(self, client: Client) -> Partitions:
        self._take(client, client.acknowledging)
        client.acknowledging = ()
        added, client.next_assigned = client.next_assigned, ()
        if not self.knows(client):
            self.join(client)  # evicted inside the callback: librdkafka does not report it (its pull request 5604)
            return ()
        self._give(client, added)
        self.changed()  # it rejoins, so that the next round can assign the released partitions
        return added

    def take_over(self, client: Client) -> bool:
        held = {c.member: set(c.owned) for c in self.members.values() if c.query == client.query}
        if not super().take_over(client):
            return False
        (old, owned), *_ = held.items()
        assigned = self.assigned[client.member] = self.assigned.pop(old, set())
        self.waiting.discard(old)
        if self.preparing:
            self.joined.discard(old)
            self.joined.add(client.member)
            self._complete_if_all_joined()
        else:
            self.waiting.add(client.member)
            if owned - assigned:
                self.changed()  # the old process had yet to request the round that moves these partitions
        return True

    def accepts(self, member: int, generation: int) -> bool:
        return member in self.members and generation == self.generation

    def described(self) -> dict[int, set[TopicPartition]] | None:
        if self.preparing:
            return None
        return {m: self.assigned[m] for m in self.members}

    def _complete_if_all_joined(self) -> None:
        if not self.members or len(self.joined) < len(self.members):
            return
        self.preparing = False
        self.generation += 1
        claimed = {tp: m for m, client in self.members.items() for tp in client.owned}
        self.assigned = {m: set() for m in self.members}
        for tp, member in self._target().items():
            if claimed.get(tp, member) == member:
                self.assigned[member].add(tp)
        self.waiting = {*self.members}


class NoGroup(Group):
    """A group without members: each query has its own partitions, and the broker accepts every commit."""

    def join(self, client: Client) -> None:
        client.member = client.member or self._new_id()
        client.generation = 1
        self.members = {client.member: client}

    def changed(self) -> None:
        """Do nothing: no partition moves."""

    def poll(self, client: Client) -> Callback | bool:
        given = tuple(tp for tp in self.partitions if tp.topic in client.topics and tp not in client.owned)
        self._give(client, given)
        return Callback("assign", given) if given else False

    def acknowledged(self, client: Client) -> Partitions:
        raise AssertionError("nothing is revoked")

    def accepts(self, member: int, generation: int) -> bool:
        return True

    def described(self) -> dict[int, set[TopicPartition]]:
        return {}
