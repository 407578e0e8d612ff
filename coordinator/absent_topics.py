"""Topics that do not exist for the whole life of a query: deleted, not created yet, or created later.

While a query runs, its group revokes the partitions of a deleted topic.  A topic that was deleted before the start is
in no assignment.  Only the checkpoint shows that the query has read it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from itertools import repeat

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.coordinator.handover import events, inputs, outputs
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import BrokerError, KafkaGroupError, UnknownTopicError
from pyspark_kafka_group.offsets.lasting import Lasting
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

_RETRY_S = 0.1
_PATIENCE_S = 30.0


def first_topics(
    settings: GroupSettings, topics: frozenset[str], start: BatchOffset, unfinished: BatchOffset | None
) -> frozenset[str]:
    """Return the topics that existed when the query was started for the first time; all others came later.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    topics : frozenset of str
        The topics that exist now.
    start, unfinished : BatchOffset
        The ends of the last batch that Spark has finished, and of the batch that it runs again.
    """
    known = frozenset(tp.topic for tp in {**start.entries, **({} if unfinished is None else unfinished.entries)})
    # They have no offset yet, for example because the first batch was empty.
    unread = frozenset((unfinished or start).first)
    if start.query_id is not None and (settings.pattern is not None or not settings.start.keeps_offsets):
        return unread
    # A topic was added to `subscribe` if the checkpoint contains others and not this one.  A checkpoint without topics
    # shows only that the first batches were empty, because the group took long.
    return (known | unread) or topics


def added_partitions(
    settings: GroupSettings, start: BatchOffset, unfinished: BatchOffset | None
) -> frozenset[TopicPartition]:
    """Return the partitions that were added to `assign` since the query read others of their topics.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    start, unfinished : BatchOffset
        The ends of the last batch that Spark has finished, and of the batch that it runs again.
    """
    known = {**start.entries, **({} if unfinished is None else unfinished.entries)}
    topics = {tp.topic for tp in known}
    return frozenset(tp for tp in settings.partitions if tp.topic in topics and tp not in known)


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
    """Find the topics that were deleted since the checkpoint was written, and feed them to the state machine.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    state : State
        The state from the checkpoint.
    topics : collection of str
        The topics that match the pattern now.
    client_id : str
        The prefix of each log line.
    offsets : GroupOffsets
        The requests to the cluster.
    worker : DaemonExecutor
        The thread that ``offsets`` belongs to.
    emit : callable
        Takes the events.
    patience_s : float
        How long to retry if no broker answers, in seconds.

    Raises
    ------
    DataLossError
        If a topic was deleted, and ``failOnDataLoss`` is set.
    UnknownTopicError
        If no topic matches the pattern, and Spark runs a batch again that reads a topic which was not deleted.
    BrokerError
        If no broker answers.
    """
    pattern = settings.pattern
    if pattern is None:
        return state  # the start has found every topic that `subscribe` or `assign` names
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
    absence: Lasting[TopicPartition], partitions: Collection[TopicPartition], offsets: GroupOffsets
) -> frozenset[TopicPartition]:
    """Return the partitions that no longer exist.

    Raises
    ------
    TryAgainError
        If some have not been missing for long enough yet.
    """
    missing = offsets.missing_partitions(partitions)
    gone = absence.note(missing, partitions)
    if missing - gone:
        raise TryAgainError(f"the broker that answered does not know {', '.join(sorted(map(str, missing)))}")
    return gone


def _deleted(
    absent: frozenset[str],
    missing: Callable[[frozenset[str]], frozenset[str]],
    patience_s: float,
    client_id: str,
) -> frozenset[str]:
    """Return the topics that no broker has known for so long that they cannot be new."""
    absence: Lasting[str] = Lasting(lasting.GONE_S)

    def ask() -> frozenset[str]:
        nonlocal absent
        try:
            absent = missing(absent)
        except TryAgainError:
            absence.note(())
            raise
        if absence.note(absent) != absent:
            raise TryAgainError("they may be new")
        return absent

    try:
        return patiently(ask, Deadline.after(patience_s), repeat(_RETRY_S)) if absent else absent
    except TryAgainError as problem:
        names = ", ".join(sorted(absent))
        raise BrokerError(
            f"The brokers do not say whether these topics were deleted: {names} ({problem}). "
            f"Start the query again when all brokers answer."
        ) from None
    except KafkaGroupError as problem:
        # Nothing is lost: the processed offsets stay in the checkpoint until the topic is known to be deleted.
        _log.warning("%s: the query could not check whether topics were deleted, and continues: %s", client_id, problem)
        return frozenset()


def _check_waits_for_topics(state: State, pattern: str, *, client_id: str, deleted: frozenset[str]) -> None:
    """Warn that no topic matches yet; raise if Spark runs a batch again, because that batch needs its topics."""
    if state.unfinished is not None and {tp.topic for tp in state.unfinished.ranges()} - deleted:
        raise UnknownTopicError([], pattern=pattern)
    _log.warning(
        "%s: no topic matches subscribePattern %r yet. The query waits for one. If the topic exists, give the user "
        "of this query the right READ on it.",
        client_id,
        pattern,
    )
