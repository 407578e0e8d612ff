"""Partitions that the query cannot plan: since when, and why.

The group thread finds partitions whose start is unknown, or that wait for a commit.  Spark's thread reports partitions
whose log it cannot see, or does not trust.  Reasons that last become the events `heldBack` and `heldBackEnded`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from enum import Enum

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.state import State, blocked
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.loop import Loop
from pyspark_kafka_group.coordinator.member import Standing
from pyspark_kafka_group.coordinator.start_requests import StartRequests
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# How often to check which partitions the group thread cannot plan.
_CHECK_PAUSE_S = 1.0

# How often to check whether the group answers, before its first assignment.
_ASK_PAUSE_S = 5.0

_BLOCKED = "a batch or a commit of its former assignment must end first"
_UNANSWERED = "the cluster has not answered yet where it starts"

# Longer than an election, a restart of a broker's process, or a commit takes.  Short enough for a person who waits.
HELD_BACK_S = 10.0


class Where(Enum):
    """The sources of reasons.  Each replaces the reasons that it gave before."""

    GROUP = "group"
    """The group does not answer, so the query does not know its partitions."""

    START = "start"
    """The starts of partitions are unknown, or a commit needs an answer first."""

    LOGS = "logs"
    """The log ends are unknown, or the logs may have changed."""


class HeldBackWatch:
    """Collects reasons, and emits an event for those that last.  On the group thread.

    Parameters
    ----------
    emit : callable
        Takes the events.
    clock : callable
        Returns the time in seconds.

    Attributes
    ----------
    partitions : mapping of TopicPartition to str
        The partitions that are held back for longer than :data:`HELD_BACK_S`, and why.  Replaced as a whole, so any
        thread may read it.
    group_problem : str or None
        Why the group has not answered for that long; None if it does.  Any thread may read it.
    """

    def __init__(self, emit: Callable[[events.Event], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._reasons: dict[Where, dict[TopicPartition | None, str]] = {}
        self._since: dict[TopicPartition | None, float] = {}
        self._lasting: dict[TopicPartition | None, str] = {}
        self._closed = False
        self.group_problem: str | None = None
        self.partitions: Mapping[TopicPartition, str] = {}

    def close(self) -> None:
        """Stop emitting events, because the member is about to leave."""
        self._closed = True
        self.partitions, self.group_problem = {}, None

    def set_reasons(self, where: Where, reasons: Mapping[TopicPartition, str] | str) -> None:
        """Replace the reasons of ``where``, and emit the events that are due.

        Parameters
        ----------
        where : Where
            The source of the reasons.
        reasons : mapping of TopicPartition to str, or str
            Why each partition cannot be planned; empty if all can.  A text if the partitions are unknown.
        """
        given: dict[TopicPartition | None, str] = {}
        if not isinstance(reasons, str):
            given.update(reasons.items())
        elif reasons:
            given[None] = reasons
        if self._closed or not (given or self._reasons.get(where)):
            return  # the most common case by far
        self._reasons[where] = given
        self._emit_due(self._clock())

    def _emit_due(self, now: float) -> None:
        reasons = {tp: reason for of_one in self._reasons.values() for tp, reason in of_one.items()}
        ended: dict[float, list[TopicPartition | None]] = {}
        for tp in self._lasting.keys() - reasons.keys():
            ended.setdefault(round(now - self._since[tp], 1), []).append(tp)
        self._since = {tp: self._since.get(tp, now) for tp in reasons}
        last = {tp: reason for tp, reason in reasons.items() if now - self._since[tp] >= HELD_BACK_S}
        new: dict[str, list[TopicPartition | None]] = {}
        for tp in last.keys() - self._lasting.keys():
            new.setdefault(last[tp], []).append(tp)
        self._lasting = last
        self.partitions = {tp: reason for tp, reason in last.items() if tp is not None}
        self.group_problem = last.get(None)
        for seconds, partitions in ended.items():
            self._emit(events.HeldBackEnded(partitions=_sorted(partitions), seconds=seconds))
        for reason, partitions in new.items():
            self._emit(events.HeldBack(partitions=_sorted(partitions), reason=reason))


class HeldBackCheck:
    """Finds the partitions that the group thread itself cannot plan.  On the group thread.

    Parameters
    ----------
    watch : HeldBackWatch
        Takes the reasons.
    loop : Loop
        The loop of the group thread.
    start_requests : StartRequests
        Knows why the starts of partitions are unknown.
    offsets : GroupOffsets
        The requests to the cluster.
    worker : DaemonExecutor
        The thread that ``offsets`` belongs to.
    client_id : str
        The prefix of each log line.
    """

    def __init__(
        self,
        watch: HeldBackWatch,
        loop: Loop,
        start_requests: StartRequests,
        offsets: GroupOffsets,
        worker: DaemonExecutor,
        *,
        client_id: str,
    ) -> None:
        self._watch = watch
        self._client_id = client_id
        self._loop = loop
        self._start_requests = start_requests
        self._offsets = offsets
        self._worker = worker
        self._check_at = Deadline.after(_CHECK_PAUSE_S)
        self._ask_at = Deadline.after(_ASK_PAUSE_S)
        self._finished_before = 0  # the number of finished batches at the last check
        self._unanswered = ""  # why the group does not answer; written by the requests thread

    def run(self, standing: Standing) -> None:
        """Give the watch the reasons that this thread knows, if that is due."""
        if not self._check_at.passed:
            return
        self._check_at = Deadline.after(_CHECK_PAUSE_S)
        ending = self._loop.state.ending
        self._watch.set_reasons(Where.START, {} if ending else self._start_reasons(self._loop.state))
        self._finished_before = self._loop.state.finished_batches
        if ending or not standing.changes_soon:
            self._unanswered = ""
        elif self._ask_at.passed:
            self._ask_at = Deadline.after(_ASK_PAUSE_S)
            self._worker.post(self._ask_for_coordinator)
        self._watch.set_reasons(Where.GROUP, self._unanswered)

    def _start_reasons(self, state: State) -> dict[TopicPartition, str]:
        unknown, found = self._start_requests.reasons, {}
        # Deliberate: the same commit in two checks.  A query may wait for another, short one at every check.
        waits = not state.may_plan and state.batch is None and state.finished_batches == self._finished_before
        for tp, p in state.owned.items():
            if tp in state.deleted:
                continue
            if p.phase is Phase.RESOLVING:
                found[tp] = _BLOCKED if blocked(state, tp, p) else unknown.get(tp, _UNANSWERED)
            elif p.phase is Phase.STARTING:
                found[tp] = "its start is not committed yet"
            elif waits and p.phase is Phase.ACTIVE:
                found[tp] = "its finished batch is not committed yet"
        return found

    def _ask_for_coordinator(self) -> None:
        """Check whether the coordinator of the group answers.  On the requests thread."""
        try:
            self._offsets.describe()
        except TryAgainError as problem:
            self._unanswered = f"the coordinator of the group does not answer: {problem}"
        except KafkaGroupError as problem:
            _log.debug("%s: cannot find out whether the group answers: %s", self._client_id, problem)
        else:
            self._unanswered = ""  # it answers, and has no partitions for this member


def _sorted(partitions: list[TopicPartition | None]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(tp for tp in partitions if tp is not None))
