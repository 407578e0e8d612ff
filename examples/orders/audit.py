"""Audit the sink's rows: find lost, repeated and reordered records, and measure hand-overs and pauses.

All functions are pure. `sink.py` reads the rows, and `view.py` shows the result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple


class Row(NamedTuple):
    """One record as it arrived in the sink. Times are Unix seconds."""

    partition: int
    offset: int
    key: str
    sequence: int
    appended_at: float
    delivered_at: float
    application: str


class HandOver(NamedTuple):
    """A partition went from one application to another, as seen in the sink.

    `latency_s` runs from the moment the last row of the old owner became visible to the first row of the new owner.
    """

    partition: int
    offset: int
    old: str
    new: str
    at: float
    latency_s: float


class Pause(NamedTuple):
    """A record of the partition waited for `seconds`, while the same owner delivered nothing."""

    partition: int
    application: str
    at: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The verdict. `lost` and `duplicated` count records; ranges are half-open offsets for each partition."""

    produced: int
    delivered: int
    lost: int
    duplicated: int
    unknown: int
    out_of_order: int
    keys: int
    lost_ranges: Mapping[int, list[range]]
    duplicated_ranges: Mapping[int, list[range]]
    hand_overs: list[HandOver]
    longest_pause: Pause | None
    usual_pause_s: float
    delay_median_s: float
    delay_p99_s: float

    @property
    def passed(self) -> bool:
        """Whether each produced record is in the sink exactly once, in order, and nothing else is."""
        return not (self.lost or self.duplicated or self.unknown or self.out_of_order)


def audit(produced: Mapping[int, range], rows: Iterable[Row]) -> Audit:
    """Compare the acknowledged offsets of each partition with the rows of all applications."""
    by_partition: dict[int, list[Row]] = defaultdict(list)
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_partition[row.partition].append(row)
        by_key[row.key].append(row)
    copies = {p: Counter(row.offset for row in rows_of_p) for p, rows_of_p in by_partition.items()}
    lost = {p: [o for o in offsets if o not in copies.get(p, {})] for p, offsets in produced.items()}
    duplicated = {p: sorted(o for o, n in count.items() if n > 1) for p, count in copies.items()}
    pauses = [pause for rows_of_p in by_partition.values() for pause in pauses_of(rows_of_p)]
    delays = sorted(row.delivered_at - row.appended_at for rows_of_p in by_partition.values() for row in rows_of_p)
    return Audit(
        produced=sum(map(len, produced.values())),
        delivered=sum(map(len, by_partition.values())),
        lost=sum(map(len, lost.values())),
        duplicated=sum(n - 1 for count in copies.values() for n in count.values()),
        unknown=sum(o not in produced.get(p, ()) for p, count in copies.items() for o in count),
        out_of_order=sum(out_of_order(rows_of_key) for rows_of_key in by_key.values()),
        keys=len(by_key),
        lost_ranges={p: list(ranges(offsets)) for p, offsets in lost.items() if offsets},
        duplicated_ranges={p: list(ranges(offsets)) for p, offsets in duplicated.items() if offsets},
        hand_overs=sorted(
            (h for rows_of_p in by_partition.values() for h in hand_overs_of(rows_of_p)), key=lambda h: h.at
        ),
        longest_pause=max(pauses, key=lambda pause: pause.seconds, default=None),
        usual_pause_s=median(pause.seconds for pause in pauses) if pauses else 0.0,
        delay_median_s=median(delays) if delays else 0.0,
        delay_p99_s=delays[int(len(delays) * 0.99)] if delays else 0.0,
    )


def hand_overs_of(rows: list[Row]) -> Iterator[HandOver]:
    """Yield the changes of owner in the rows of one partition."""
    for last, first in pairwise(sorted(rows, key=lambda row: (row.delivered_at, row.offset))):
        if last.application != first.application:
            yield HandOver(
                partition=first.partition,
                offset=first.offset,
                old=last.application,
                new=first.application,
                at=first.delivered_at,
                latency_s=first.delivered_at - last.delivered_at,
            )


def pauses_of(rows: list[Row]) -> Iterator[Pause]:
    """Yield the waits between deliveries of a partition by one application, less the time without records."""
    for last, first in pairwise(sorted(rows, key=lambda row: (row.delivered_at, row.offset))):
        if last.application == first.application and last.delivered_at < first.delivered_at:
            waiting_since = max(last.delivered_at, first.appended_at)
            seconds = max(0.0, first.delivered_at - waiting_since)
            yield Pause(first.partition, first.application, waiting_since, seconds)


def out_of_order(rows: list[Row]) -> int:
    """Count the rows of one key that became visible before their predecessor."""
    first: dict[int, Row] = {}
    for row in rows:
        known = first.get(row.sequence)
        if known is None or row.delivered_at < known.delivered_at:
            first[row.sequence] = row
    ordered = [first[sequence] for sequence in sorted(first)]
    return sum((b.delivered_at, b.offset) < (a.delivered_at, a.offset) for a, b in pairwise(ordered))


def ranges(offsets: Iterable[int]) -> Iterator[range]:
    """Fold ascending offsets into ranges."""
    current: range | None = None
    for offset in offsets:
        if current is not None and offset == current.stop:
            current = range(current.start, offset + 1)
        else:
            if current is not None:
                yield current
            current = range(offset, offset + 1)
    if current is not None:
        yield current
