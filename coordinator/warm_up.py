"""Whether a query has to be warm before it joins its group.

A new query takes partitions the moment it joins, and only then its first batch starts Python workers, makes clients and
compiles.  Partitions that another query reads stand still for all that time.  So where there is another one, the new
query runs an empty batch first, and joins when that is finished; where there is none, nothing would be won.

Pure: what is asked of the cluster is asked by :mod:`~pyspark_kafka_group.coordinator.membership`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import GroupDescription
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# How long a start may take for the question who else is in the group: with a coordinator that answers, milliseconds.
_PATIENCE_S = 2.0

# How many tasks the empty batch has at most.  Each needs a Python worker only as long as cores are free, and a machine
# with more cores for one query gets the rest of its workers with its first full batch.
_MOST_TASKS = 16


def ask_for_others(
    settings: GroupSettings,
    offsets: GroupOffsets,
    worker: DaemonExecutor,
    topics: Collection[str],
    undecided: Collection[TopicPartition],
    *,
    client_id: str,
) -> int:
    """Return from how many others partitions would be taken; 0 also if that is not known, or must not be waited for.

    Parameters
    ----------
    settings : GroupSettings
        The group.
    offsets : GroupOffsets
        Asks the cluster.
    worker : DaemonExecutor
        The thread that ``offsets`` belongs to.
    topics : collection of str
        What this query subscribes to.
    undecided : collection of TopicPartition
        Where this query would have to decide where to start, if nobody in the group has.  Then it joins at once: what
        comes after its first batch must not be before its ``latest``.
    client_id : str
        That of this query.
    """
    if not has_group(settings):
        return 0
    patience = Deadline.after(_PATIENCE_S)
    try:
        group = worker.submit(offsets.describe).result(patience.left_s)
        others = others_reading(group, topics, client_id=client_id)
        if others and undecided:
            ask = worker.submit(offsets.committed_offsets, undecided, require_stable=False)
            return others if ask.result(patience.left_s).found.keys() >= {*undecided} else 0
    except (TryAgainError, KafkaGroupError, TimeoutError) as problem:
        # Deliberate: not a reason to fail, also if the user may not ask.
        _log.debug("%s: whether others read the topics is not known: %r", client_id, problem)
        return 0
    return others


def has_group(settings: GroupSettings) -> bool:
    """Tell whether a query can take partitions from others: it is a member, and no static one.

    A static member that starts again has its partitions at once; to wait would only keep them waiting.
    """
    return not settings.partitions and settings.start.keeps_offsets and "group.instance.id" not in settings.properties


def others_reading(group: GroupDescription, topics: Collection[str], *, client_id: str) -> int:
    """Return how many other queries of the group have partitions of ``topics``, or may be given some just now.

    Parameters
    ----------
    group : GroupDescription
        As it is before this query joins.
    topics : collection of str
        What this query subscribes to.
    client_id : str
        That of this query.
    """
    others = [member for member in group.members if not member.is_same_query(client_id)]
    if not group.is_rebalancing:
        others = [m for m in others if any(tp.topic in topics for tp in m.assignment | (m.target or frozenset()))]
    return len(others)


def tasks(partitions: int, others: int) -> int:
    """Return how many tasks the empty batch has: as many as this query will read partitions, within reason."""
    return max(1, min(_MOST_TASKS, math.ceil(partitions / (others + 1))))
