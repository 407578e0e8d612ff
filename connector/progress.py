"""What the query's progress shows of the group.  Pure: state in, JSON out.

Spark shows it as ``sources[i].latestOffset`` of a progress, the only channel that a Python source has.  The names
``*OffsetsBehindLatest`` are those of Spark's own source; lag is Kafka's: log end minus committed offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_kafka_group.coordinator.assignment import Phase, State
from pyspark_kafka_group.offsets.types import Offset, TopicPartition


def report(
    state: State,
    ends: Mapping[TopicPartition, Offset],
    *,
    group_id: str,
    client_id: str,
    member_id: str,
    counts: Mapping[str, int],
    control: str | None,
) -> dict[str, Any]:
    """Return the report of one member.

    Parameters
    ----------
    state : State
        The member's newest state.
    ends : mapping of TopicPartition to Offset
        Log ends, as last listed.
    group_id, client_id, member_id : str
        As Kafka's tools show them.
    counts : mapping of str to int
        How often each event happened in this run.
    control : str or None
        Where the source process listens, see :mod:`pyspark_kafka_group.control`; None if it cannot.
    """
    behind = [max(0, ends[tp] - p.position) for tp, p in state.owned.items() if tp in ends and p.position is not None]
    lags = {
        tp: max(0, ends[tp] - p.committed) for tp, p in state.owned.items() if tp in ends and p.committed is not None
    }
    return {
        "group": group_id,
        "clientId": client_id,
        "memberId": member_id,
        "assigned": _by_topic({tp: p.position for tp, p in state.owned.items() if p.phase is not Phase.DRAINING}),
        "draining": _by_topic({tp: p.position for tp, p in state.owned.items() if p.phase is Phase.DRAINING}),
        "logEnd": _by_topic({tp: ends[tp] for tp in state.owned if tp in ends}),
        "lag": _by_topic(lags),
        "totalLag": sum(lags.values()),
        "minOffsetsBehindLatest": min(behind, default=0),
        "maxOffsetsBehindLatest": max(behind, default=0),
        "avgOffsetsBehindLatest": sum(behind) / len(behind) if behind else 0.0,
        "events": dict(counts),
        "control": control,
    }


def _by_topic(values: Mapping[TopicPartition, int | None]) -> dict[str, dict[str, int | None]]:
    topics: dict[str, dict[str, int | None]] = {}
    for tp in sorted(values):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = values[tp]
    return topics
