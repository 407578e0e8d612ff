"""Requests about where partitions start, and whether topics were deleted, repeated until the cluster can answer.

They run on the requests thread, because they block.  Answers go to the group thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import ParamSpec

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor, unexpected
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.cluster.start_answers import StartAnswers
from pyspark_kafka_group.coordinator.handover.inputs import Forget, LogChange, LogChangeFound, PartitionInfoReceived
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.loop import Loop
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.commit_metadata import differ, new_lineage
from pyspark_kafka_group.offsets.errors import AuthenticationError, KafkaGroupError
from pyspark_kafka_group.offsets.lasting import Lasting
from pyspark_kafka_group.offsets.start_inputs import PartitionInfo, ProcessedOffset
from pyspark_kafka_group.offsets.start_position import is_behind
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OwnershipEpoch, TopicPartition

_log = logging.getLogger(__name__)

P = ParamSpec("P")

# Pause before asking again for what the cluster could not answer.
_RETRY_S = 0.1
_WARN_S = 5.0

# The same for topics that were deleted, and may never exist again.
_DELETED_PAUSE_S = 5.0
_DELETED = "its topic does not exist"


class StartRequests:
    """Asks the cluster where partitions start.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    client_id : str
        The prefix of each log line.
    worker : DaemonExecutor
        The thread for all these requests.
    offsets : GroupOffsets
        The requests to the cluster; belongs to that thread.
    loop : Loop
        The loop of the group thread, which takes the answers.
    first_topics : frozenset of str
        The topics that existed when the query was started for the first time; all others came later.
    added : frozenset of TopicPartition
        The partitions that were added to `assign` since then.
    clock, sleep : callable
        Return the time in seconds, and wait for a number of seconds.

    Attributes
    ----------
    reasons : mapping of TopicPartition to str
        Why the starts of partitions are unknown.  Replaced as a whole.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        client_id: str,
        worker: DaemonExecutor,
        offsets: GroupOffsets,
        loop: Loop,
        first_topics: frozenset[str],
        added: frozenset[TopicPartition],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._worker = worker
        self._offsets = offsets
        self._loop = loop
        self._first_topics = first_topics
        self._added = added
        start = settings.start
        self._named = {*start.topics, *(tp.topic for tp in (*start.explicit, *start.times_ms))}  # in the user's JSON
        self._gone: set[str] = set()  # topics deleted since the start; a later one with such a name is new
        self._clock = clock
        self._sleep = sleep
        self._warn_at = self._ask_for_deleted_at = 0.0
        self._absence: Lasting[TopicPartition] = Lasting(lasting.GONE_S, clock)
        self._shorter: Lasting[tuple[TopicPartition, OwnershipEpoch]] = Lasting(lasting.SHORTER_S, clock)
        self._behind: Lasting[tuple[TopicPartition, OwnershipEpoch]] = Lasting(lasting.RESTORED_S, clock)
        self._left: dict[TopicPartition, OwnershipEpoch] = {}  # to ask again; used by the worker only
        self.reasons: Mapping[TopicPartition, str] = {}

    def fetch(self, epochs: Mapping[TopicPartition, OwnershipEpoch]) -> None:
        """Begin to ask where partitions start; returns at once."""
        self._post("Asking where partitions start", self._fetch, epochs)

    def check(self, partitions: Collection[TopicPartition]) -> None:
        """Begin to check whether these partitions, and others of their topics, were deleted; returns at once."""
        if partitions:
            self._post("Asking for deleted topics", self._check, frozenset(partitions))

    def forget(self, topics: Collection[str]) -> None:
        """Begin to drop the processed offsets of those topics that do not exist; returns at once."""
        self._post("Asking for deleted topics", self._forget, frozenset(topics))

    def _answer(self, given: PartitionInfoReceived | Forget | LogChangeFound) -> None:
        self._loop.post(lambda: self._loop.feed(given))

    def _post(self, doing: str, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run ``call`` on the requests thread.  If it fails in an unexpected way, end the query: it would wait."""
        self._worker.post(call, *args, **kwargs).add_done_callback(unexpected(doing, self._loop.fail_later))

    def _forget(self, topics: frozenset[str]) -> None:
        try:
            missing = self._offsets.missing_topics(topics)
        except (TryAgainError, KafkaGroupError) as problem:
            _log.debug("%s: cannot find out which topics are gone: %s", self._client_id, problem)
            return
        if missing:
            self._gone |= missing
            self._answer(Forget(missing))

    def _check(self, partitions: frozenset[TopicPartition]) -> None:
        """Report partitions as deleted once they count as gone; stop when all exist again."""
        state, topics = self._loop.state, {tp.topic for tp in partitions}
        partitions |= {tp for tp in {*state.processed, *state.owned} if tp.topic in topics}
        try:
            missing = self._offsets.missing_partitions(partitions)
        except TryAgainError:
            self._absence.note((), partitions)  # some that were missing may exist by now
            missing = partitions
        except KafkaGroupError as problem:
            state = self._loop.state
            if isinstance(problem, AuthenticationError) and any(
                tp.topic in topics for tp in {*state.processed, *state.owned}
            ):
                # Deliberate: the query has read some of them.  It must not continue without them in silence, and no
                # other request of a query that has lost their partitions may name them.
                self._loop.fail_later(problem)
                return
            # Other requests report what matters to this query.  A right may have gone together with the topic.
            _log.info("%s: cannot find out whether topics were deleted: %s", self._client_id, problem)
            return
        gone = self._absence.note(missing, partitions)
        if gone:
            self._absence.note((), gone)  # if one comes back and goes again, the wait begins again
            self._gone |= {tp.topic for tp in gone}  # Kafka removes no partition: another topic has its name
            state = self._loop.state
            known = gone & {*state.processed, *state.owned}
            self._answer(LogChangeFound(tuple(sorted(known)), LogChange.DELETED))
        if missing - gone:
            self._sleep(_RETRY_S)
            self._post("Asking for deleted topics", self._check, missing - gone)

    def _fetch(self, epochs: Mapping[TopicPartition, OwnershipEpoch]) -> None:
        """Ask until there is an answer, or the partitions have left."""
        state = self._loop.state
        owned = state.owned
        wanted = {tp: epoch for tp, epoch in epochs.items() if tp in owned and owned[tp].epoch == epoch}
        if not wanted:
            return
        asked = self._due(wanted, state)
        try:
            times_ms = {tp: time for tp in asked if (time := self._settings.start.time_of(tp)) is not None}
            found = StartAnswers({}, frozenset(), _DELETED)
            if asked:
                found = self._offsets.partition_info({tp: state.known_leader_epochs(tp) for tp in asked}, times_ms)
        except TryAgainError as problem:
            found = StartAnswers({}, frozenset(), str(problem), dict.fromkeys(asked, str(problem)))
        except KafkaGroupError as problem:
            self._loop.fail_later(problem)
            return
        found = self._without_doubtful(found, wanted, state)
        if found.info:
            info = {tp: (wanted[tp], self._came_later(tp, info)) for tp, info in found.info.items()}
            self._answer(PartitionInfoReceived(info, new_lineage()))
        self._note_missing(asked, found.missing)
        left = {tp: epoch for tp, epoch in wanted.items() if tp not in found.info}
        others = {tp: reason for tp, reason in self.reasons.items() if tp not in wanted and tp in owned}
        self.reasons = {**others, **{tp: found.failed.get(tp, found.reason) for tp in left}}
        if left:
            self._ask_again(left, found.reason)

    def _due(
        self, wanted: Mapping[TopicPartition, OwnershipEpoch], state: State
    ) -> Mapping[TopicPartition, OwnershipEpoch]:
        """Return those of ``wanted`` to ask for now.  Topics that were deleted may stay away for ever."""
        deleted = wanted.keys() & state.deleted
        if not deleted:
            return wanted
        if self._clock() >= self._ask_for_deleted_at:
            self._ask_for_deleted_at = self._clock() + _DELETED_PAUSE_S
            return wanted
        return {tp: epoch for tp, epoch in wanted.items() if tp not in deleted}

    def _without_doubtful(
        self, found: StartAnswers, wanted: Mapping[TopicPartition, OwnershipEpoch], state: State
    ) -> StartAnswers:
        """Return ``found`` without answers that may be temporary.  An answer that lasts is accepted."""
        shorter = {tp for tp, info in found.info.items() if _is_shorter(info, state.processed.get(tp))}
        logged = {} if state.unfinished is None else state.unfinished.entries
        behind = {tp for tp, info in found.info.items() if is_behind(info, state.processed.get(tp), logged.get(tp))}
        waits: set[TopicPartition] = set()
        for fact, doubtful in ((self._shorter, shorter - behind), (self._behind, behind)):
            left = [(tp, epoch) for tp, epoch in fact.keys if tp not in state.owned or state.owned[tp].epoch != epoch]
            lasted = fact.note({(tp, wanted[tp]) for tp in doubtful}, {*wanted.items(), *left})
            waits |= doubtful - {tp for tp, _ in lasted}
        info = {tp: info for tp, info in found.info.items() if tp not in waits}
        texts = {
            tp: (
                f"its leader reports leader epoch {info.leader_epoch}, older than a known one. It does not know its "
                f"successor, or the cluster was restored from an older copy"
                if tp in behind
                else f"its log ends at {info.high_watermark}, below what was read, under the same leader epoch"
            )
            for tp, info in found.info.items()
            if tp in waits
        }
        reason = next(iter(texts.values()), found.reason)
        return found._replace(info=info, reason=reason, failed={**found.failed, **texts})

    def _ask_again(self, left: Mapping[TopicPartition, OwnershipEpoch], reason: str) -> None:
        if self._clock() > self._warn_at:
            self._warn_at = self._clock() + _WARN_S
            names = ", ".join(sorted(map(str, left)))
            _log.info("%s: cannot find out yet where these partitions start: %s: %s", self._client_id, names, reason)
        # One repeated question at a time, with all partitions.  One of a leader that does not answer takes seconds, and
        # the first questions about other partitions must not wait behind several of them.
        is_first = not self._left
        self._left.update(left)
        self._sleep(_RETRY_S)
        if is_first:
            self._post("Asking where partitions start", self._fetch_left)

    def _fetch_left(self) -> None:
        left, self._left = self._left, {}
        self._fetch(left)

    def _note_missing(
        self, wanted: Mapping[TopicPartition, OwnershipEpoch], missing: frozenset[TopicPartition]
    ) -> None:
        """Check whether partitions were deleted, once they have been missing for a while."""
        gone = self._absence.note(missing, wanted)
        if gone - self._loop.state.deleted:
            self._post("Asking for deleted topics", self._check, gone)

    def _came_later(self, tp: TopicPartition, info: PartitionInfo) -> PartitionInfo:
        """Mark the answer if the query reads the partition later than its first ones, so from its beginning.

        Its topic was created under a pattern, or the user has added it to `subscribe` or `assign`.
        """
        start = self._settings.start
        if not start.keeps_offsets:
            # With `assign`, only the checkpoint shows what was started before, as with Spark's own source.
            info = replace(info, topic_started=False, initial_partition_count=None)
        # A topic that was deleted is read from its beginning, whatever the options say, and even if a new query has
        # begun it meanwhile.
        if tp.topic not in self._gone:
            if tp in self._added:
                if info.committed is not None or tp in start.explicit or tp in start.times_ms:
                    return info
                # Deliberate: not a count of 0, which would also count for other queries with the same group.
                return replace(info, added=True)
            if tp.topic in self._first_topics or tp.topic in self._named:
                return info  # the user's options decide where it starts
            if info.topic_started:
                return info
        return replace(info, topic_started=True, initial_partition_count=0)


def _is_shorter(info: PartitionInfo, processed: ProcessedOffset | None) -> bool:
    """Return whether the log ends below a known offset, and no later leader says that it was truncated there."""
    known = []
    if processed is not None and not differ(processed.topic_id, info.topic_id):
        known.append((processed.offset, processed.leader_epoch))
    if info.committed is not None and not differ(info.committed_topic_id, info.topic_id):
        known.append((info.committed, info.committed_leader_epoch))
    return any(
        offset > info.high_watermark and not _was_cut(info, offset, leader_epoch) for offset, leader_epoch in known
    )


def _was_cut(info: PartitionInfo, offset: Offset, leader_epoch: LeaderEpoch | None) -> bool:
    """Return whether a later leader says that the log of an earlier epoch ends below ``offset`` (KIP-320)."""
    if leader_epoch is None or info.leader_epoch is None or info.leader_epoch <= leader_epoch:
        return False
    end = info.epoch_ends.get(leader_epoch)
    return end is not None and end < offset
