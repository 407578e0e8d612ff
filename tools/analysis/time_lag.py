"""Finds how far a group is behind in time: the age of the record at its committed offset.

Reading the record would need another right, and a whole record batch of each partition.  Instead this asks leaders for
the first record of a time or later, for all partitions at once.  It searches backwards from now in steps that double,
then by halves, until the lag is exact to a fiftieth.

The result is right if timestamps grow with offsets.  If producers set them and their clocks differ, it is wrong by
that difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark_kafka_group.cluster.cluster_answers import DatedOffset
from pyspark_kafka_group.offsets.types import TopicPartition

RecordsAt = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, DatedOffset | None]]
"""Returns the first record of a time or later, in milliseconds, for each partition; None if there is none.

Partitions whose leader does not answer are left out.
"""

_FIRST_STEP_MS = 1000
_PRECISE_MS = 50
_PRECISION = 50
"""A lag is exact to a fiftieth."""

_ROUNDS = 80
"""Maximum number of requests: enough to halve 64 bits."""


class _TimeSearch(NamedTuple):
    """The search in one partition.

    Attributes
    ----------
    offset : int
        The offset whose time is unknown.
    low : int
        The time of a record below it.
    high : int
        A time after all records below it.
    step : int
        The next step back; 0 once a record below was found.
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
    """Return the age of the records at these offsets, in seconds, without those that are unknown.

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
    searches: dict[TopicPartition, _TimeSearch] = {}
    for tp, first in (records_at(dict.fromkeys(offsets, 0)) if offsets else {}).items():
        if first is None or first.time_ms < 0:
            continue  # only transaction markers, or records without times
        if first.offset >= offsets[tp]:
            times[tp] = first.time_ms
        else:
            searches[tp] = _TimeSearch(offsets[tp], min(first.time_ms, now_ms), now_ms, _FIRST_STEP_MS)
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
