"""Measure at the sinks how long partitions pause, when they move and when they stay.

The latencies come from the times at which the sinks wrote batches.  Events only explain them.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from integration.oracles import Event, Member, Window
from integration.sink import Delivery

STAGES = ("revoked", "finished", "committed", "released", "assigned", "started", "planned", "rows")
"""The steps of a hand-over after the last row of the old owner, in order."""


@dataclass(frozen=True)
class HandOver:
    """The move of one partition from one member to another.

    Attributes
    ----------
    clean : bool
        Whether the old owner had committed everything when it released the partition.
    raw_s : float
        The time from the last row of the old owner to the first row of the new owner.
    net_s : float
        ``raw_s`` minus the remaining time of the batch that the new owner was running when it got the partition.
    move_s : float
        The time from the last row of the old owner to the plan with the partition, minus the same remaining time.  This
        is the cost of the rebalance, without the batch that reads the first rows.
    reached : mapping of str to float
        The time from the last row to each of the known :data:`STAGES`.
    """

    tp: str
    old: str
    new: str
    last_row: float
    first_row: float
    clean: bool
    raw_s: float
    net_s: float
    move_s: float
    reached: Mapping[str, float]


class Pause(NamedTuple):
    """A time without rows of a partition that stayed with its member."""

    seconds: float
    tp: str
    member: str
    begin: float
    end: float


def hand_overs(members: Sequence[Member]) -> list[HandOver]:
    """Return all hand-overs after which the new owner wrote rows, ordered by the time of the first row."""
    rows = _rows_by_partition(members)
    logs = {member.name: _Log(member.events) for member in members}
    starts: dict[str, list[tuple[float, str]]] = {}
    for member in members:
        for event in member.events:
            if event["event"] == "started":
                for tp in event["positions"]:
                    starts.setdefault(tp, []).append((event["time"], member.name))
    found = []
    for tp, times in starts.items():
        times.sort()
        for index, (started, new) in enumerate(times):
            before_next = times[index + 1][0] if index + 1 < len(times) else float("inf")
            at = bisect.bisect_left(rows.get(tp, []), started, key=lambda d: d.time)
            first = next((d for d in rows.get(tp, [])[at:] if d.member == new and d.time <= before_next), None)
            last = rows[tp][at - 1] if at else None
            if first is not None and last is not None and last.member != new:
                found.append(_measure(tp, last, first, started, logs[last.member], logs[new]))
    return sorted(found, key=lambda h: h.first_row)


def pauses(members: Sequence[Member]) -> list[Pause]:
    """Return the times between two writes of a partition that its member owned without a break."""
    starts: dict[tuple[str, str], list[float]] = {}
    for member in members:
        for event in member.events:
            if event["event"] == "started":
                for tp in event["positions"]:
                    starts.setdefault((member.name, tp), []).append(event["time"])
    found = []
    for tp, rows in _rows_by_partition(members).items():
        for before, after in itertools.pairwise(rows):
            if before.member == after.member:
                again = starts.get((before.member, tp), [])
                if bisect.bisect(again, before.time) == bisect.bisect(again, after.time):
                    found.append(Pause(after.time - before.time, tp, before.member, before.time, after.time))
    return found


def outside(found: Iterable[Pause], windows: Sequence[Window]) -> list[Pause]:
    """Return the pauses that touch no window."""
    return [
        p
        for p in found
        if not any(w.begin <= p.end and p.begin <= w.end and w.member in (None, p.member) for w in windows)
    ]


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _rows_by_partition(members: Sequence[Member]) -> dict[str, list[Delivery]]:
    rows: dict[str, list[Delivery]] = {}
    for member in members:
        for delivery in member.deliveries:
            rows.setdefault(delivery.tp, []).append(delivery)
    for found in rows.values():
        found.sort(key=lambda d: (d.time, d.start))
    return rows


class _Log:
    """The events of one member, indexed for lookups by time."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.batches: list[tuple[float, float]] = []
        self._times: dict[tuple[str, str], list[float]] = {}
        planned: float | None = None
        for event in events:
            name, time = event["event"], event["time"]
            if name in ("planned", "replayed"):
                planned = time
            elif name == "finished" and planned is not None:
                self.batches.append((planned, time))
                planned = None
            of = event.get("partitions") or event.get("ranges") or event.get("offsets") or event.get("positions") or ()
            for tp in of:
                self._times.setdefault((name, tp), []).append(time)

    def first(self, name: str, tp: str, *, since: float) -> float | None:
        """Return the time of the first such event of the partition, at or after ``since``."""
        times = self._times.get((name, tp), [])
        at = bisect.bisect_left(times, since)
        return times[at] if at < len(times) else None

    def last(self, name: str, tp: str, *, until: float) -> float | None:
        """Return the time of the last such event of the partition, up to ``until``."""
        times = self._times.get((name, tp), [])
        at = bisect.bisect_right(times, until)
        return times[at - 1] if at else None

    def busy_until(self, time: float) -> float:
        """Return the end of the batch that ran at ``time``, or ``time`` if no batch ran."""
        at = bisect.bisect_right(self.batches, (time, float("inf")))
        return max(time, self.batches[at - 1][1]) if at else time


def _measure(tp: str, last: Delivery, first: Delivery, started: float, old: _Log, new: _Log) -> HandOver:
    def after(log: _Log, name: str, since: float) -> float | None:
        time = log.first(name, tp, since=since)
        return time if time is not None and time <= started else None

    finished = after(old, "finished", last.time)
    committed = after(old, "committed", finished or last.time)
    released = after(old, "released", last.time)
    draining = old.last("draining", tp, until=started)
    if draining is not None and draining < last.time - 60:
        draining = None  # belongs to an earlier hand-over
    planned = new.first("planned", tp, since=started)
    times = {
        "revoked": draining if draining is not None else released,
        "finished": finished,
        "committed": committed,
        "released": released,
        "assigned": new.last("assigned", tp, until=started),
        "started": started,
        "planned": planned if planned is not None and planned <= first.time else None,
        "rows": first.time,
    }
    busy_s = max(0.0, min(new.busy_until(started), planned or first.time, first.time) - started)
    raw_s = first.time - last.time
    return HandOver(
        tp=tp,
        old=last.member,
        new=first.member,
        last_row=last.time,
        first_row=first.time,
        clean=released is not None,
        raw_s=raw_s,
        net_s=raw_s - busy_s,
        move_s=(times["planned"] or first.time) - last.time - busy_s,
        reached={stage: time - last.time for stage, time in times.items() if time is not None},
    )
