"""Statistics of repeated measurements."""

from __future__ import annotations

import pytest

from benchmarks.samples import Spread, interpolate, paired_ratios, percentile, spread


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0, 1.0, 2.0], Spread(median=2.0, smallest=1.0, largest=5.0, count=3)),
        ([None, 4.0], Spread(median=4.0, smallest=4.0, largest=4.0, count=1)),
        ([None], None),
    ],
)
def test_a_spread_is_the_median_of_what_was_measured_between_the_extremes(
    values: list[float | None], expected: Spread | None
) -> None:
    assert spread(values) == expected


def test_ratios_are_of_the_same_repetition_and_need_both_sides() -> None:
    assert paired_ratios([2.0, 30.0], [1.0, 10.0]) == [2.0, 3.0]
    assert paired_ratios([2.0, None, 6.0, 1.0], [1.0, 1.0, 0.0]) == [2.0]


@pytest.mark.parametrize(
    ("share", "value"),
    [(0.5, 10.0), (0.9, 10.0), (0.91, 20.0), (0.99, 20.0), (1.0, 20.0), (0.0, 10.0)],
)
def test_a_percentile_counts_every_record(share: float, value: float) -> None:
    assert percentile({20.0: 10, 10.0: 90}, share) == value


@pytest.mark.parametrize(("at", "value"), [(0.0, 10.0), (1.0, 10.0), (2.0, 15.0), (3.0, 20.0), (9.0, 20.0)])
def test_values_between_two_samples_lie_on_a_line(at: float, value: float) -> None:
    assert interpolate([(1.0, 10.0), (3.0, 20.0)], at) == value


def test_without_samples_there_is_no_value() -> None:
    assert interpolate([], 1.0) is percentile({}, 0.5) is None
