"""The time lag, compared with logs whose records are all known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.cluster.cluster_answers import DatedOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.tools.analysis.time_lag import lag_seconds

TP = TopicPartition("orders", 0)
NOW = 1_767_225_600_000


@dataclass
class Log:
    """A log that answers like a leader: the time of each record in milliseconds, by offset."""

    times: Mapping[int, int]
    asked: list[int] = field(default_factory=list)

    def __call__(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, DatedOffset | None]:
        self.asked.append(wanted[TP])
        later = [(offset, time) for offset, time in sorted(self.times.items()) if time >= wanted[TP]]
        return {TP: DatedOffset(Offset(later[0][0]), later[0][1]) if later else None}


def test_the_age_of_the_record_at_the_offset_is_found_to_some_hundredths() -> None:
    log = Log({n: NOW - 86_400_000 + n * 1000 for n in range(86_400)})
    for offset in (0, 1, 100, 43_200, 86_000, 86_399):
        age = (NOW - log.times[offset]) / 1000
        assert lag_seconds({TP: offset}, log, now_ms=NOW) == {TP: pytest.approx(age, rel=0.03, abs=0.1)}


def test_a_day_takes_few_questions() -> None:
    log = Log({n: NOW - 86_400_000 + n * 10 for n in range(1000)})
    lag_seconds({TP: 500}, log, now_ms=NOW)
    assert len(log.asked) <= 30


@given(
    gaps=st.lists(st.integers(0, 10**7), min_size=1, max_size=30),
    missing=st.sets(st.integers(0, 29)),
    at=st.integers(0, 29),
)
def test_it_lies_between_the_neighbours_of_the_offset(gaps: list[int], missing: set[int], at: int) -> None:
    """Times may be equal, and records may be missing: compacted ones, or transaction markers."""
    time, times = NOW - sum(gaps), {}
    for offset, gap in enumerate(gaps):
        time += gap
        times[offset] = time
    at = min(at, len(gaps) - 1)
    kept = {offset: when for offset, when in times.items() if offset not in missing}
    found = lag_seconds({TP: at}, Log(kept), now_ms=NOW)
    before = [when for offset, when in kept.items() if offset < at]
    after = [when for offset, when in kept.items() if offset >= at]
    if not kept:
        assert found == {}
        return
    age = found[TP] * 1000
    newest, oldest = (NOW - times_of[0] for times_of in (after or [NOW], [before[-1]] if before else after))
    assert newest - 60 <= age * 1.03
    assert age <= oldest * 1.03 + 60


def test_what_cannot_be_asked_is_left_out() -> None:
    assert lag_seconds({}, Log({}), now_ms=NOW) == {}
    assert lag_seconds({TP: 3}, lambda _: {}, now_ms=NOW) == {}, "no leader"
    assert lag_seconds({TP: 3}, Log({0: -1}), now_ms=NOW) == {}, "records without times"
    answers = iter([{TP: DatedOffset(Offset(0), NOW - 5000)}, {}])
    assert lag_seconds({TP: 3}, lambda _: next(answers), now_ms=NOW) == {}, "the leader has gone meanwhile"


def test_a_clock_that_is_ahead_is_no_negative_lag() -> None:
    assert lag_seconds({TP: 1}, Log({0: NOW, 1: NOW + 5000, 2: NOW + 6000}), now_ms=NOW) == {TP: 0.0}
