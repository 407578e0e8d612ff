"""How far behind a group is in time: how old the record is that stands at its committed offset.

No record is read for that, which would take another right, and a whole record batch of each partition.  Leaders are
asked for the first record of a time or later, for all partitions at once, and the time is narrowed down: backwards from
now in steps that double, then by halves.  So a lag is told to some hundredths, as soon as that is enough.

What can be known that way supposes that timestamps grow with offsets.  Where producers set them, and their clocks
differ, the answer is off by as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark_kafka_group.offsets.cluster.cluster_answers import DatedOffset
from pyspark_kafka_group.offsets.types import TopicPartition

RecordsAt = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, DatedOffset | None]]
"""The first record of a time or later, in milliseconds, for each partition; None if there is none.

Partitions that cannot be asked just now are left out.
"""

_FIRST_STEP_MS = 1000
_PRECISE_MS = 50
_PRECISION = 50
"""A lag may be wrong by a fiftieth of itself."""

_ROUNDS = 80
"""More than it ever takes: halving all of 64 bits."""


class _Search(NamedTuple):
    """What is known of one partition.

    Attributes
    ----------
    offset : int
        The offset whose time is looked for.
    low : int
        The time of a record below it.
    high : int
        A time at which no record below it is left.
    step : int
        How far back it is looked next; 0 once something below was found.
    """

    offset: int
    low: int
    high: int
    step: int

    @property
    def next_time(self) -> int:
        if self.step and self.high - self.step > self.low:
            return self.high - self.step
        return (self.low + self.high + 1) // 2

    def precise(self, now_ms: int) -> bool:
        return self.high - self.low <= max(_PRECISE_MS, (now_ms - self.high) // _PRECISION)


def lag_seconds(
    offsets: Mapping[TopicPartition, int], records_at: RecordsAt, *, now_ms: int
) -> dict[TopicPartition, float]:
    """Return how old the records at these offsets are, in seconds; without what cannot be known.

    Parameters
    ----------
    offsets : mapping
        The committed offset of each partition that has a lag.
    records_at : callable
        Asks the leaders.
    now_ms : int
        The time, in milliseconds since 1970.
    """
    times: dict[TopicPartition, int] = {}
    searches: dict[TopicPartition, _Search] = {}
    for tp, first in (records_at(dict.fromkeys(offsets, 0)) if offsets else {}).items():
        if first is None or first.time_ms < 0:
            continue  # nothing but markers of transactions, or records without times
        if first.offset >= offsets[tp]:
            times[tp] = first.time_ms
        else:
            searches[tp] = _Search(offsets[tp], min(first.time_ms, now_ms), now_ms, _FIRST_STEP_MS)
    for _ in range(_ROUNDS):
        for tp in [tp for tp, search in searches.items() if search.precise(now_ms)]:
            times[tp] = searches.pop(tp).low
        if not searches:
            break
        asked = {tp: search.next_time for tp, search in searches.items()}
        answers = records_at(asked)
        for tp, time_ms in asked.items():
            if tp not in answers:
                del searches[tp]
                continue
            search, found = searches[tp], answers[tp]
            if found is not None and found.offset == search.offset:
                times[tp] = found.time_ms
                del searches[tp]
            elif found is not None and found.offset < search.offset:
                searches[tp] = search._replace(low=min(max(time_ms, found.time_ms), search.high), step=0)
            else:
                searches[tp] = search._replace(high=time_ms, step=2 * search.step)
    return {tp: max(0, now_ms - time_ms) / 1000 for tp, time_ms in times.items()}
