"""What Jepsen's tests of Kafka look for beyond lost and repeated records, judged from what the sinks hold.

Jepsen forgives a consumer with ``subscribe`` if it skips records or goes back when partitions move.  Here both are
violations across owners, too: what all sinks together were given of a partition comes in its order, but for what was
declared.

Pure functions, like :mod:`integration.oracles`; each is shown to bite in ``tests/integration_oracles``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from integration.oracles import Member, declared, told
from integration.sink import Delivery, runs

Offsets = Mapping[str, frozenset[int]]
"""Offsets of each partition."""

# Clocks are of one machine, but a producer looks at it before it commits and a sink after it has read.
_CLOCK_SLACK_S = 0.01


@dataclass(frozen=True)
class Transactions:
    """What a producer knows of the records that it wrote in transactions.

    Attributes
    ----------
    committing : mapping
        For each record of a transaction that is known to be committed, when its producer began to commit it.
    aborted : mapping
        The records of transactions that are known to be aborted.
    """

    committing: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    aborted: Offsets = field(default_factory=dict)


def judge_polls(members: Sequence[Member], invisible: Offsets) -> list[str]:
    """Each partition came in its order, whoever owned it.

    A *poll skip* is a record that came although one before it had come to nobody yet.  A *nonmonotonic poll* goes back
    behind what somebody had been given, and nobody had declared that.

    Parameters
    ----------
    members : sequence of Member
        All members of the group.
    invisible : mapping
        The offsets that no reader is given.
    """
    allowed: dict[str, list[tuple[int, int]]] = {}
    for member in members:
        for tp, start, until in declared(member.events):
            allowed.setdefault(tp, []).append((start, until))
    problems = []
    for tp, deliveries in _in_order(members).items():
        gaps = sorted(invisible.get(tp, frozenset()))
        seen: set[int] = set()
        reached = 0  # every offset below has come, or is invisible
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


def judge_transactions(transactions: Transactions, deliveries: Iterable[Delivery]) -> list[str]:
    """No sink holds a record of a transaction that was aborted, or has it from a time when it was still open."""
    problems = []
    for d in deliveries:
        aborted = transactions.aborted.get(d.tp, frozenset())
        if read := [o for o in range(d.start, d.until) if o in aborted]:
            problems.append(f"aborted read: {told(d)}: {_ranges(read)}")
        committing = transactions.committing.get(d.tp, {})
        early = [o for o in range(d.start, d.until) if committing.get(o, 0.0) > d.time + _CLOCK_SLACK_S]
        if early:
            problems.append(f"precommitted read: {told(d)}: {_ranges(early)}")
    return problems


def judge_log(transactions: Transactions, visible: Offsets) -> list[str]:
    """A plain consumer finds what the producer has committed: a lost write would be Kafka's, not ours."""
    problems = []
    for tp, offsets in transactions.committing.items():
        if lost := [o for o in offsets if o not in visible.get(tp, frozenset())]:
            problems.append(f"lost write: {tp} {_ranges(lost)}: committed, and not in the log")
    for tp, aborted in transactions.aborted.items():
        if read := [o for o in aborted if o in visible.get(tp, frozenset())]:
            problems.append(f"aborted read: {tp} {_ranges(read)}: by a plain consumer")
    return problems


def _in_order(members: Iterable[Member]) -> dict[str, list[Delivery]]:
    """Return what the sinks were given of each partition, in the order of time; of one batch, in that of its rows."""
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
