"""Statistics of repeated measurements, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, smallest and largest of some measurements.

    Attributes
    ----------
    median, smallest, largest : float
        The values, in the unit of the measurements.
    count : int
        The number of measurements.
    """

    median: float
    smallest: float
    largest: float
    count: int


def spread(values: Sequence[float | None]) -> Spread | None:
    """Return the spread of the values that are not None; None if all are."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(median=median(known), smallest=min(known), largest=max(known), count=len(known))


def paired_ratios(upper: Sequence[float | None], lower: Sequence[float | None]) -> list[float]:
    """Return the ratio of each repetition.  A disturbance of the machine affects both sides of a pair.

    The result omits repetitions that lack one side, or whose lower side is zero.
    """
    return [a / b for a, b in zip(upper, lower, strict=False) if a is not None and b is not None and b != 0]


def percentile(histogram: Mapping[float, int], share: float) -> float | None:
    """Return the smallest value that at least ``share`` of the values do not exceed; None if there are no values.

    Parameters
    ----------
    histogram : mapping of float to int
        How often each value occurred.
    share : float
        The share between 0 and 1: 0.99 for p99.
    """
    total = sum(histogram.values())
    if not total:
        return None
    wanted = max(1, math.ceil(share * total - 1e-9))
    seen = 0
    for value in sorted(histogram):
        seen += histogram[value]
        if seen >= wanted:
            return value
    raise AssertionError("counts do not add up")


def interpolate(samples: Sequence[tuple[float, float]], at: float) -> float | None:
    """Return the value at a time, on the line between the samples around it.

    Parameters
    ----------
    samples : sequence of (time, value)
        The samples in order of time.
    at : float
        The time.  Before the first sample and after the last one, the result is the value of that sample.
    """
    if not samples:
        return None
    before = samples[0]
    for sample in samples:
        if sample[0] >= at:
            if sample[0] == before[0]:
                return sample[1]
            share = (at - before[0]) / (sample[0] - before[0])
            return before[1] + share * (sample[1] - before[1])
        before = sample
    return before[1]
