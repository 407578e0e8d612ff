"""Asks the cluster where partitions start, again and again until it can tell, and which topics match a pattern.

On a thread of its own: requests block.  Answers go to the group thread.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pyspark_kafka_group.cluster.absence import Absence
from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.cluster.start_answers import StartAnswers
from pyspark_kafka_group.coordinator.handover.inputs import Forget, LogChange, LogChangeFound, PartitionInfoReceived
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.commit_metadata import differ
from pyspark_kafka_group.offsets.errors import GroupError, KafkaGroupError
from pyspark_kafka_group.offsets.start_inputs import PartitionInfo, ProcessedOffset
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OwnershipEpoch, TopicPartition

_log = logging.getLogger(__name__)

# Pause before asking again for what the cluster could not answer.
_RETRY_S = 0.1
_WARN_S = 5.0

# For how long leader epochs must have gone back before the cluster counts as restored from an older copy.  A leader
# that was cut off from the others tells an old one, too, until it hears of its successor.
_RESTORED_S = 30.0

# A log end goes back for a moment while brokers hand a partition over; what was truncated stays so.
SHORTER_S = 10.0

_LINEAGE_DIGITS = 8


class StartRequests:
    """Finds out what decides where partitions start.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    client_id : str
        Begins each line of the log.
    worker : DaemonExecutor
        The thread that all of this runs on.
    offsets : GroupOffsets
        Asks the cluster; belongs to that thread.
    state : callable
        Returns the newest state.
    answer : callable
        Takes an input for the state machine.  Any thread.
    fail : callable
        Takes what ends the query.  Any thread.
    first_topics : frozenset of str
        The topics that were there when the query was started for the first time; all others came later.
    clock, sleep : callable
        Tell the time in seconds, and wait.

    Attributes
    ----------
    reasons : mapping of TopicPartition to str
        Why it is not known yet where partitions start; replaced as a whole.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        client_id: str,
        worker: DaemonExecutor,
        offsets: GroupOffsets,
        state: Callable[[], State],
        answer: Callable[[PartitionInfoReceived | Forget | LogChangeFound], None],
        fail: Callable[[KafkaGroupError], None],
        first_topics: frozenset[str],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._worker = worker
        self._offsets = offsets
        self._state = state
        self._answer = answer
        self._fail = fail
        self._first_topics = first_topics
        self._gone: set[str] = set()  # deleted since: what comes under such a name later is new
        self._clock = clock
        self._sleep = sleep
        self._warn_at = 0.0
        self._absence: Absence[str] = Absence(clock)
        self._doubtful_since: dict[tuple[TopicPartition, OwnershipEpoch], float] = {}
        self.reasons: Mapping[TopicPartition, str] = {}

    def fetch(self, epochs: Mapping[TopicPartition, OwnershipEpoch]) -> None:
        """Begin to ask; returns at once."""
        self._worker.submit(self._fetch, epochs)

    def check_topics(self, topics: Collection[str]) -> None:
        """Begin to look whether these topics were deleted; returns at once.  The group has taken them away."""
        if topics:
            self._worker.submit(self._check, frozenset(topics))

    def forget(self, topics: Collection[str]) -> None:
        """Begin to have the processed offsets of those topics dropped that do not exist; returns at once."""
        self._worker.submit(self._forget, frozenset(topics))

    def _forget(self, topics: frozenset[str]) -> None:
        try:
            missing = self._offsets.missing_topics(topics)
        except (TryAgainError, KafkaGroupError) as problem:
            _log.debug("%s: which topics are gone is not known: %s", self._client_id, problem)
            return
        if missing:
            self._gone |= missing
            self._answer(Forget(missing))

    def _check(self, topics: frozenset[str]) -> None:
        """Say that topics were deleted once they count as gone; stop when all are there again."""
        try:
            missing = self._offsets.missing_topics(topics)
        except TryAgainError:
            self._absence.gone(topics, ())  # what was missing before may be there by now
            missing = topics
        except KafkaGroupError as problem:
            # What matters to this query it will be told elsewhere; a right may have gone together with the topic.
            _log.info("%s: whether topics were deleted is not known: %s", self._client_id, problem)
            return
        if self._state().ending:
            return
        gone = self._absence.gone(topics, missing)
        if gone:
            self._absence.gone(gone, ())  # one that comes back and goes again is waited for again
            self._gone |= gone
            state = self._state()
            of_gone = sorted(tp for tp in {*state.processed, *state.owned} if tp.topic in gone)
            self._answer(LogChangeFound(tuple(of_gone), LogChange.DELETED))
        if missing - gone:
            self._sleep(_RETRY_S)
            self._worker.submit(self._check, missing - gone)

    def _fetch(self, epochs: Mapping[TopicPartition, OwnershipEpoch]) -> None:
        """Ask until there is an answer, or the partitions have left."""
        state = self._state()
        owned = state.owned
        wanted = {tp: epoch for tp, epoch in epochs.items() if tp in owned and owned[tp].epoch == epoch}
        if not wanted:
            return
        try:
            times_ms = {tp: time for tp in wanted if (time := self._settings.start.time_of(tp)) is not None}
            found = self._offsets.partition_info({tp: state.known_leader_epochs(tp) for tp in wanted}, times_ms)
        except TryAgainError as problem:
            found = StartAnswers({}, frozenset(), str(problem), dict.fromkeys(wanted, str(problem)))
        except KafkaGroupError as problem:
            self._fail(problem)
            return
        except Exception as problem:
            _log.exception("%s: asking where partitions start failed", self._client_id)
            self._fail(GroupError(f"Asking where partitions start failed: {problem!r}. This is a bug."))
            return
        found = self._without_doubtful(found, wanted, state)
        if found.info:
            info = {tp: (wanted[tp], self._came_later(tp, info)) for tp, info in found.info.items()}
            self._answer(PartitionInfoReceived(info, uuid.uuid4().hex[:_LINEAGE_DIGITS]))
        self._note_missing(wanted, found.missing_topics)
        left = {tp: epoch for tp, epoch in wanted.items() if tp not in found.info}
        others = {tp: reason for tp, reason in self.reasons.items() if tp not in wanted and tp in owned}
        self.reasons = {**others, **{tp: found.failed.get(tp, found.reason) for tp in left}}
        if left:
            self._ask_again(left, found.reason)

    def _without_doubtful(
        self, found: StartAnswers, wanted: Mapping[TopicPartition, OwnershipEpoch], state: State
    ) -> StartAnswers:
        """Return what is found without what may be over in a moment; what stays is believed."""
        now = self._clock()
        shorter = {tp: info for tp, info in found.info.items() if _is_shorter(info, state.processed.get(tp))}
        patience_s = {**dict.fromkeys(shorter, SHORTER_S), **dict.fromkeys(found.restored, _RESTORED_S)}
        doubtful = {(tp, wanted[tp]): self._doubtful_since.get((tp, wanted[tp]), now) for tp in patience_s}
        others = {key: since for key, since in self._doubtful_since.items() if key not in wanted.items()}
        self._doubtful_since = {**others, **doubtful}
        waits = {tp for (tp, _), since in doubtful.items() if now - since < patience_s[tp]}
        info = {tp: info for tp, info in {**found.info, **found.restored}.items() if tp not in waits}
        texts = {
            tp: f"its log ends at {info.high_watermark}, below what was read, under the same leader epoch"
            for tp, info in shorter.items()
            if tp in waits
        }
        reason = next(iter(texts.values()), found.reason)
        return found._replace(info=info, reason=reason, failed={**found.failed, **texts})

    def _ask_again(self, left: Mapping[TopicPartition, OwnershipEpoch], reason: str) -> None:
        if self._clock() > self._warn_at:
            self._warn_at = self._clock() + _WARN_S
            names = ", ".join(sorted(map(str, left)))
            _log.info("%s: where to start is not known yet: %s: %s", self._client_id, names, reason)
        self._sleep(_RETRY_S)
        self._worker.submit(self._fetch, left)

    def _note_missing(self, wanted: Mapping[TopicPartition, OwnershipEpoch], missing: frozenset[str]) -> None:
        """Say that topics were deleted, once they have been missing for a while."""
        gone = self._absence.gone({tp.topic for tp in wanted}, missing)
        if gone - self._state().deleted:
            self._worker.submit(self._check, gone)

    def _came_later(self, tp: TopicPartition, info: PartitionInfo) -> PartitionInfo:
        """Note if the query reads the topic later than its first ones: from its beginning, like new partitions.

        The topic was created under a pattern, or added to `subscribe`.
        """
        gone = tp.topic in self._gone
        if not self._settings.start.keeps_offsets:
            # Nothing but the checkpoint knows what was started before, as with Spark's own source.
            later = gone or tp.topic not in self._first_topics
            return replace(info, topic_started=True, initial_partition_count=0) if later else info
        if tp.topic in self._settings.start.topics or (tp.topic in self._first_topics and not gone):
            return info  # a word of the user's for this very topic counts
        # One that was gone is read from its beginning even if a query that is new has begun it meanwhile.
        if not gone and info.topic_started:
            return info
        return replace(info, topic_started=True, initial_partition_count=0)


def _is_shorter(info: PartitionInfo, processed: ProcessedOffset | None) -> bool:
    """Tell whether the log ends below what is known of it, and no later leader says that it was truncated there."""
    known = []
    if processed is not None and not differ(processed.topic_id, info.topic_id):
        known.append((processed.offset, processed.leader_epoch))
    if info.committed is not None and not (info.note is not None and differ(info.note.topic_id, info.topic_id)):
        known.append((info.committed, info.committed_leader_epoch))
    return any(
        offset > info.high_watermark and not _was_cut(info, offset, leader_epoch) for offset, leader_epoch in known
    )


def _was_cut(info: PartitionInfo, offset: Offset, leader_epoch: LeaderEpoch | None) -> bool:
    """Tell whether a later leader says that the log of an earlier one ends below an offset of it (KIP-320)."""
    if leader_epoch is None or info.leader_epoch is None or info.leader_epoch <= leader_epoch:
        return False
    end = info.epoch_ends.get(leader_epoch)
    return end is not None and end < offset
