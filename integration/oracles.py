"""Judge a whole run by the rows in all sinks, the events of the members, and the commits in Kafka.

All judges are pure functions of a recording.  ``tests/integration_oracles`` shows that each of them finds violations.
A violation is a line of text with the broken rule, the place and the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from integration.pipelines import assert_orderly
from integration.sink import Delivery, runs

Event = dict[str, Any]
Produced = Mapping[tuple[str, int], int]

SHOWN = 20
"""The number of violations of one kind that a report lists."""

# Brokers cut times to milliseconds.
_CLOCK_SLACK_S = 0.01

# The query reads an offset back 3 s after an unclear commit, and a busy machine needs longer.
_RESTORED_S = 15.0


@dataclass(frozen=True)
class Member:
    """The recording of one query, across its restarts."""

    name: str
    events: Sequence[Event]
    deliveries: Sequence[Delivery]


class Committed(NamedTuple):
    """The group's committed offset at one time, or a commit at that time; None if there is no offset."""

    time: float
    tp: str
    offset: int | None


class Reset(NamedTuple):
    """An operator's reset of the group's offset.  At ``end``, the offset was back at its old value or higher."""

    tp: str
    begin: float
    end: float


class Window(NamedTuple):
    """A time that does not count, for one member, or for all members if ``member`` is None."""

    begin: float
    end: float
    member: str | None = None


@dataclass
class DeliveryVerdict:
    """The counts of the records of a run.

    Attributes
    ----------
    declared_records : int
        The number of records that the members declared as possibly processed twice, including those that were not.
    duplicated : int
        The number of records that were delivered more than once, in a declared range.
    undeclared : int
        The number of records that were delivered more than once, without a declaration.
    """

    produced: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    undeclared: int = 0
    foreign: int = 0
    declared_records: int = 0
    violations: list[str] = field(default_factory=list)


def memberships(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Split the events of a query at its restarts.  Each process joins at most once, and leaves at its end."""
    current: list[Event] = []
    for event in events:
        if current and (event["event"] == "joined" or current[-1]["event"] == "left"):
            yield current
            current = []
        current.append(event)
    if current:
        yield current


def declared(events: Iterable[Event]) -> Iterator[tuple[str, int, int]]:
    """Yield the ranges ``(partition, start, until)`` that may be processed twice, according to a query's events.

    These are:

    * ranges that left uncommitted (``expired``, ``lost``, ``logChanged``);
    * ranges that ran again although another member had them (``replayed``);
    * ranges that a replay left out because another member has them (``replayed``);
    * ranges that a killed process had planned and not committed.
    """
    for membership in memberships(events):
        open_ranges: dict[str, list[tuple[int, int]]] = {}
        for event in membership:
            match event["event"]:
                case "planned":
                    for tp, (start, until) in event["ranges"].items():
                        open_ranges.setdefault(tp, []).append((start, until))
                case "replayed":
                    for tp, (start, until) in event["ranges"].items():
                        open_ranges.setdefault(tp, []).append((start, until))
                        if tp in event.get("not_owned", ()):
                            yield tp, start, until
                    skipped = event.get("skipped", {})
                    yield from ((tp, *ends) for tp, ends in skipped.items())
                case "committed":
                    for tp, offset in event["offsets"].items():
                        open_ranges[tp] = [(max(s, offset), u) for s, u in open_ranges.get(tp, ()) if u > offset]
                case "expired":
                    for tp, (start, until) in event["ranges"].items():
                        yield tp, start, until
                        open_ranges.pop(tp, None)
                case "lost" | "logChanged":
                    for tp, (start, until) in event["ranges"].items():
                        yield tp, start, until
                    for tp in event["partitions"]:
                        open_ranges.pop(tp, None)
                case "left":
                    open_ranges.clear()  # `expired` has named all ranges that were open then
        for tp, ranges in open_ranges.items():
            yield from ((tp, start, until) for start, until in ranges)


def judge_deliveries(
    produced: Produced, members: Sequence[Member], invisible: Mapping[str, Collection[int]] = MappingProxyType({})
) -> DeliveryVerdict:
    """Count the delivered records; report lost ones, foreign ones, and repeats without a declaration.

    Parameters
    ----------
    produced : mapping
        The end of each log.
    members : sequence of Member
        All members of the group.
    invisible : mapping
        The offsets of each partition that no reader gets: aborted records, and transaction markers.
    """
    verdict = DeliveryVerdict(produced=sum(produced.values()) - sum(map(len, invisible.values())))
    size = {f"{topic}-{partition}": count for (topic, partition), count in produced.items()}
    counts = {tp: [0] * count for tp, count in size.items()}
    allowed = {tp: bytearray(count) for tp, count in size.items()}
    for member in members:
        for tp, start, until in declared(member.events):
            if tp in allowed:
                end = min(until, size[tp])
                allowed[tp][start:end] = b"\1" * max(0, end - start)
    deliveries = [delivery for member in members for delivery in member.deliveries]
    for d in deliveries:
        known = size.get(d.tp, 0)
        if d.until > known:
            verdict.foreign += d.until - max(d.start, known)
            verdict.violations.append(f"delivered and never produced: {told(d)}, the partition ends at {known}")
        for offset in range(d.start, min(d.until, known)):
            counts[d.tp][offset] += 1
    for tp, found in counts.items():
        hidden = invisible.get(tp, ())
        read = [o for o in hidden if found[o]]
        verdict.foreign += len(read)
        verdict.violations += [f"delivered and not committed: {tp} [{start}, {until})" for start, until in runs(read)]
        lost = [o for o, n in enumerate(found) if n == 0 and o not in hidden]
        twice = [o for o, n in enumerate(found) if n > 1]
        undeclared = [o for o in twice if not allowed[tp][o]]
        verdict.declared_records += sum(allowed[tp])
        verdict.delivered += sum(map(bool, found))
        verdict.lost += len(lost)
        verdict.duplicated += len(twice) - len(undeclared)
        verdict.undeclared += len(undeclared)
        verdict.violations += [f"lost: {tp} [{start}, {until})" for start, until in runs(lost)]
        for start, until in runs(undeclared):
            by = [told(d) for d in deliveries if d.tp == tp and d.start < until and d.until > start]
            verdict.violations.append(f"twice and not declared: {tp} [{start}, {until}), by " + "; ".join(by))
    return verdict


def judge_members(members: Iterable[Member]) -> list[str]:
    """Return a violation for each membership that breaks a rule of :func:`~integration.pipelines.assert_orderly`."""
    problems = []
    for member in members:
        for number, membership in enumerate(memberships(member.events)):
            try:
                assert_orderly(membership)
            except AssertionError as problem:
                problems.append(f"{member.name}, membership {number}: {problem}")
    return problems


def judge_rising(history: Sequence[Committed], resets: Sequence[Reset] = (), late: Sequence[Window] = ()) -> list[str]:
    """Return a violation for each committed offset that goes back or vanishes.

    Parameters
    ----------
    resets : sequence of Reset
        Times in which offsets may go back, because an operator has reset them.
    late : sequence of Window
        Times in which a delayed plain commit may arrive.  It may move an offset back, as docs/guarantees.md says, but
        the query must commit the higher offset again.
    """
    highest: dict[str, Committed] = {}
    problems = []
    for now in history:
        if any(one.tp == now.tp and one.begin - _CLOCK_SLACK_S <= now.time <= one.end for one in resets):
            continue
        before = highest.get(now.tp)
        if before is not None and before.offset is not None and (now.offset is None or now.offset < before.offset):
            if _within(late, now.time) and _restored(history, now, before.offset):
                continue
            there = "nothing" if now.offset is None else str(now.offset)
            problems.append(
                f"committed offset went back: {now.tp} from {before.offset} (at {before.time:.3f}) to {there} "
                f"(at {now.time:.3f})"
            )
        if now.offset is not None:
            highest[now.tp] = now
    return problems


def _within(windows: Iterable[Window], time: float) -> bool:
    return any(window.begin <= time <= window.end for window in windows)


def _restored(history: Iterable[Committed], low: Committed, offset: int) -> bool:
    """Return whether a commit that follows soon has at least this offset."""
    by = low.time + _RESTORED_S
    return any(one.tp == low.tp and low.time < one.time <= by and (one.offset or 0) >= offset for one in history)


def judge_progress(
    samples: Iterable[Committed],
    end_of: Callable[[str, float], int],
    longest_s: float,
    away: Sequence[Window] = (),
) -> list[str]:
    """Return a violation for each partition that has a lag and stands still for longer than ``longest_s``.

    Each standstill gives one violation.

    Parameters
    ----------
    end_of : callable
        Returns the log end of a partition at a time.
    away : sequence of Window
        Times in which no query could continue, for example without any broker.  A standstill counts anew from their
        end.
    """
    moved: dict[str, Committed] = {}
    told: set[Committed] = set()
    problems = []
    for now in samples:
        offset = now.offset or 0
        before = moved.get(now.tp)
        if before is None or offset > (before.offset or 0) or offset >= end_of(now.tp, now.time):
            moved[now.tp] = now
            continue
        since = max([before.time, *(window.end for window in away if window.begin <= now.time)])
        if now.time - since > longest_s and before not in told:
            told.add(before)
            problems.append(f"stood still: {now.tp} at {offset} for {longest_s:g} s and more from {since:.3f} on")
    return problems


def judge_stalls(
    members: Iterable[Member],
    end_of: Callable[[str, float], int],
    unknown: Collection[str] = (),
    longest_s: float = 15.0,
) -> list[str]:
    """Return a violation for each partition that a query owns and leaves out of its batches without a report.

    No query here has a limit, so a batch takes all partitions that have something to read.  If a query leaves such a
    partition out for ``longest_s``, it must have reported the partition as held back.  The time counts from the first
    batch that leaves the partition out, because a running batch delays the next plan.

    The judge skips partitions in ``unknown``: during a run, it cannot find out which of their records readers can see.
    """
    problems = []
    for member in members:
        owned: dict[str, tuple[float, int]] = {}  # the time from which each is left out, and its next offset
        reported: set[str] = set()
        for event in member.events:
            time = event["time"]
            match event["event"]:
                case "started":
                    owned |= {tp: (math.inf, offset) for tp, offset in event["positions"].items() if tp not in unknown}
                case "heldBack":
                    reported |= set(event["partitions"])
                case "heldBackEnded":
                    reported -= set(event["partitions"])
                    owned |= {tp: (math.inf, owned[tp][1]) for tp in event["partitions"] if tp in owned}
                case "planned":
                    for tp, (since, offset) in list(owned.items()):
                        if tp in event["ranges"]:
                            owned[tp] = (math.inf, event["ranges"][tp][1])
                        elif end_of(tp, time - longest_s) <= offset:
                            owned[tp] = (math.inf, offset)  # there was nothing to read until then
                        elif since == math.inf:
                            owned[tp] = (time, offset)
                        elif time - since > longest_s and tp not in reported:
                            when = f"from {since:.3f} to {time:.3f}"
                            problems.append(f"left out and not reported: {member.name} {tp} at {offset} {when}")
                            owned[tp] = (time, offset)
                case "released" | "lost" | "draining" | "logChanged":
                    for tp in event["partitions"]:
                        owned.pop(tp, None)
                case "expired":
                    for tp in event["ranges"]:
                        owned.pop(tp, None)
                case "joined" | "left":
                    owned, reported = {}, set()
    return problems


def judge_commits_follow_sinks(
    commits: Iterable[Committed],
    deliveries: Iterable[Delivery],
    invisible: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> list[str]:
    """Return a violation for each commit of records that no sink holds yet.  A crash at that time would lose them.

    Records that are ``invisible`` to readers need not be in a sink.
    """
    waiting: dict[str, list[Delivery]] = {}
    for delivery in sorted(deliveries, key=lambda d: d.time, reverse=True):
        waiting.setdefault(delivery.tp, []).append(delivery)
    reached: dict[str, int] = {}
    # Delivered ranges with a gap before them.
    ahead: dict[str, list[tuple[int, int]]] = {tp: runs(offsets) for tp, offsets in invisible.items()}
    problems = []
    for commit in sorted(commits, key=lambda c: c.time):
        if commit.offset is None:
            continue
        tp, left = commit.tp, waiting.get(commit.tp, [])
        if tp in invisible and tp not in reached:
            reached[tp], ahead[tp] = _advance(0, ahead[tp])
        while left and left[-1].time <= commit.time + _CLOCK_SLACK_S:
            delivery = left.pop()
            ahead.setdefault(tp, []).append((delivery.start, delivery.until))
            reached[tp], ahead[tp] = _advance(reached.get(tp, 0), ahead[tp])
        if commit.offset > reached.get(tp, 0):
            problems.append(
                f"committed before it was written: {tp} {commit.offset} at {commit.time:.3f}, when the sinks held all "
                f"records below {reached.get(tp, 0)}"
            )
    return problems


def _advance(reached: int, ranges: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """Advance ``reached`` through ``ranges``.  Return the new offset, and the ranges that are still ahead."""
    left = []
    for start, until in sorted(ranges):
        if start <= reached:
            reached = max(reached, until)
        else:
            left.append((start, until))
    return reached, left


def told(d: Delivery) -> str:
    """Return the name of a delivery for a violation."""
    return f"{d.member} batch {d.batch} at {d.time:.3f} {d.tp} [{d.start}, {d.until})"
