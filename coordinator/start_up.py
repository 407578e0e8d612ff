"""How a query starts: one step after the other, until its group thread can run.

Nothing here changes the group.  If a step fails, the query has not joined.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat

from pyspark_kafka_group.cluster.channel import CONNECT_TIMEOUT_S
from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.cluster.skip_store import SkipStore, read_markers
from pyspark_kafka_group.coordinator import warm_up
from pyspark_kafka_group.coordinator.absent_topics import added_partitions, first_topics, tell_of_deleted
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.group_thread import GroupThread
from pyspark_kafka_group.coordinator.handover import events, inputs, outputs
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import ActiveGroupError, AuthenticationError, BrokerError
from pyspark_kafka_group.offsets.skip_markers import Markers
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# Pause before asking again for the offsets of the group.
_RETRY_S = 0.1


def start_up(
    settings: GroupSettings,
    *,
    start: BatchOffset,
    query_id: str,
    client_id: str,
    event_log: EventLog,
    unfinished: BatchOffset | None = None,
    warms_up: bool = False,
) -> Membership:
    """Connect to the cluster, check that the query can start, and return its membership, which does not run yet.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    start : BatchOffset
        The offset with which Spark starts the query: the end of its last finished batch, or
        :data:`~pyspark_kafka_group.offsets.batch_offset.INITIAL`.
    query_id : str
        The id of the query, for its whole life.
    client_id : str
        The client id of this member, as Kafka's tools show it.
    event_log : EventLog
        Takes the events.
    unfinished : BatchOffset, optional
        The end of the batch of Spark's log that will be replayed.
    warms_up : bool
        Whether to stay out of the group until :meth:`.Membership.join_group`, if this query would take partitions from
        others.

    Raises
    ------
    OutdatedCheckpointError
        If this query has committed batches that its checkpoint does not contain.
    KafkaGroupError
        If the cluster cannot be reached, refuses the credentials, or lacks a topic.
    """
    starting = _StartUp(settings, start, unfinished, query_id=query_id, client_id=client_id, event_log=event_log)
    try:
        return starting.run(warms_up=warms_up)
    except BaseException:
        starting.discard()
        raise


class _StartUp:
    """The steps of one start."""

    def __init__(
        self,
        settings: GroupSettings,
        start: BatchOffset,
        unfinished: BatchOffset | None,
        *,
        query_id: str,
        client_id: str,
        event_log: EventLog,
    ) -> None:
        self._settings = settings
        self._start = start
        self._unfinished = unfinished
        self._is_new = start.query_id is None and unfinished is None
        self._query_id = query_id
        self._client_id = client_id
        self._event_log = event_log
        self._skip_store = partial(SkipStore, settings.properties, group_id=settings.group_id, query_id=query_id)
        self._worker = DaemonExecutor("kafka-group-requests")
        self._offsets: GroupOffsets | None = None
        self._group: GroupThread | None = None

    def run(self, *, warms_up: bool) -> Membership:
        """Take all steps, in this order."""
        offsets = self._connect()
        counts = self._find_topics(offsets)
        partitions = self._settings.partitions_of(counts)  # raises if one does not exist
        topics = frozenset(counts)
        self._check_no_members(offsets)
        self._check_protocol(offsets)
        state = self._restore(topics)
        state = self._note_deleted(state, topics, offsets)
        others = self._others(partitions, topics, offsets) if warms_up else 0
        group = self._group_thread(state, topics, offsets, may_join=not others)
        self._check_checkpoint(group, partitions, offsets)
        return Membership(
            self._settings,
            client_id=self._client_id,
            group=group,
            offsets=offsets,
            worker=self._worker,
            skip_store=self._skip_store,
            partitions_at_start=partitions,
            warming_tasks=warm_up.tasks(sum(counts.values()), others) if others else 0,
        )

    def discard(self) -> None:
        """Begin to close the connections and threads."""
        if self._group is not None:
            self._group.discard()
        elif self._offsets is not None:
            self._worker.post(self._offsets.close)
        self._worker.close()

    def _connect(self) -> GroupOffsets:
        settings = self._settings
        self._offsets = self._worker.submit(
            GroupOffsets,
            settings.properties,
            group_id=settings.group_id,
            read_committed=settings.read_committed,
            keeps_offsets=settings.commits,
        ).result()
        return self._offsets

    def _find_topics(self, offsets: GroupOffsets) -> Mapping[str, int]:
        """Return the topics to read, and their numbers of partitions; wait for the cluster."""
        settings = self._settings
        counts = self._worker.submit(offsets.connect, settings.topics, settings.pattern, settings.asks_for).result()
        if self._is_new:
            settings.check_starts(counts)
        return counts

    def _check_no_members(self, offsets: GroupOffsets) -> None:
        """Raise if the group of a query with ``assign`` has members, because its first commit would fail."""
        if not (self._settings.partitions and self._settings.commits):
            return
        try:
            members = self._worker.submit(offsets.describe).result().members
        except TryAgainError as problem:
            _log.debug("%s: whether the group has members is not known: %s", self._client_id, problem)
            return  # the first commit shows it
        if members:
            raise ActiveGroupError(self._settings.group_id)

    def _check_protocol(self, offsets: GroupOffsets) -> None:
        """Raise if the cluster does not support the group protocol: librdkafka would wait for ever."""
        if not self._settings.under_kip_848:
            return
        with contextlib.suppress(TryAgainError):  # then it is not known
            self._worker.submit(offsets.check_consumer_protocol).result()

    def _restore(self, topics: frozenset[str]) -> State:
        """Return the state from the checkpoint and the stored skips."""
        settings = self._settings
        markers = self._markers(topics) if settings.commits else {}
        given = inputs.Restored(self._start, self._query_id, markers, self._unfinished)
        state, _ = step(State(policy=settings.start), given)
        return replace(state, first_topics=tuple(sorted(topics))) if self._is_new else state

    def _markers(self, topics: frozenset[str]) -> Markers:
        """Return the stored skips of the last finished batch, and of the batch that Spark runs again."""
        end, keeps_offsets = self._unfinished or self._start, self._settings.start.keeps_offsets
        again = {} if self._unfinished is None else self._unfinished.ranges()
        needed = {tp for tp in end.entries if keeps_offsets and (tp.topic in topics or tp in again)}
        rest = (self._start.ranges().keys() | end.ranges().keys()) - needed
        markers = self._worker.submit(read_markers, self._skip_store, needed).result() if needed else {}
        try:
            return {**markers, **(self._worker.submit(read_markers, self._skip_store, rest).result() if rest else {})}
        except AuthenticationError as problem:
            # Deliberate: a query that no longer reads these topics needs no right on them.  With `assign` it has left
            # ranges to others only if it had `subscribe` before, and needs no right on the companion group.
            _log.log(
                logging.WARNING if keeps_offsets else logging.INFO,
                "%s: whether the last batch has left ranges of %s to other queries is not known: %s",
                self._client_id,
                ", ".join(sorted({tp.topic for tp in rest})),
                problem,
            )
            return markers

    def _note_deleted(self, state: State, topics: frozenset[str], offsets: GroupOffsets) -> State:
        """Return the state without topics that were deleted since the checkpoint was written."""
        return tell_of_deleted(
            self._settings,
            state,
            topics,
            client_id=self._client_id,
            offsets=offsets,
            worker=self._worker,
            emit=self._event_log,
        )

    def _others(self, partitions: Collection[TopicPartition], topics: frozenset[str], offsets: GroupOffsets) -> int:
        """Return from how many other queries this one would take partitions, so that it must be warm first."""
        undecided = [tp for tp in partitions if tp not in self._start.entries]
        others = warm_up.ask_for_others(
            self._settings, offsets, self._worker, topics, undecided, client_id=self._client_id
        )
        if others:
            self._event_log(events.Warming(others=others))
        return others

    def _group_thread(
        self, state: State, topics: frozenset[str], offsets: GroupOffsets, *, may_join: bool
    ) -> GroupThread:
        self._group = GroupThread(
            self._settings,
            client_id=self._client_id,
            query_id=self._query_id,
            state=state,
            topics=topics,
            first_topics=first_topics(self._settings, topics, self._start, self._unfinished),
            added=added_partitions(self._settings, self._start, self._unfinished),
            offsets=offsets,
            worker=self._worker,
            emit=self._event_log,
            may_join=may_join,
        )
        return self._group

    def _check_checkpoint(
        self, group: GroupThread, partitions: Collection[TopicPartition], offsets: GroupOffsets
    ) -> None:
        """Raise if the checkpoint is an old copy.

        This must happen before any batch: a sink would take the batch for one that it already has.
        """
        state = group.state
        if not self._settings.start.keeps_offsets or not (state.start.query_id or state.unfinished):
            return
        logged = {} if state.unfinished is None else state.unfinished.entries
        known = sorted({*partitions, *state.processed, *logged})
        found = self._group_offsets(group, offsets, [tp for tp in known if tp.topic in group.topics])
        rest = [tp for tp in known if tp.topic not in group.topics]
        try:
            found |= self._group_offsets(group, offsets, rest) if rest else {}
        except AuthenticationError as problem:
            # Deliberate: a query that no longer reads these topics needs no right on them.
            _log.info(
                "%s: the group's offsets in topics that only former runs have read are not known: %s",
                self._client_id,
                problem,
            )
        _, said = step(state, inputs.OffsetsAtStart(found))
        for output in said:
            if isinstance(output, outputs.Fail):
                raise output.error

    def _group_offsets(
        self, group: GroupThread, offsets: GroupOffsets, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupOffset]:
        """Return the group's offsets, including all commits of former processes of this query."""
        stable = True

        def ask() -> dict[TopicPartition, GroupOffset]:
            nonlocal stable
            found, failed = self._worker.submit(offsets.known_offsets, partitions, require_stable=stable).result()
            for problem in failed.values():
                if stable:
                    # Only a transaction of this query can still change the result.  After it, others do not matter.
                    group.await_own_transaction()
                    stable = False
                raise TryAgainError(problem)
            return found

        try:
            return patiently(ask, Deadline.after(CONNECT_TIMEOUT_S), repeat(_RETRY_S))
        except TryAgainError as problem:
            raise BrokerError(
                f"The query could not read the offsets of the group {self._settings.group_id!r} within "
                f"{CONNECT_TIMEOUT_S:g} s: {problem}. Check the cluster, and start the query again."
            ) from None
