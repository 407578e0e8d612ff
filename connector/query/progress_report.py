"""What the query's progress shows of the group.  Pure: state in, JSON out.

Spark shows it as ``sources[i].latestOffset`` of a progress, the only channel that a Python source has.  The names
``*OffsetsBehindLatest`` are those of Spark's own source; lag is Kafka's: log end minus committed offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pyspark_kafka_group.coordinator.activity import Activity
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
    "logEnd": (
        "topic → partition → offset",
        "The log end offset when the logs were looked at last, or the last one that was found.",
    ),
    "lag": (
        "topic → partition → number",
        "Log end offset minus committed offset: LAG in Kafka's tools. Only where both are known.",
    ),
    "totalLag": ("number", "The sum of `lag`: how much the group has yet to commit of this member's partitions."),
    "minLag": ("number", "The lag of the partition with the least; 0 if none is known."),
    "maxLag": ("number", "The same, of the partition with the most."),
    "avgLag": ("number", "The same, on average over the partitions whose lag is known."),
    "minOffsetsBehindLatest": (
        "number",
        "Log end offset minus the next offset to plan, of the partition with the least: as in Spark's own source. "
        "Batches that run are not behind, although they are not committed yet.",
    ),
    "maxOffsetsBehindLatest": ("number", "The same, of the partition with the most."),
    "avgOffsetsBehindLatest": ("number", "The same, on average over the partitions whose log end is known."),
    "heldBack": (
        "topic → partition → reason",
        "The partitions of which nothing can be planned for 10 s or longer, and why: the event `heldBack`. Their lag "
        "counts with the last log end that was found.",
    ),
    "logEndAt": ("number or null", "When the logs were looked at last, in seconds since 1970."),
    "generation": (
        "number or null",
        "The generation of the group, under KIP-848 the member epoch, when it last gave this member partitions.",
    ),
    "ownershipEpoch": ("number", "How many assignments this run of the query has had: the newest one's number."),
    "events": ("event → number", "How often each [event](events.md) has happened in this run of the query."),
    "moved": (
        "how → number",
        "How many partitions have come in this run (`assigned`), and how they left: `released`, `expired`, `lost`.",
    ),
    "assignedAt": ("number or null", "When partitions last came or went, in seconds since 1970."),
    "committedAt": ("number or null", "When the last commit of this run succeeded, in seconds since 1970."),
    "commitAgeMs": ("number or null", "How long ago that was. It grows on an idle topic, too."),
    "timeMs": (
        "where → number",
        "Where the time of this run went: `waiting` for partitions, `idle`, `planning`, `running` a batch (reading, "
        "your code and the sink; Spark tells a source no more), and, most often beside these, `committing`.",
    ),
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
    every_lag: list[int] = []
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
            every_lag.append(lag)
        if p.position is not None:
            behind.append(max(0, end - p.position))
    return {
        "assigned": assigned,
        "draining": draining,
        "logEnd": log_ends,
        "lag": lags,
        "totalLag": sum(every_lag),
        "minLag": min(every_lag, default=0),
        "maxLag": max(every_lag, default=0),
        "avgLag": sum(every_lag) / len(every_lag) if every_lag else 0.0,
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
    activity : Activity
        What it has done; changes meanwhile.
    calendar : callable
        Tells the time in seconds since 1970.
    """

    def __init__(
        self, *, group_id: str | None, client_id: str, activity: Activity, calendar: Callable[[], float] = time.time
    ) -> None:
        self._names: dict[str, str | None] = {"group": group_id, "clientId": client_id}
        self._activity = activity
        self._calendar = calendar
        # What was reported last.  One object: two threads report, and each must see what belongs together.
        self._last: tuple[State, Mapping[TopicPartition, Offset], dict[str, Any]] | None = None

    def report(
        self,
        state: State,
        ends: Mapping[TopicPartition, Offset],
        *,
        looked_at: float | None,
        member_id: str,
        control: str | None,
        held_back: Mapping[TopicPartition, str] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Return the report.  Any thread.

        Parameters
        ----------
        state, ends
            See :func:`partitions_report`.  Neither may be changed later.
        looked_at : float or None
            When the log ends were listed, in seconds since 1970.
        member_id : str
            As Kafka's tools show it.
        control : str or None
            Where the source process listens, see :mod:`pyspark_kafka_group.control.server`; None if it cannot.
        held_back : mapping of TopicPartition to str
            The partitions that cannot be planned for a while, and why.
        """
        reasons: dict[str, dict[str, str]] = {}
        for tp in sorted(held_back):
            reasons.setdefault(tp.topic, {})[str(tp.partition)] = held_back[tp]
        activity = self._activity
        committed_at = activity.committed_at
        return {
            **self._names,
            "memberId": member_id,
            **self.partitions(state, ends),
            "heldBack": reasons,
            "logEndAt": looked_at,
            "generation": activity.generation,
            "ownershipEpoch": state.last_epoch,
            "events": dict(activity.counts),
            "moved": dict(activity.moved),
            "assignedAt": activity.assigned_at,
            "committedAt": committed_at,
            "commitAgeMs": None if committed_at is None else max(0, round(1000 * (self._calendar() - committed_at))),
            "timeMs": {what.value: round(1000 * seconds) for what, seconds in activity.spent().items()},
            "control": control,
        }

    def partitions(self, state: State, ends: Mapping[TopicPartition, Offset]) -> dict[str, Any]:
        """Return :func:`partitions_report`; the very same one while nothing has changed."""
        last = self._last
        if last is None or last[0] is not state or last[1] is not ends:
            last = self._last = (state, ends, partitions_report(state, ends))
        return last[2]
