"""Whether a query must be warm before it joins its group.

A new query takes partitions as soon as it joins.  Only then does its first batch start Python workers, create clients
and compile.  Partitions of another query stand still meanwhile.  So if there is another query, the new one first runs
an empty batch, and joins when that is finished.  Otherwise it joins at once.
"""

from __future__ import annotations

import logging
import math
import re
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

# How long a start may wait for the list of members.  A healthy coordinator answers within milliseconds.
_PATIENCE_S = 2.0

# Most tasks of the empty batch.  Spark starts as many Python workers as it has free cores.  A query with more cores
# gets its other workers with its first full batch.
_MOST_TASKS = 16


_OF_A_QUERY = re.compile(r"-[0-9a-f]{8}$")
"""The end of the client id of a query of this project: the beginning of the query's id."""

_NAMED = 4


def ask_for_others(
    settings: GroupSettings,
    offsets: GroupOffsets,
    worker: DaemonExecutor,
    topics: Collection[str],
    undecided: Collection[TopicPartition],
    *,
    client_id: str,
) -> int:
    """Return from how many other queries this query would take partitions.

    The result is 0 also if the cluster does not say so, or if this query must join at once.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    offsets : GroupOffsets
        The requests to the cluster.
    worker : DaemonExecutor
        The thread that ``offsets`` belongs to.
    topics : collection of str
        The topics that this query subscribes to.
    undecided : collection of TopicPartition
        The partitions whose start this query decides if the group has no offset.  It then joins at once: otherwise,
        records that arrive after its first batch could be before its ``latest``.
    client_id : str
        The client id of this query.
    """
    if not has_group(settings):
        return 0
    patience = Deadline.after(_PATIENCE_S)
    try:
        group = worker.submit(offsets.describe).result(patience.left_s)
        _warn_of_other_programs(group, topics, settings.group_id)
        others = others_reading(group, topics, client_id=client_id)
        if others and undecided:
            ask = worker.submit(offsets.committed_offsets, undecided, require_stable=False)
            return others if ask.result(patience.left_s).found.keys() >= {*undecided} else 0
    except (TryAgainError, KafkaGroupError, TimeoutError) as problem:
        # Deliberate: not a reason to fail, even if the user lacks the right to ask.
        _log.debug("%s: cannot find out whether other queries read the topics: %r", client_id, problem)
        return 0
    return others


def _warn_of_other_programs(group: GroupDescription, topics: Collection[str], group_id: str) -> None:
    """Warn of members that are no queries of this project, because they share their partitions with this one."""
    names = [
        f"{member.client_id} at {member.host.lstrip('/')}"
        for member in group.members
        if not _OF_A_QUERY.search(member.client_id) and any(tp.topic in topics for tp in member.assignment)
    ]
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        _log.warning(
            "Another program is in the group %r: %s%s. It shares its partitions with this query from now on. If you "
            "did not intend that, stop this query and give it another kafka.group.id.",
            group_id,
            ", ".join(names[:_NAMED]),
            more,
        )


def has_group(settings: GroupSettings) -> bool:
    """Return whether a query can take partitions from others: it is a member, and not a static one.

    A static member that starts again gets its partitions at once.  A warm-up would only delay them.
    """
    return not settings.partitions and settings.start.keeps_offsets and "group.instance.id" not in settings.properties


def others_reading(group: GroupDescription, topics: Collection[str], *, client_id: str) -> int:
    """Return how many other queries have partitions of ``topics``, or may be about to get some.

    Parameters
    ----------
    group : GroupDescription
        The group before this query joins.
    topics : collection of str
        What this query subscribes to.
    client_id : str
        The client id of this query.
    """
    others = [member for member in group.members if not member.is_same_query(client_id)]
    if not group.is_rebalancing:
        others = [m for m in others if any(tp.topic in topics for tp in m.assignment | (m.target or frozenset()))]
    return len(others)


def tasks(partitions: int, others: int) -> int:
    """Return the number of tasks of the empty batch: this query's share of the partitions, within limits."""
    return max(1, min(_MOST_TASKS, math.ceil(partitions / (others + 1))))
