"""What the query's progress shows of the group.  Pure: state in, JSON out.

Spark shows it as ``sources[i].latestOffset`` of a progress, the only channel that a Python source has.  The names
``*OffsetsBehindLatest`` are those of Spark's own source; lag is Kafka's: log end minus committed offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

FIELDS: Mapping[str, tuple[str, str]] = {
    "group": ("text or null", "`kafka.group.id`, or the name that was made up; null if no group keeps the offsets."),
    "clientId": ("text", "The member's CLIENT-ID in Kafka's tools."),
    "memberId": ("text", "The member's CONSUMER-ID in Kafka's tools; empty while it has none, and with `assign`."),
    "assigned": (
        "topic → partition → offset",
        "The partitions that this member has: the next offset to plan, null while it is being found out.",
    ),
    "draining": (
        "topic → partition → offset",
        "The partitions that the group wants back, and that wait for the running batch: the same.",
    ),
    "logEnd": ("topic → partition → offset", "The log end offset when the logs were looked at last."),
    "lag": (
        "topic → partition → number",
        "Log end offset minus committed offset: LAG in Kafka's tools. Only where both are known.",
    ),
    "totalLag": ("number", "The sum of `lag`: how much the group has yet to commit of this member's partitions."),
    "minOffsetsBehindLatest": (
        "number",
        "Log end offset minus the next offset to plan, of the partition with the least: as in Spark's own source. "
        "Batches that run are not behind, although they are not committed yet.",
    ),
    "maxOffsetsBehindLatest": ("number", "The same, of the partition with the most."),
    "avgOffsetsBehindLatest": ("number", "The same, on average over the partitions whose log end is known."),
    "events": ("event → number", "How often each [event](events.md) has happened in this run of the query."),
    "control": ("text or null", "For `pyspark_kafka_group.stop` and the listener: where the source process listens."),
}
"""What the report says: type and meaning of each field."""

_ByTopic = dict[str, dict[str, int | None]]


def partitions_report(state: State, ends: Mapping[TopicPartition, Offset]) -> dict[str, Any]:
    """Return what there is to say of each partition, and the sums.  Linear; the same arguments give the same report.

    Parameters
    ----------
    state : State
        The member's newest state.
    ends : mapping of TopicPartition to Offset
        Log ends, as last listed.
    """
    assigned: _ByTopic = {}
    draining: _ByTopic = {}
    log_ends: _ByTopic = {}
    lags: _ByTopic = {}
    total_lag = 0
    behind: list[int] = []
    for tp in sorted(state.owned):
        p = state.owned[tp]
        number = str(tp.partition)
        (draining if p.phase is Phase.DRAINING else assigned).setdefault(tp.topic, {})[number] = p.position
        end = ends.get(tp)
        if end is None:
            continue
        log_ends.setdefault(tp.topic, {})[number] = end
        if p.committed is not None:
            lag = max(0, end - p.committed)
            lags.setdefault(tp.topic, {})[number] = lag
            total_lag += lag
        if p.position is not None:
            behind.append(max(0, end - p.position))
    return {
        "assigned": assigned,
        "draining": draining,
        "logEnd": log_ends,
        "lag": lags,
        "totalLag": total_lag,
        "minOffsetsBehindLatest": min(behind, default=0),
        "maxOffsetsBehindLatest": max(behind, default=0),
        "avgOffsetsBehindLatest": sum(behind) / len(behind) if behind else 0.0,
    }


class Reporter:
    """Reports on one member.  Spark asks after each of its calls, and most often nothing has changed.

    Parameters
    ----------
    group_id : str or None
        As Kafka's tools show it; None if no group keeps the offsets.
    client_id : str
        As Kafka's tools show it.
    counts : mapping of str to int
        How often each event has happened in this run; changes meanwhile.
    """

    def __init__(self, *, group_id: str | None, client_id: str, counts: Mapping[str, int]) -> None:
        self._names: dict[str, str | None] = {"group": group_id, "clientId": client_id}
        self._counts = counts
        self._of: tuple[State, Mapping[TopicPartition, Offset]] | None = None
        self._partitions: dict[str, Any] = {}

    def report(
        self,
        state: State,
        ends: Mapping[TopicPartition, Offset],
        *,
        member_id: str,
        control: str | None,
    ) -> dict[str, Any]:
        """Return the report.

        Parameters
        ----------
        state, ends
            See :func:`partitions_report`.  Neither may be changed later.
        member_id : str
            As Kafka's tools show it.
        control : str or None
            Where the source process listens, see :mod:`pyspark_kafka_group.control.server`; None if it cannot.
        """
        if self._of is None or self._of[0] is not state or self._of[1] is not ends:
            self._of, self._partitions = (state, ends), partitions_report(state, ends)
        return {
            **self._names,
            "memberId": member_id,
            **self._partitions,
            "events": dict(self._counts),
            "control": control,
        }
