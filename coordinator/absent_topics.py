"""Topics that were not always there when a query starts: deleted meanwhile, not created yet, or created later.

While a query runs, its group takes a deleted topic away, and that is how it learns of it.  What was deleted before is
in no assignment: only the checkpoint knows that there was something to read.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection

from pyspark_kafka_group.cluster.absence import Absence
from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator.handover import events, inputs, outputs
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import BrokerError, KafkaGroupError, UnknownTopicError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

_RETRY_S = 0.1
_PATIENCE_S = 30.0


def first_topics(
    settings: GroupSettings, topics: frozenset[str], start: BatchOffset, unfinished: BatchOffset | None
) -> frozenset[str]:
    """Return which topics were there when the query was started for the first time; all others came later.

    Parameters
    ----------
    settings : GroupSettings
        What the query subscribes to.
    topics : frozenset of str
        Those that are there now.
    start, unfinished : BatchOffset
        The ends of the last batch that Spark has finished, and of the one that it runs again.
    """
    known = frozenset(tp.topic for tp in {**start.entries, **({} if unfinished is None else unfinished.entries)})
    if start.query_id is not None and (settings.pattern is not None or not settings.start.keeps_offsets):
        return frozenset()
    # Topics with names were added to `subscribe` if the checkpoint knows others and not them.  A checkpoint that knows
    # none says only that the first batches were empty, because the group took long.
    return known or topics


def tell_of_deleted(
    settings: GroupSettings,
    state: State,
    topics: Collection[str],
    *,
    client_id: str,
    offsets: GroupOffsets,
    worker: DaemonExecutor,
    emit: Callable[[events.Event], None],
    patience_s: float = _PATIENCE_S,
) -> State:
    """Find out which topics were deleted since the checkpoint, and let the state machine decide what that means.

    Parameters
    ----------
    settings : GroupSettings
        What the query subscribes to.
    state : State
        What the checkpoint says.
    topics : collection of str
        What matches the pattern now.
    client_id : str
        Begins each line of the log.
    offsets : GroupOffsets
        Asks the cluster.
    worker : DaemonExecutor
        The thread that ``offsets`` belongs to.
    emit : callable
        Takes what happens.
    patience_s : float
        For how long no broker may answer.

    Raises
    ------
    DataLossError
        If one was, and ``failOnDataLoss`` is set.
    UnknownTopicError
        If nothing matches the pattern, and Spark runs a batch again that read something that is still there.
    BrokerError
        If no broker answers.
    """
    pattern = settings.pattern
    if pattern is None:
        return state  # each topic that is named has been found
    known = {tp.topic for tp in state.processed}
    absent = frozenset(name for name in known - set(topics) if re.fullmatch(pattern, name))

    def missing(names: frozenset[str]) -> frozenset[str]:
        return worker.submit(offsets.missing_topics, names).result()

    deleted = _deleted(absent, missing, patience_s, client_id)
    if deleted:
        gone = tuple(sorted(tp for tp in state.processed if tp.topic in deleted))
        state, said = step(state, inputs.LogChangeFound(gone, inputs.LogChange.DELETED))
        for output in said:
            if isinstance(output, outputs.Fail):
                raise output.error
            if isinstance(output, events.Event):
                emit(output)
    if not topics:
        _check_waits_for_topics(state, pattern, client_id=client_id, deleted=deleted)
    return state


def gone_partitions(
    absence: Absence[TopicPartition], partitions: Collection[TopicPartition], offsets: GroupOffsets
) -> frozenset[TopicPartition]:
    """Return which partitions do not exist any more.

    Raises
    ------
    TryAgainError
        If some have not been missing for long enough yet.
    """
    missing = offsets.missing_partitions(partitions)
    gone = absence.gone(partitions, missing)
    if missing - gone:
        raise TryAgainError(f"the broker that answered does not know {', '.join(sorted(map(str, missing)))}")
    return gone


def _deleted(
    absent: frozenset[str],
    missing: Callable[[frozenset[str]], frozenset[str]],
    patience_s: float,
    client_id: str,
) -> frozenset[str]:
    """Return which topics no broker knows, for long enough that they cannot just have been created."""
    absence: Absence[str] = Absence(time.monotonic)
    patience = Deadline.after(patience_s)
    while absent:
        try:
            absent = missing(absent)
            if absence.gone(absent, absent) == absent:
                break
        except TryAgainError as problem:
            absence.gone(absent, ())
            if patience.passed:
                names = ", ".join(sorted(absent))
                raise BrokerError(f"Whether these topics were deleted is not known: {names}. {problem}") from None
        except KafkaGroupError as problem:
            # Nothing is lost by going on: its processed offsets stay in the checkpoint until it is known to be gone.
            _log.warning("%s: whether topics were deleted is not known, going on without: %s", client_id, problem)
            return frozenset()
        time.sleep(_RETRY_S)
    return absent


def _check_waits_for_topics(state: State, pattern: str, *, client_id: str, deleted: frozenset[str]) -> None:
    """Say that no topic matches; raise if Spark runs a batch again, which needs what it has read."""
    if state.unfinished is not None and {tp.topic for tp in state.unfinished.ranges()} - deleted:
        raise UnknownTopicError([], pattern=pattern)
    _log.warning(
        "%s: no topic matches subscribePattern %r yet. Waiting for one; if there is one, the user of this query "
        "lacks the right READ on it.",
        client_id,
        pattern,
    )
