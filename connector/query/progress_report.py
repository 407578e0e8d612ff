"""The group in the query's progress.  Pure: state in, JSON out.

Spark shows this report as ``sources[i].latestOffset`` of a progress, the only channel of a Python source.  The names
``*OffsetsBehindLatest`` are those of Spark's own source.  Lag is Kafka's, without the offsets that the brokers have
deleted: log end minus committed offset, or minus log start if that is higher.
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
    "group": ("text or null", "`kafka.group.id`, or the generated name; null if no group keeps the offsets."),
    "clientId": ("text", "The member's CLIENT-ID in Kafka's tools."),
    "memberId": (
        "text",
        "The member's CONSUMER-ID in Kafka's tools; empty until the member has one, and with `assign`.",
    ),
    "assigned": (
        "topic → partition → offset",
        "The partitions of this member and the next offset to plan. The offset is null until the query knows it.",
    ),
    "draining": (
        "topic → partition → offset",
        "The same for partitions that the group wants back, and that wait for the running batch.",
    ),
    "logEnd": (
        "topic → partition → offset",
        "The newest known log end offset; with `read_committed`, before the first open transaction. With "
        "`availableNow`, at most that of the start of the run, where the run ends.",
    ),
    "lag": (
        "topic → partition → number",
        "Log end offset minus committed offset: LAG in Kafka's tools, but without `expired`. Only for partitions where "
        "both are known.",
    ),
    "expired": (
        "topic → partition → number",
        "Offsets that the brokers deleted before the group read them: log start minus committed offset. Only for "
        "partitions with such offsets. The query lists the log starts once a minute, of the partitions with a lag.",
    ),
    "ahead": (
        "topic → partition → number",
        "Committed offset minus log end offset. Only for partitions whose committed offset is the higher one, for "
        "example while a transaction is open, or if another member has read on after the end of an `availableNow`.",
    ),
    "totalLag": ("number", "The sum of `lag`."),
    "minLag": ("number", "The smallest lag of a partition; 0 if none is known."),
    "maxLag": ("number", "The largest lag of a partition."),
    "avgLag": ("number", "The average lag of the partitions whose lag is known."),
    "minOffsetsBehindLatest": (
        "number",
        "The smallest distance of a partition: its log end offset minus the next offset to plan, as in Spark's own "
        "source. Records of a running batch do not count as behind, although they are not committed yet.",
    ),
    "maxOffsetsBehindLatest": ("number", "The largest distance of a partition."),
    "avgOffsetsBehindLatest": ("number", "The average distance of the partitions whose log end is known."),
    "heldBack": (
        "topic → partition → reason",
        "The partitions that could not be planned for 10 s or longer, and the reasons: see the event `heldBack`. Their "
        "lag is computed from the newest known log end.",
    ),
    "logEndAt": ("number or null", "When the query last listed the log ends, in seconds since 1970."),
    "generation": (
        "number or null",
        "The generation of the group at the last assignment of this member; under KIP-848 the member epoch.",
    ),
    "ownershipEpoch": ("number", "The number of assignments in this run of the query."),
    "events": ("event → number", "How often each [event](events.md) has happened in this run of the query."),
    "moved": (
        "how → number",
        "How many partitions have come in this run (`assigned`) and have left: `released`, `expired`, `lost`.",
    ),
    "assignedAt": ("number or null", "When partitions last came or left, in seconds since 1970."),
    "committedAt": ("number or null", "When the last commit of this run succeeded, in seconds since 1970."),
    "commitAgeMs": ("number or null", "Time since that commit. It also grows on an idle topic."),
    "timeMs": (
        "activity → number",
        "The time of this run by activity: `waiting` for partitions, `idle`, `planning`, `running` a batch (reading, "
        "your code and the sink), and `committing`, which mostly overlaps with the others.",
    ),
    "recordsConsumed": (
        "number",
        "The offsets in the batches of this run that Spark has finished. With compacted topics and transactions these "
        "are more than the records.",
    ),
    "finishedAt": ("number or null", "When Spark last finished a batch with records, in seconds since 1970."),
    "batchMs": ("number or null", "How long the running batch has run; null if none runs."),
    "calledAt": ("number or null", "When Spark last asked for a batch, in seconds since 1970."),
    "groupProblem": ("text or null", "Why the group has not answered for 10 s or longer; null if it does."),
    "alive": ("true or false", "Whether the thread of the member runs."),
    "control": ("text or null", "The address of the source process, for `pyspark_kafka_group.stop` and the listener."),
}
"""The fields of the report: type and meaning."""

_Offsets = Mapping[TopicPartition, Offset]
_ByTopic = dict[str, dict[str, int | None]]


def partitions_report(state: State, ends: _Offsets, starts: _Offsets = MappingProxyType({})) -> dict[str, Any]:
    """Return the fields about partitions and their sums.  Linear; the same arguments give the same report.

    Parameters
    ----------
    state : State
        The member's newest state.
    ends : mapping of TopicPartition to Offset
        The newest known log ends.
    starts : mapping of TopicPartition to Offset
        The newest known log starts, of partitions with a lag.
    """
    assigned: _ByTopic = {}
    draining: _ByTopic = {}
    log_ends: _ByTopic = {}
    lags: _ByTopic = {}
    expired: _ByTopic = {}
    ahead: _ByTopic = {}
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
        start = min(end, starts.get(tp, 0))
        if p.committed is not None:
            lag = max(0, end - max(p.committed, start))
            lags.setdefault(tp.topic, {})[number] = lag
            every_lag.append(lag)
            if p.committed < start:
                expired.setdefault(tp.topic, {})[number] = start - p.committed
            if p.committed > end:
                ahead.setdefault(tp.topic, {})[number] = p.committed - end
        if p.position is not None:
            behind.append(max(0, end - max(p.position, start)))
    return {
        "assigned": assigned,
        "draining": draining,
        "logEnd": log_ends,
        "lag": lags,
        "expired": expired,
        "ahead": ahead,
        "totalLag": sum(every_lag),
        "minLag": min(every_lag, default=0),
        "maxLag": max(every_lag, default=0),
        "avgLag": sum(every_lag) / len(every_lag) if every_lag else 0.0,
        "minOffsetsBehindLatest": min(behind, default=0),
        "maxOffsetsBehindLatest": max(behind, default=0),
        "avgOffsetsBehindLatest": sum(behind) / len(behind) if behind else 0.0,
    }


class Reporter:
    """Reports on one member.  Spark asks for the report after each of its calls, and mostly nothing has changed.

    Parameters
    ----------
    group_id : str or None
        The group; None if no group keeps the offsets.
    client_id : str
        The member's CLIENT-ID.
    activity : Activity
        The counters of this run, which change during the run.
    calendar : callable
        Returns the time in seconds since 1970.
    """

    def __init__(
        self, *, group_id: str | None, client_id: str, activity: Activity, calendar: Callable[[], float] = time.time
    ) -> None:
        self._names: dict[str, str | None] = {"group": group_id, "clientId": client_id}
        self._activity = activity
        self._calendar = calendar
        # The last report with its arguments.  One object: two threads report, and each must see matching parts.
        self._last: tuple[State, _Offsets, _Offsets, dict[str, Any]] | None = None

    def report(
        self,
        state: State,
        ends: _Offsets,
        starts: _Offsets = MappingProxyType({}),
        *,
        listed_at: float | None,
        member_id: str,
        control: str | None,
        held_back: Mapping[TopicPartition, str] = MappingProxyType({}),
        group_problem: str | None = None,
        alive: bool = True,
    ) -> dict[str, Any]:
        """Return the report.  Any thread.

        Parameters
        ----------
        state, ends, starts
            See :func:`partitions_report`.  Do not change them later.
        listed_at : float or None
            When the query listed the log ends, in seconds since 1970.
        member_id : str
            The member's CONSUMER-ID.
        control : str or None
            The address of the control socket, see :mod:`pyspark_kafka_group.control.server`; None without a socket.
        held_back : mapping of TopicPartition to str
            Why a partition has not been planned for a while.
        group_problem : str or None
            Why the group has not answered for a while.
        alive : bool
            Whether the group thread runs.
        """
        reasons: dict[str, dict[str, str]] = {}
        for tp in sorted(held_back):
            reasons.setdefault(tp.topic, {})[str(tp.partition)] = held_back[tp]
        activity = self._activity
        committed_at, batch_s = activity.committed_at, activity.batch_s  # once each: other threads change them
        return {
            **self._names,
            "memberId": member_id,
            **self.partitions(state, ends, starts),
            "heldBack": reasons,
            "logEndAt": listed_at,
            "generation": activity.generation,
            "ownershipEpoch": state.last_epoch,
            "events": dict(activity.counts),
            "moved": dict(activity.moved),
            "assignedAt": activity.assigned_at,
            "committedAt": committed_at,
            "commitAgeMs": None if committed_at is None else max(0, round(1000 * (self._calendar() - committed_at))),
            "timeMs": {what.value: round(1000 * seconds) for what, seconds in activity.spent().items()},
            "recordsConsumed": activity.consumed,
            "finishedAt": activity.finished_at,
            "batchMs": None if batch_s is None else round(1000 * batch_s),
            "calledAt": activity.called_at,
            "groupProblem": group_problem,
            "alive": alive,
            "control": control,
        }

    def partitions(self, state: State, ends: _Offsets, starts: _Offsets) -> dict[str, Any]:
        """Return :func:`partitions_report`, as the same object while the arguments are the same objects."""
        last = self._last
        if last is None or last[0] is not state or last[1] is not ends or last[2] is not starts:
            last = self._last = (state, ends, starts, partitions_report(state, ends, starts))
        return last[3]
