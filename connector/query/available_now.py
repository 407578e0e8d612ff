"""Plans the batches of a run with ``availableNow``, up to the log ends at its start.

The run ends when its partitions have nothing left to read.  So "not assigned yet", "not known yet" and "no answer" must
never look like "nothing to read": see docs/guarantees.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from itertools import repeat

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.coordinator.handover.state import NO_EPOCH
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import AssignmentTimeoutError, BrokerError, DataLossError, NoPartitionsError
from pyspark_kafka_group.offsets.lasting import Lasting
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.query.log_watch import LogWatch, report_changes
from pyspark_kafka_group.query.planning import Plannable, cut_ranges
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# How long the run waits for the log ends at its start, and the pause between two requests.
_TARGET_PATIENCE_S = 60.0
_TARGET_PAUSE_S = 0.2

# How long the run waits for its assignment: the longest that a group may take, until the slowest member is thrown out
# (max.poll.interval.ms, 5 minutes).
_PATIENCE_S = 330.0

# The pause between two checks whether the group has settled.  If the group has given all partitions to others for
# `_NO_PARTITIONS_S`, this is an error.  A member that has just left may make room.
_SETTLED_PAUSE_S = 0.1
_NO_PARTITIONS_S = 5.0

# How long the commit of the last batch may take: as long as the restart of a coordinator.
_COMMIT_S = 60.0


class AvailableNow:
    """One run with ``availableNow``.

    Parameters
    ----------
    settings : GroupSettings
        The group settings of the query.
    watch : LogWatch
        Lists the log ends and inspects the logs.
    target : dict of TopicPartition to Offset
        The offset at which the run stops in each partition; see :func:`log_ends_now`.

    Attributes
    ----------
    ends : mapping of TopicPartition to Offset
        The newest log ends, but at most the target.
    """

    def __init__(self, settings: GroupSettings, watch: LogWatch, target: dict[TopicPartition, Offset]) -> None:
        self.ends: Mapping[TopicPartition, Offset] = {}
        self._settings = settings
        self._watch = watch
        self._target = target
        self._reads_nothing = not target  # no topic matches the pattern

    def begin(self, group: Membership) -> None:
        """Do nothing: :meth:`next_batch` waits for the group."""

    def others_run(self) -> None:
        """Do nothing: such a run does not wait for new records."""

    def next_batch(self, group: Membership, max_rows: int | None, *, always: bool) -> BatchOffset | None:
        """Plan the next batch; None if nothing is left.

        Parameters
        ----------
        group : Membership
            The membership of this query.
        max_rows : int or None
            The approximate maximum number of offsets.
        always : bool
            Whether to plan a batch even if there is nothing to read.

        Raises
        ------
        AssignmentTimeoutError
            If the group does not settle.
        NoPartitionsError
            If the group has no partition for this member.
        DataLossError
            If a log was truncated below the target, and ``failOnDataLoss`` is set.
        """
        if self._reads_nothing:
            return group.plan({}, always=True) if always else None
        target = self._target
        deadline = Deadline.after(_PATIENCE_S)
        nothing_since: float | None = None
        shorter: Lasting[TopicPartition] = Lasting(lasting.SHORTER_S)
        while True:
            self._settle(group)
            state = group.state
            plannable = state.plannable()
            ends, changed, unsure = self._list_and_inspect(plannable, group)
            if deadline.passed:
                raise self._not_settled()
            if changed:
                continue
            # Deliberate: if a log end is missing, use the target.  Without it, a request that fails would end the run.
            readable = [tp for tp in plannable if tp in target and tp not in unsure]
            self.ends = {tp: min(target[tp], ends.get(tp, target[tp])) for tp in readable}
            ranges = cut_ranges(plannable, self.ends, self._watch.leader_epochs, max_rows)
            if ranges or (plannable and always):
                end = group.plan(ranges, always=always)
                if end is not None:
                    return end
                # The partitions have moved since the state was read.
            elif group.state.batch is not None:
                return group.state.batch.end
            else:
                # A log end goes back for a moment while a partition changes its leader.
                left = [tp for tp, end in self.ends.items() if max(plannable[tp].offset, end) < target[tp]]
                lasted = shorter.note(left)
                for tp in lasted:
                    self._lower_target(tp, group)
                if len(lasted) < len(left):
                    self._wait_for_others(group, plannable)
                    continue
                # Deliberate: use the state from before the question.  The group may assign the first partitions
                # meanwhile.
                settled = not (unsure or state.unsettled) and group.is_stable(state.owned.keys(), target.keys())
                if not settled:
                    nothing_since = None
                # This member had partitions, or all were deleted.
                elif state.last_epoch > NO_EPOCH or target.keys() <= group.state.deleted:
                    if not always:
                        self._settle_commits(group)
                    now = group.state
                    if now.last_epoch == state.last_epoch and now.owned.keys() == state.owned.keys():
                        break
                    # Deliberate: also if the group has only taken partitions meanwhile.  It may give others for them.
                    continue
                else:
                    nothing_since = nothing_since or time.monotonic()
                    if time.monotonic() - nothing_since > _NO_PARTITIONS_S:
                        raise NoPartitionsError(self._settings.group_id)
            if deadline.passed:
                raise self._not_settled()
            self._wait_for_others(group, plannable)
        return group.plan({}, always=True) if always else None

    def _settle(self, group: Membership) -> None:
        """Wait until the assignment of this run and the positions are certain."""
        deadline = Deadline.after(_PATIENCE_S)
        while not group.wait_for_assignment(_SETTLED_PAUSE_S):
            # Under KIP-848 a member without partitions gets no assignment.
            if not group.state.owned and group.is_stable((), self._target.keys()):
                return
            if deadline.passed:
                raise self._not_settled()
        if not group.wait_until(lambda state: state.may_plan, _PATIENCE_S):
            raise self._not_settled()

    def _not_settled(self) -> AssignmentTimeoutError:
        return AssignmentTimeoutError(
            f"The group {self._settings.group_id!r} has not given each partition to a member within {_PATIENCE_S:g} s, "
            f"or this query could not find out where to start. A member may not give partitions back: list the members "
            f"with kafka-consumer-groups --describe --members."
        )

    def _lower_target(self, tp: TopicPartition, group: Membership) -> None:
        """Lower the target to the end of a log that stays shorter.

        Raises
        ------
        DataLossError
            If ``failOnDataLoss`` is set.
        """
        if self._settings.start.fail_on_data_loss:
            end = self.ends[tp]
            raise DataLossError(
                topic=tp.topic,
                partition=tp.partition,
                lost_from=end,
                lost_until=self._target[tp],
                log_start=-1,
                log_end=end,
            )
        _log.warning(
            "%s: the log of %s ended at offset %d when the run started, but has ended at %d for %g s. The run ends "
            "without the records in between. If they come back, the next run reads them. Check the broker's log for "
            "an unclean leader election.",
            group.client_id,
            tp,
            self._target[tp],
            self.ends[tp],
            lasting.SHORTER_S,
        )
        self._target[tp] = self.ends[tp]

    def _settle_commits(self, group: Membership) -> None:
        """Wait until all finished batches are committed: after the last batch Spark ends this process at once."""
        if not group.wait_until(lambda state: not state.uncommitted, _COMMIT_S):
            _log.warning(
                "%s: the last batch is finished, but could not be committed within %g s. The next run commits it. "
                "Before that, another member of the group may read it again.",
                group.client_id,
                _COMMIT_S,
            )

    def _wait_for_others(self, group: Membership, known: Plannable) -> None:
        """Wait a moment for a change of the plannable partitions."""
        group.wait_until(lambda state: state.plannable().keys() != known.keys(), _SETTLED_PAUSE_S)

    def _list_and_inspect(
        self, plannable: Plannable, group: Membership
    ) -> tuple[Mapping[TopicPartition, Offset], set[TopicPartition], set[TopicPartition]]:
        """Return the log ends, the partitions whose logs have changed, and those whose logs may have changed.

        The target in a changed log becomes its current log end.
        """
        if not plannable:
            group.report_logs({}, {})
            return {}, set(), set()
        ends = self._watch.list_ends(plannable.keys())
        changes = self._watch.check(plannable, news=True)
        changed = report_changes(group, changes)
        for tp in changed:
            self._target.pop(tp, None)
            if tp in ends:
                self._target[tp] = ends[tp]
        return ends, changed, changes.unsure


def log_ends_now(settings: GroupSettings, watch: LogWatch) -> dict[TopicPartition, Offset]:
    """Return the log ends of all subscribed partitions.

    Raises
    ------
    BrokerError
        If a log end is still missing after a minute.
    """
    everything = settings.partitions_of(_partition_counts(settings))
    found = patiently(
        lambda: watch.list_ends(everything),
        Deadline.after(_TARGET_PATIENCE_S),
        repeat(_TARGET_PAUSE_S),
        is_enough=lambda found: len(found) == len(everything),
    )
    if missing := sorted(set(everything) - found.keys()):
        raise BrokerError(
            f"No log end of {', '.join(map(str, missing))} within {_TARGET_PATIENCE_S:g} s: a partition has no leader, "
            f"or its broker does not answer."
        )
    return dict(found)


def _partition_counts(settings: GroupSettings) -> dict[str, int]:
    """Return how many partitions each subscribed topic has."""
    worker = DaemonExecutor("kafka-group-target")
    try:
        cluster = worker.submit(
            GroupOffsets, settings.properties, group_id=settings.group_id, read_committed=settings.read_committed
        ).result()
        try:
            return worker.submit(cluster.connect, settings.topics, settings.pattern, settings.asks_for).result()
        finally:
            worker.post(cluster.close)
    finally:
        worker.close()
