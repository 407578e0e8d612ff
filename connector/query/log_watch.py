"""Lists log ends, and finds topics that were deleted, deleted and created again, or truncated.

The group does not report such changes, and on the classic protocol it may not even notice.  So the query lists the log
ends, then inspects the logs, and only then plans a batch.  Everything here belongs to the thread that Spark calls.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.log_ends import LogEnds
from pyspark_kafka_group.cluster.properties.redaction import redact
from pyspark_kafka_group.coordinator.handover.inputs import LogChange
from pyspark_kafka_group.coordinator.handover.state import Partition, Position
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.lasting import Lasting
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.query.planning import LeaderEpochs, Plannable, below, recreated_topics, suspects
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.types import Address

_log = logging.getLogger(__name__)

# The shortest pause between two requests for the log starts.  Brokers delete old records every 5 minutes by default.
_STARTS_PAUSE_S = 60.0

# The shortest pause between two warnings that no log ends can be listed.
_WARN_PAUSE_S = 10.0

# Up to this number of partitions, each batch compares topic ids.  With more, it does so only if something looks strange
# or `_IDS_PAUSE_S` has passed: brokers return a description of each partition with the ids.
MANY_PARTITIONS = 2000

# The pause between two requests for topic ids, with many partitions or while log ends are missing.
_IDS_PAUSE_S = 1.0

TopicIds = Mapping[str, str | None]
"""The id of each topic that exists; None if the broker has no ids."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the logs since the query got its positions.

    Attributes
    ----------
    recreated : set of str
        Topics that were deleted and created again.
    deleted : set of str
        Topics that were deleted.
    truncated : set of TopicPartition
        Partitions that have lost records below their position.
    unsure : set of TopicPartition
        Partitions whose logs may have changed.  Do not plan them now.
    reasons : mapping of TopicPartition to str
        Why partitions cannot be planned now: the unsure ones, and all without a log end.
    needs_recheck : bool
        Whether the same logs need another inspection.
    """

    recreated: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    truncated: set[TopicPartition] = field(default_factory=set)
    unsure: set[TopicPartition] = field(default_factory=set)
    reasons: Mapping[TopicPartition, str] = field(default_factory=dict, compare=False)
    needs_recheck: bool = field(default=False, compare=False)


class LogInspection:
    """Compares positions with the logs.  Belongs to one thread.

    Parameters
    ----------
    logs : LogEnds
        Asks the leaders for topic ids, and for the ends of leader epochs.
    """

    def __init__(self, logs: LogEnds) -> None:
        self._logs = logs
        self._ids_due_at = 0.0
        self._absence: Lasting[str] = Lasting(lasting.GONE_S)
        self._shorter: Lasting[TopicPartition] = Lasting(lasting.SHORTER_S)
        self._outdated: Lasting[TopicPartition] = Lasting(lasting.RESTORED_AT_REMEMBERED_LEADERS_S)
        self._outdated_without_id: Lasting[TopicPartition] = Lasting(lasting.GONE_S)
        self._validated: dict[TopicPartition, tuple[Position, LeaderEpoch]] = {}
        self._reported: dict[TopicPartition, Offset] = {}  # the positions that were reported as truncated

    def inspect(
        self, plannable: Plannable, ends: Mapping[TopicPartition, Offset], leader_epochs: LeaderEpochs, *, news: bool
    ) -> Changes:
        """Return the changes of the logs, without reasons for partitions that have no log end.

        Parameters
        ----------
        plannable : mapping
            The position of each partition.
        ends : mapping of TopicPartition to Offset
            The newest log ends.
        leader_epochs : mapping of TopicPartition to LeaderEpoch
            The epochs of the leaders that returned them, if known.
        news : bool
            Whether a batch is about to be planned.
        """
        silent, shorter, outdated, epochs = suspects(plannable, ends, leader_epochs)
        # Deliberate: report each position once.  If the decision was to stay there, the log end is still below it: it
        # is the end for the readers' isolation level, before an open transaction.
        shorter = {tp for tp in shorter - outdated if self._reported.get(tp) != plannable[tp].offset}
        needs_recheck = bool(silent or outdated or shorter)
        recreated, deleted, unsure = self._compare_topics(plannable, bool(outdated or shorter), silent, news=news)
        lacking, unknown = self._validate(plannable, epochs, leader_epochs)
        changed = self._shorter.note(shorter) | self._of_other_logs(plannable, outdated) | lacking
        cut = {tp for tp in changed if tp.topic not in recreated and tp not in unsure}
        shorter = {tp for tp in shorter if tp.topic not in recreated}
        reasons = dict.fromkeys(unsure, "its topic may have been deleted or created again")
        errors = self._logs.epoch_errors
        reasons |= {tp: f"its log may have been truncated: {errors.get(tp, 'no answer')}" for tp in unknown}
        reasons |= {tp: f"its log ends at {ends[tp]}, below its position {plannable[tp].offset}" for tp in shorter}
        reasons |= {
            tp: f"its leader has leader epoch {leader_epochs[tp]}, older than the known {plannable[tp].leader_epoch}"
            for tp in outdated
        }
        unsure |= outdated | unknown | shorter
        reported = {tp: offset for tp, offset in self._reported.items() if tp in plannable}
        self._reported = {**reported, **{tp: plannable[tp].offset for tp in cut}}
        reasons = {tp: reason for tp, reason in reasons.items() if tp not in cut}
        return Changes(recreated, deleted, cut, unsure - cut, reasons, needs_recheck or bool(unsure))

    def _validate(
        self, plannable: Plannable, epochs: Mapping[TopicPartition, LeaderEpoch], leader_epochs: LeaderEpochs
    ) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Return the partitions whose new leader lacks records below their position, and those without an answer."""
        epochs = {
            tp: epoch
            for tp, epoch in epochs.items()
            if tp not in leader_epochs or self._validated.get(tp) != (plannable[tp], leader_epochs[tp])
        }
        if not epochs:
            return set(), set()
        epoch_ends = self._logs.epoch_ends(epochs)
        lacking = below(plannable, epoch_ends)
        known = [tp for tp in epoch_ends if tp in leader_epochs and tp not in lacking]
        before = {tp: confirmed for tp, confirmed in self._validated.items() if tp in plannable}
        self._validated = {**before, **{tp: (plannable[tp], leader_epochs[tp]) for tp in known}}
        return lacking, set(epochs.keys() - epoch_ends.keys())

    def _of_other_logs(self, plannable: Plannable, outdated: set[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions whose leader epoch has been too old for so long that this is another log.

        Without topic ids the topic was probably created again.  With the same id the cluster was probably restored.
        """
        without_id = {tp for tp in outdated if plannable[tp].topic_id is None}
        return self._outdated_without_id.note(without_id) | self._outdated.note(outdated - without_id)

    def _compare_topics(
        self, plannable: Plannable, suspicious: bool, silent: set[TopicPartition], *, news: bool
    ) -> tuple[set[str], set[str], set[TopicPartition]]:
        """Return the topics that were created again, the deleted topics, and the partitions that may have changed."""
        now = time.monotonic()
        few = len(plannable) <= MANY_PARTITIONS
        wait = suspicious or (news and few)
        if not wait and not ((news or silent) and now >= self._ids_due_at):
            if self._absence.keys:  # a topic with log ends was not deleted
                self._absence.note((), {tp.topic for tp in plannable} - {tp.topic for tp in silent})
            return set(), set(), set()
        self._ids_due_at = now + _IDS_PAUSE_S * max(1.0, len(plannable) / MANY_PARTITIONS)
        topics = {tp.topic for tp in plannable}
        ids = self._logs.topic_ids(topics)
        if ids is None:
            return set(), set(), set(plannable) if suspicious else set()
        missing = topics - ids.keys()
        deleted = set(self._absence.note(missing, topics))
        known = {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}
        unsure = {tp for tp in plannable if tp.topic in missing}
        return recreated_topics(plannable, known), deleted, unsure


class LogWatch:
    """The log ends of a query's partitions, and the changes of their logs.

    Parameters
    ----------
    settings : GroupSettings
        The group, its topics and its properties.

    Attributes
    ----------
    version : int
        Rises with each poll whose partitions, log ends or leader epochs differ from the poll before.  While it stays
        the same, a caller that found nothing to do need not check the ends again.
    listed_at : float or None
        Time of the last poll that a leader has answered, by the monotonic clock.
    known_ends : mapping of TopicPartition to Offset
        The newest known log end of each partition of the last poll.  Replaced as a whole.
    known_starts : mapping of TopicPartition to Offset
        The log starts of the partitions that had a lag at the last :meth:`list_starts`.  Replaced as a whole.
    """

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._logs = LogEnds(
            settings.properties, client_id=f"{settings.group_id}-offsets", read_committed=settings.read_committed
        )
        self._warn_at = Deadline.after(0)
        self._ends: Mapping[TopicPartition, Offset] = {}
        self.leader_epochs: LeaderEpochs = {}
        self._inspection = LogInspection(self._logs)
        self._problem = ""  # why the last poll failed
        self.known_ends: Mapping[TopicPartition, Offset] = {}
        self.known_starts: Mapping[TopicPartition, Offset] = {}
        self._starts_due_at = Deadline.after(0)
        self._found: object = None  # partitions, log ends and leader epochs of the last poll
        self.version = 0
        self.listed_at: float | None = None

    @property
    def leaders(self) -> Mapping[TopicPartition, Address]:
        """The leader of each partition that had one in the last poll."""
        return self._logs.leaders

    def list_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Return the log ends from the brokers that answer."""
        self._ends = self._ask(partitions)
        if self._ends:
            self.listed_at = time.monotonic()
        missing = {} if len(self._ends) >= len(partitions) else {tp for tp in partitions if tp not in self._ends}
        old = {tp: self.known_ends[tp] for tp in missing if tp in self.known_ends}
        known = {**old, **self._ends} if old else self._ends
        if not old or known != self.known_ends:  # keep the mapping while its values are the same
            self.known_ends = known
        # Compared by value.  This costs little if nothing is new: the clients then return the same mappings, and Python
        # does not compare an object with itself.
        found = (self._ends, self.leader_epochs, [*partitions])
        if found != self._found:
            self._found = found
            self.version += 1
        return self._ends

    def check(self, plannable: Plannable, *, news: bool) -> Changes:
        """Return the changes of the logs.  Call :meth:`list_ends` first.

        Parameters
        ----------
        plannable : Plannable
            The partitions of the last poll and their positions.
        news : bool
            Whether a batch is about to be planned.
        """
        changes = self._inspection.inspect(plannable, self._ends, self.leader_epochs, news=news)
        if changes.unsure:
            self._logs.refind_leaders()
        if changes.recreated or changes.truncated:
            self.known_starts, self._starts_due_at = {}, Deadline.after(0)
        if not changes.needs_recheck:
            return changes
        silent = {
            tp: self._problem or self._logs.reasons.get(tp, "no answer") for tp in plannable if tp not in self._ends
        }
        return replace(changes, reasons={**changes.reasons, **silent})

    def list_starts(self, owned: Mapping[TopicPartition, Partition]) -> None:
        """List the log starts of the partitions that have a lag, once a minute: the group cannot read below them."""
        if not (owned and self._starts_due_at.passed):
            return
        self._starts_due_at = Deadline.after(_STARTS_PAUSE_S)
        ends = self.known_ends
        behind = [tp for tp, p in owned.items() if p.committed is not None and tp in ends and p.committed < ends[tp]]
        self.known_starts = self._logs.log_starts(behind) if behind else {}

    def close(self) -> None:
        """Close the connections and end the threads, without waiting for them."""
        self._logs.close()

    def _ask(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """List log ends; empty if the cluster does not answer."""
        try:
            ends = self._logs.ends(partitions)
        except TryAgainError as problem:
            self.leader_epochs = {}
            self._problem = redact(str(problem), self._settings.properties)
            if self._warn_at.passed:
                self._warn_at = Deadline.after(_WARN_PAUSE_S)
                _log.warning("group %s: cannot list log ends: %s", self._settings.group_id, self._problem)
            return {}
        self.leader_epochs, self._problem = self._logs.leader_epochs, ""
        return ends


def report_changes(group: Membership, changes: Changes) -> set[TopicPartition]:
    """Let the group decide where the query starts in changed logs.  Return their partitions.

    The group also learns why other partitions cannot be planned.
    """
    owned = group.state.owned

    def of(topics: set[str]) -> set[TopicPartition]:
        return {tp for tp in owned if tp.topic in topics} if topics else set()

    of_change = {
        LogChange.RECREATED: of(changes.recreated),
        LogChange.DELETED: of(changes.deleted),
        LogChange.TRUNCATED: changes.truncated,
    }
    group.report_logs({change: found for change, found in of_change.items() if found}, changes.reasons)
    return set().union(*of_change.values())
