"""Finds topics that were deleted, deleted and created again, or truncated.

The group does not report this, and on the classic protocol it may not even notice.  So the query lists the log ends,
then inspects the logs, and only then plans a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pyspark_kafka_group.coordinator.handover.inputs import LogChange
from pyspark_kafka_group.coordinator.handover.state import Position
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.lasting import Lasting
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.query.planning import LeaderEpochs, Plannable, below, recreated_topics, suspects

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
    strange : bool
        Whether the same logs need another inspection.
    """

    recreated: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    truncated: set[TopicPartition] = field(default_factory=set)
    unsure: set[TopicPartition] = field(default_factory=set)
    reasons: Mapping[TopicPartition, str] = field(default_factory=dict, compare=False)
    strange: bool = field(default=False, compare=False)


class LogInspection:
    """Compares positions with the logs.  Belongs to one thread.

    Parameters
    ----------
    ask_topic_ids : callable
        Returns the ids of the topics that exist; None if no leader answers.
    ask_epoch_ends : callable
        Returns where the log of each partition ends for a leader epoch.  Leaves out partitions without an answer.
    why_no_epoch_end : callable
        Returns why a partition was left out.
    """

    def __init__(
        self,
        ask_topic_ids: Callable[[Collection[str]], TopicIds | None],
        ask_epoch_ends: Callable[[Mapping[TopicPartition, LeaderEpoch]], Mapping[TopicPartition, Offset]],
        why_no_epoch_end: Callable[[TopicPartition], str] = lambda _: "no answer",
    ) -> None:
        self._why_no_epoch_end = why_no_epoch_end
        self._ask_topic_ids = ask_topic_ids
        self._ask_epoch_ends = ask_epoch_ends
        self._ids_due_at = 0.0
        self._absence: Lasting[str] = Lasting(lasting.GONE_S)
        self._shorter: Lasting[TopicPartition] = Lasting(lasting.SHORTER_S)
        self._outdated: Lasting[TopicPartition] = Lasting(lasting.RESTORED_AT_REMEMBERED_LEADERS_S)
        self._outdated_without_id: Lasting[TopicPartition] = Lasting(lasting.GONE_S)
        self._validated: dict[TopicPartition, tuple[Position, LeaderEpoch]] = {}
        self._told: dict[TopicPartition, Offset] = {}  # the positions that were reported as truncated

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
        shorter = {tp for tp in shorter - outdated if self._told.get(tp) != plannable[tp].offset}
        strange = bool(silent or outdated or shorter)
        recreated, deleted, unsure = self._compare_topics(plannable, bool(outdated or shorter), silent, news=news)
        lacking, unknown = self._validate(plannable, epochs, leader_epochs)
        changed = self._shorter.note(shorter) | self._of_other_logs(plannable, outdated) | lacking
        cut = {tp for tp in changed if tp.topic not in recreated and tp not in unsure}
        shorter = {tp for tp in shorter if tp.topic not in recreated}
        reasons = dict.fromkeys(unsure, "its topic may have been deleted or created again")
        reasons |= {tp: f"its log may have been truncated: {self._why_no_epoch_end(tp)}" for tp in unknown}
        reasons |= {tp: f"its log ends at {ends[tp]}, below its position {plannable[tp].offset}" for tp in shorter}
        reasons |= {
            tp: f"its leader has leader epoch {leader_epochs[tp]}, older than the known {plannable[tp].leader_epoch}"
            for tp in outdated
        }
        unsure |= outdated | unknown | shorter
        told = {tp: offset for tp, offset in self._told.items() if tp in plannable}
        self._told = {**told, **{tp: plannable[tp].offset for tp in cut}}
        reasons = {tp: reason for tp, reason in reasons.items() if tp not in cut}
        return Changes(recreated, deleted, cut, unsure - cut, reasons, strange or bool(unsure))

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
        epoch_ends = self._ask_epoch_ends(epochs)
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
        ids = self._ask_topic_ids(topics)
        if ids is None:
            return set(), set(), set(plannable) if suspicious else set()
        missing = topics - ids.keys()
        deleted = set(self._absence.note(missing, topics))
        known = {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}
        unsure = {tp for tp in plannable if tp.topic in missing}
        return recreated_topics(plannable, known), deleted, unsure


def change_logs(group: Membership, changes: Changes) -> set[TopicPartition]:
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
