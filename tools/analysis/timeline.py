"""Makes a timeline from event logs: which member owned which partition when, its batches, and its lag.  Pure.

A member that is killed reports no end.  Its partitions end when another member gets them, or when it joins again.  The
clocks of machines differ, so an end that is reported a little after the next owner's start still counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark_kafka_group.tools.analysis.arguments import PartitionChoice, is_chosen
from pyspark_kafka_group.tools.analysis.event_lines import EventLine, split

TAKEN = "taken"
"""End of an ownership that its member has not reported."""

OPEN = "open"
"""End of an ownership that continues."""

TOTALS = {
    "batches": "batches",
    "records": "records",
    "assigned": "partitions assigned",
    "released": "released",
    "expired": "expired",
    "lost": "lost",
    TAKEN: "end not reported",
    "committed": "commits",
    "commitFailed": "failed commits",
}
"""The totals of each member, and their names in the table."""

_MARKED = frozenset(
    [
        "warming",
        "joined",
        "left",
        "assigned",
        "draining",
        "expired",
        "lost",
        "replayed",
        "rewound",
        "recordsLost",
        "logChanged",
    ]
)
_MARKED_ONCE_IN_A_ROW = "commitFailed"


@dataclass(slots=True, kw_only=True)
class Ownership:
    """A partition that a member owned.

    Attributes
    ----------
    start, end : float
        Seconds since 1970.
    draining : float or None
        The time at which the group requested it back, while a batch was reading it.
    how : str
        Its end: the name of the event, :data:`TAKEN` or :data:`OPEN`.
    """

    member: str
    partition: str
    start: float
    end: float
    draining: float | None = None
    how: str = OPEN


@dataclass(slots=True, kw_only=True)
class BatchBar:
    """A batch, or several batches of one member that are drawn as one.

    Attributes
    ----------
    start, end : float
        From the plan until Spark has finished it.
    records : int
        The number of offsets that it reads.
    count : int
        The number of batches.
    replay : bool
        Whether it is a batch that runs again.
    """

    member: str
    start: float
    end: float
    records: int
    count: int = 1
    replay: bool = False


@dataclass(slots=True, kw_only=True)
class EventMark:
    """An event of a member, with the number of its partitions."""

    member: str
    time: float
    name: str
    partitions: int


@dataclass(slots=True, kw_only=True)
class Timeline:
    """Everything that the page draws.

    Attributes
    ----------
    start, end : float
        The first and the last event.
    members : dict
        The totals of each member by client id, in the order of their first events.  The keys are :data:`TOTALS`.
    partitions : list of str
        The partitions, by topic and number.
    lag : list of (float, str, int)
        Time, member, and lag.
    """

    start: float = 0.0
    end: float = 0.0
    members: dict[str, Counter[str]] = field(default_factory=dict)
    partitions: list[str] = field(default_factory=list)
    ownerships: list[Ownership] = field(default_factory=list)
    batches: list[BatchBar] = field(default_factory=list)
    marks: list[EventMark] = field(default_factory=list)
    lag: list[tuple[float, str, int]] = field(default_factory=list)


def timeline(lines: Iterable[EventLine], *, topics: PartitionChoice | None = None, most: int = 20_000) -> Timeline:
    """Return the timeline of some events.

    Parameters
    ----------
    lines : iterable of EventLine
        The events, in any order.
    topics : PartitionChoice, optional
        The partitions to draw; all by default.
    most : int
        Maximum number of batches and of lags.  Neighbouring batches are merged, and the largest lags are kept.
    """
    builder = _Builder()
    for line in sorted(lines, key=lambda one: one.time):
        builder.take(line)
    made = builder.finished(topics or {})
    made.batches = _fewer(made.batches, made, most)
    made.lag = _largest(made.lag, made, most)
    return made


class _Builder:
    def __init__(self) -> None:
        self._made = Timeline()
        self._open: dict[tuple[str, str], Ownership] = {}
        self._owner: dict[str, str] = {}
        self._taken: dict[tuple[str, str], Ownership] = {}
        self._running: dict[str, BatchBar] = {}
        self._failing: set[str] = set()

    def take(self, line: EventLine) -> None:
        made, fields = self._made, line.fields
        if not made.members:
            made.start = line.time
        made.end = line.time
        totals = made.members.setdefault(line.member, Counter())
        match line.name:
            case "joined":
                self._end_all(line, TAKEN)
            case "assigned":
                for partition in fields.get("partitions", ()):
                    self._begin(line, partition)
            case "started":
                for partition in fields.get("positions", {}):
                    if (line.member, partition) not in self._open:  # the log begins in the middle
                        self._begin(line, partition)
            case "draining":
                for partition in fields.get("partitions", ()):
                    if (owned := self._open.get((line.member, partition))) is not None:
                        owned.draining = line.time
            case "released" | "lost":
                for partition in fields.get("partitions", ()):
                    self._end(line, partition, line.name)
            case "expired":
                for partition in fields.get("ranges", {}):
                    self._end(line, partition, line.name)
            case "left":
                self._end_all(line, "left")
                self._finish(line)
            case "planned" | "replayed":
                self._finish(line)
                records = sum(until - start for start, until in fields.get("ranges", {}).values())
                self._running[line.member] = BatchBar(
                    member=line.member,
                    start=line.time,
                    end=line.time,
                    records=records,
                    replay=line.name == "replayed",
                )
            case "finished":
                self._finish(line)
            case "committed":
                totals[line.name] += 1
                self._failing.discard(line.member)
            case "commitFailed":
                totals[line.name] += 1
            case "lag":
                made.lag.append((line.time, line.member, sum(fields.get("topics", {}).values())))
            case _:
                pass
        self._mark(line)

    def finished(self, topics: PartitionChoice) -> Timeline:
        made = self._made
        for owned in self._open.values():
            owned.end = made.end
        for batch in self._running.values():
            self._count(batch, made.end)
        for owned in made.ownerships:
            if owned.how != OPEN and owned.how in TOTALS:
                made.members[owned.member][owned.how] += 1
        made.ownerships = [owned for owned in made.ownerships if is_chosen(topics, *split(owned.partition))]
        made.partitions = sorted({owned.partition for owned in made.ownerships}, key=split)
        made.batches.sort(key=lambda batch: batch.start)
        return made

    def _begin(self, line: EventLine, partition: str) -> None:
        before = self._owner.get(partition)
        if before is not None and (owned := self._open.pop((before, partition), None)) is not None:
            owned.end, owned.how = line.time, TAKEN
            self._taken[before, partition] = owned
        self._owner[partition] = line.member
        owned = Ownership(member=line.member, partition=partition, start=line.time, end=line.time)
        self._open[line.member, partition] = owned
        self._made.ownerships.append(owned)
        self._made.members[line.member]["assigned"] += 1

    def _end(self, line: EventLine, partition: str, how: str) -> None:
        key = (line.member, partition)
        owned = self._open.pop(key, None) or self._taken.pop(key, None)
        if owned is not None:
            owned.end, owned.how = line.time, how

    def _end_all(self, line: EventLine, how: str) -> None:
        for _member, partition in [key for key in self._open if key[0] == line.member]:
            self._end(line, partition, how)

    def _finish(self, line: EventLine) -> None:
        batch = self._running.pop(line.member, None)
        if batch is not None:
            self._count(batch, line.time)

    def _count(self, batch: BatchBar, end: float) -> None:
        batch.end = end
        self._made.members[batch.member].update(batches=1, records=batch.records)
        self._made.batches.append(batch)

    def _mark(self, line: EventLine) -> None:
        first = line.name == _MARKED_ONCE_IN_A_ROW and line.member not in self._failing
        if first:
            self._failing.add(line.member)
        if first or line.name in _MARKED:
            fields = line.fields
            named = fields.get("partitions") or fields.get("ranges") or ([1] if "partition" in fields else [])
            self._made.marks.append(
                EventMark(member=line.member, time=line.time, name=line.name, partitions=len(named))
            )


def _fewer(batches: list[BatchBar], made: Timeline, most: int) -> list[BatchBar]:
    """Merge batches of one member that begin in the same stretch of time, until there are few enough."""
    stretches = 2048
    while len(batches) > most and stretches >= 1:
        width = max((made.end - made.start) / stretches, 1e-9)
        merged: dict[tuple[str, int, bool], BatchBar] = {}
        for batch in batches:
            key = (batch.member, int((batch.start - made.start) / width), batch.replay)
            one = merged.get(key)
            if one is None:
                merged[key] = batch
            else:
                one.end = max(one.end, batch.end)
                one.records += batch.records
                one.count += batch.count
        batches = sorted(merged.values(), key=lambda batch: batch.start)
        stretches //= 2
    return batches


def _largest(lag: list[tuple[float, str, int]], made: Timeline, most: int) -> list[tuple[float, str, int]]:
    """Keep the largest lag of each member in each stretch of time, and its last one, if there are too many."""
    if len(lag) <= most:
        return lag
    width = max((made.end - made.start) * len(made.members) / most, 1e-9)
    kept: dict[tuple[str, int], tuple[float, str, int]] = {}
    last: dict[str, tuple[float, str, int]] = {}
    for point in lag:
        time, member, value = point
        last[member] = point
        key = member, int((time - made.start) / width)
        if key not in kept or value > kept[key][2]:
            kept[key] = point
    return sorted({*kept.values(), *last.values()})
