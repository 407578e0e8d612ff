"""Search the rows of the sinks for more anomalies that Jepsen's tests of Kafka find.

The judges in :mod:`integration.oracles` find lost and repeated records.  These judges find the others.  Jepsen allows a
consumer with ``subscribe`` to skip records or go back when partitions move.  Here both are violations, also across
owners.  All sinks together must get each partition in order, except for declared ranges.

These judges are also pure functions.  ``tests/integration_oracles`` shows that each of them finds violations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from integration.oracles import Member, declared, told
from integration.sink import Delivery, runs

Offsets = Mapping[str, frozenset[int]]
"""Offsets of each partition."""

# All times come from one machine.  But a producer reads the clock before it commits, and a sink after it has read.
_CLOCK_SLACK_S = 0.01


@dataclass(frozen=True)
class Transactions:
    """The records of transactions, as far as their producer knows the outcome.

    Attributes
    ----------
    committing : mapping
        The time at which the producer began to commit each record that it has committed.
    aborted : mapping
        The records that the producer has aborted.
    """

    committing: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    aborted: Offsets = field(default_factory=dict)


def judge_polls(members: Sequence[Member], invisible: Offsets) -> list[str]:
    """Return a violation for each record that came out of order, across all owners of its partition.

    A *poll skip* is a record that came before an earlier one had come to any member.  A *nonmonotonic poll* goes back
    behind records that a member has got, without a declaration.

    Parameters
    ----------
    members : sequence of Member
        All members of the group.
    invisible : mapping
        The offsets that no reader gets.
    """
    allowed: dict[str, list[tuple[int, int]]] = {}
    for member in members:
        for tp, start, until in declared(member.events):
            allowed.setdefault(tp, []).append((start, until))
    problems = []
    for tp, deliveries in _in_order(members).items():
        gaps = sorted(invisible.get(tp, frozenset()))
        seen: set[int] = set()
        reached = 0  # every offset below was delivered, or is invisible
        highest: Delivery | None = None
        for d in deliveries:
            while reached in seen or (gaps and gaps[0] == reached):
                seen.discard(reached)
                if gaps and gaps[0] == reached:
                    gaps.pop(0)
                reached += 1
            missing = [o for o in range(reached, d.start) if o not in seen and o not in invisible.get(tp, ())]
            if missing:
                problems.append(f"poll skip: {told(d)}, and {_ranges(missing)} had come to nobody")
            if highest is not None and d.start < highest.until:
                back = range(d.start, min(d.until, highest.until))
                excused = {o for start, until in allowed.get(tp, ()) for o in range(start, until)}
                if undeclared := [o for o in back if o not in excused]:
                    problems.append(f"nonmonotonic poll: {told(d)} after {told(highest)}: {_ranges(undeclared)}")
            seen.update(range(max(d.start, reached), d.until))
            if highest is None or d.until > highest.until:
                highest = d
    return problems


def judge_transactions(transactions: Transactions, visible: Offsets, deliveries: Iterable[Delivery]) -> list[str]:
    """Return a violation for each record that a sink got from an aborted transaction, or from one still open.

    An aborted record that a plain consumer gets, too, is in :func:`defects_of_kafka`.
    """
    problems = []
    for d in deliveries:
        aborted = transactions.aborted.get(d.tp, frozenset()) - visible.get(d.tp, frozenset())
        if read := [o for o in range(d.start, d.until) if o in aborted]:
            problems.append(f"aborted read: {told(d)}: {_ranges(read)}")
        committing = transactions.committing.get(d.tp, {})
        early = [o for o in range(d.start, d.until) if committing.get(o, 0.0) > d.time + _CLOCK_SLACK_S]
        if early:
            problems.append(f"precommitted read: {told(d)}: {_ranges(early)}")
    return problems


def defects_of_kafka(transactions: Transactions, visible: Offsets) -> list[str]:
    """Return the committed records that a plain consumer misses, and the aborted ones that it gets.

    A broker that restarts can forget the marker of a transaction (KAFKA-20734).  No reader can mend that, so the report
    tells it, and it is no violation.
    """
    problems = []
    for tp, offsets in transactions.committing.items():
        if lost := [o for o in offsets if o not in visible.get(tp, frozenset())]:
            problems.append(f"lost write: {tp} {_ranges(lost)}: committed, and not in the log")
    for tp, aborted in transactions.aborted.items():
        if read := [o for o in aborted if o in visible.get(tp, frozenset())]:
            problems.append(f"aborted read: {tp} {_ranges(read)}: by a plain consumer")
    return problems


def _in_order(members: Iterable[Member]) -> dict[str, list[Delivery]]:
    """Return the deliveries of each partition, ordered by time; within a batch, in the order of its rows."""
    found: dict[str, list[Delivery]] = {}
    for member in members:
        for delivery in member.deliveries:
            found.setdefault(delivery.tp, []).append(delivery)
    return {tp: sorted(deliveries, key=lambda d: d.time) for tp, deliveries in found.items()}


def _ranges(offsets: Iterable[int]) -> str:
    return ", ".join(_limited(f"[{start}, {until})" for start, until in runs(offsets)))


def _limited(texts: Iterable[str], most: int = 5) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number == most:
            yield "..."
            return
        yield text
