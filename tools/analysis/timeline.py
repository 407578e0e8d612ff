"""From event logs to a timeline: which member had which partition when, its batches, and its lag.  Pure.

A member that is killed tells no end.  Its partitions end when another member is given them, or when it joins again.
Clocks of machines differ: an end that is told a little after the next owner's beginning counts all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark_kafka_group.tools.analysis.event_lines import EventLine, split

TAKEN = "taken"
"""How a span ends whose member has not told of the end."""

OPEN = "open"
"""How a span ends that goes on."""

_SHOWN = (
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
)
_SHOWN_ONCE_A_ROW = ("commitFailed",)


@dataclass(slots=True, kw_only=True)
class Span:
    """A partition that a member had.

    Attributes
    ----------
    start, end : float
        In seconds since 1970.
    draining : float or None
        Since when the group wanted it back while it was busy.
    how : str
        How it ended: the name of the event, :data:`TAKEN` or :data:`OPEN`.
    """

    member: str
    partition: str
    start: float
    end: float
    draining: float | None = None
    how: str = OPEN


@dataclass(slots=True, kw_only=True)
class Batch:
    """A batch, or several of one member that are drawn as one.

    Attributes
    ----------
    start, end : float
        From its plan until Spark has finished it.
    records : int
        The offsets that it reads.
    count : int
        How many batches it stands for.
    replay : bool
        Whether it ran again.
    """

    member: str
    start: float
    end: float
    records: int
    count: int = 1
    replay: bool = False


@dataclass(slots=True, kw_only=True)
class Mark:
    """Something that has happened to a member at one moment, with how many partitions."""

    member: str
    time: float
    name: str
    partitions: int


@dataclass(slots=True, kw_only=True)
class MemberSums:
    """What a member has done in all."""

    batches: int = 0
    records: int = 0
    assigned: int = 0
    released: int = 0
    expired: int = 0
    lost: int = 0
    taken: int = 0
    commits: int = 0
    failed_commits: int = 0


@dataclass(slots=True, kw_only=True)
class Timeline:
    """All of it.

    Attributes
    ----------
    start, end : float
        The first and the last event.
    members : dict
        By client id, in the order of their first events.
    partitions : list of str
        In the order of topics and numbers.
    lag : list of (float, str, int)
        When which member's lag was what.
    """

    start: float = 0.0
    end: float = 0.0
    members: dict[str, MemberSums] = field(default_factory=dict)
    partitions: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    lag: list[tuple[float, str, int]] = field(default_factory=list)


def timeline(lines: Iterable[EventLine], *, most: int = 20_000) -> Timeline:
    """Return the timeline of some events.

    Parameters
    ----------
    lines : iterable of EventLine
        In any order.
    most : int
        If there are more batches, neighbours are put together; of so many lags, the largest ones of a stretch of time
        are kept.
    """
    builder = _Builder()
    for line in sorted(lines, key=lambda one: one.time):
        builder.take(line)
    made = builder.finished()
    made.batches = _fewer(made.batches, made, most)
    made.lag = _largest(made.lag, made, most)
    return made


class _Builder:
    def __init__(self) -> None:
        self._made = Timeline()
        self._began = False
        self._open: dict[tuple[str, str], Span] = {}
        self._owner: dict[str, str] = {}
        self._taken: dict[tuple[str, str], Span] = {}
        self._running: dict[str, Batch] = {}
        self._failing: set[str] = set()

    def take(self, line: EventLine) -> None:
        made, fields = self._made, line.fields
        if not self._began:
            made.start, self._began = line.time, True
        made.end = line.time
        sums = made.members.setdefault(line.member, MemberSums())
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
                    if (span := self._open.get((line.member, partition))) is not None:
                        span.draining = line.time
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
                records = sum(until - start for start, until in fields.get("ranges", {}).values())
                self._finish(line)
                self._running[line.member] = Batch(
                    member=line.member,
                    start=line.time,
                    end=line.time,
                    records=records,
                    replay=line.name == "replayed",
                )
            case "finished":
                self._finish(line)
            case "committed":
                sums.commits += 1
                self._failing.discard(line.member)
            case "commitFailed":
                sums.failed_commits += 1
            case "lag":
                made.lag.append((line.time, line.member, sum(fields.get("topics", {}).values())))
            case _:
                pass
        self._mark(line)

    def finished(self) -> Timeline:
        made = self._made
        for span in self._open.values():
            span.end = made.end
        for batch in self._running.values():
            batch.end = made.end
            self._count(batch)
        for span in made.spans:
            if span.how == TAKEN:
                made.members[span.member].taken += 1
        made.partitions = sorted({span.partition for span in made.spans}, key=split)
        made.batches.sort(key=lambda batch: batch.start)
        return made

    def _begin(self, line: EventLine, partition: str) -> None:
        key = (line.member, partition)
        before = self._owner.get(partition)
        if before is not None and (span := self._open.pop((before, partition), None)) is not None:
            span.end, span.how = line.time, TAKEN
            self._taken[before, partition] = span
        self._owner[partition] = line.member
        span = Span(member=line.member, partition=partition, start=line.time, end=line.time)
        self._open[key] = span
        self._made.spans.append(span)
        self._made.members[line.member].assigned += 1

    def _end(self, line: EventLine, partition: str, how: str) -> None:
        key = (line.member, partition)
        span = self._open.pop(key, None) or self._taken.pop(key, None)
        if span is None:
            return
        span.end, span.how = line.time, how
        sums = self._made.members[line.member]
        match how:
            case "released":
                sums.released += 1
            case "expired":
                sums.expired += 1
            case "lost":
                sums.lost += 1
            case _:
                pass

    def _end_all(self, line: EventLine, how: str) -> None:
        for _member, partition in [key for key in self._open if key[0] == line.member]:
            self._end(line, partition, how)

    def _finish(self, line: EventLine) -> None:
        batch = self._running.pop(line.member, None)
        if batch is not None:
            batch.end = line.time
            self._count(batch)

    def _count(self, batch: Batch) -> None:
        sums = self._made.members[batch.member]
        sums.batches += 1
        sums.records += batch.records
        self._made.batches.append(batch)

    def _mark(self, line: EventLine) -> None:
        first = line.name in _SHOWN_ONCE_A_ROW and line.member not in self._failing
        if line.name in _SHOWN_ONCE_A_ROW:
            self._failing.add(line.member)
        if line.name in _SHOWN or first:
            fields = line.fields
            named = fields.get("partitions") or fields.get("ranges") or ([1] if "partition" in fields else [])
            self._made.marks.append(Mark(member=line.member, time=line.time, name=line.name, partitions=len(named)))


def _fewer(batches: list[Batch], made: Timeline, most: int) -> list[Batch]:
    """Put batches of one member together that begin in the same stretch of time, until there are few enough."""
    stretches = 2048
    while len(batches) > most and stretches >= 1:
        width = max((made.end - made.start) / stretches, 1e-9)
        merged: dict[tuple[str, int, bool], Batch] = {}
        for batch in batches:
            key = (batch.member, int((batch.start - made.start) / width), batch.replay)
            one = merged.setdefault(
                key, Batch(member=batch.member, start=batch.start, end=batch.end, records=0, count=0)
            )
            one.end, one.replay = max(one.end, batch.end), batch.replay
            one.records += batch.records
            one.count += batch.count
        batches = sorted(merged.values(), key=lambda batch: batch.start)
        stretches //= 2
    return batches


def _largest(lag: list[tuple[float, str, int]], made: Timeline, most: int) -> list[tuple[float, str, int]]:
    """Keep the largest lag of each member in each stretch of time, and the last one, if there are too many."""
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
