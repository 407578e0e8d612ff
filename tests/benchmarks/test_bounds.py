"""A short run fails if one of its ratios is worse than its stored bound, or if it lacks a ratio."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bounds
from benchmarks.__main__ import BENCHMARKS, _parser, check
from benchmarks.results import Cell, Result
from benchmarks.views import VIEWS


def _result(benchmark: str, metric: str, *ratios: float, cell: str = "base") -> Result:
    result = Result(benchmark=benchmark, quick=False, taken="2026-11-21 02:00 UTC", machine={}, settings={})
    result.cells.append(Cell(name=cell))
    for ratio in ratios:
        result.cells[0].add("kafka", {metric: 100.0})
        result.cells[0].add("kafka-group", {metric: 100.0 * ratio})
    return result


@pytest.mark.parametrize(
    ("benchmark_name", "metric", "accepted", "good", "bad"),
    [
        ("throughput", "records_per_s", 1.6, 1.6, 1.59),  # more is better: the smallest of the stored run counts
        ("latency", "p50_ms", 3.75, 3.75, 3.76),  # less is better: the largest counts
    ],
)
def test_a_bound_is_a_quarter_worse_than_the_worst_pair(
    benchmark_name: str, metric: str, accepted: float, good: float, bad: float
) -> None:
    (bound,) = bounds.bounds_of(_result(benchmark_name, metric, 2.0, 2.5, 3.0))
    assert (bound.median, bound.smallest, bound.largest, bound.accepted) == (2.5, 2.0, 3.0, accepted)
    for ratio, expected in ((good, True), (bad, False)):
        (verdict,) = bounds.judge(_result(benchmark_name, metric, ratio), [bound])
        assert verdict.good == expected
        assert verdict.ratio == pytest.approx(ratio)


def test_a_ratio_that_was_not_measured_misses_its_bound() -> None:
    found = bounds.bounds_of(_result("throughput", "records_per_s", 2.0))
    (verdict,) = bounds.judge(_result("throughput", "records_per_s", 2.0, cell="other"), found)
    assert not verdict.good
    assert str(verdict) == "records_per_s of base, kafka-group / kafka, was not measured (stored: 2.00)"


def test_bounds_of_other_benchmarks_stay(tmp_path: Path) -> None:
    file = tmp_path / "bounds.json"
    bounds.store([_result("throughput", "records_per_s", 2.0)], file)
    bounds.store([_result("latency", "p50_ms", 0.5)], file)
    assert {name: found[0].median for name, found in bounds.load(file).items()} == {"throughput": 2.0, "latency": 0.5}


def test_a_check_prints_what_misses_its_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "sink"
    (stored,) = bounds.bounds_of(_result(name, "records_per_s", 2.0))
    monkeypatch.setattr(bounds, "load", lambda: {name: [stored]})
    for ratio, code, line in ((1.9, 0, "All ratios are within their bounds."), (1.0, 1, "sink: records_per_s of base")):
        monkeypatch.setattr("benchmarks.__main__.run", lambda *_: _result(name, "records_per_s", ratio))  # noqa: B023
        assert check([], tmp_path) == code
        assert line in capsys.readouterr().out
    with pytest.raises(SystemExit, match="has no bounds of strange, only of sink"):
        check(["strange"], tmp_path)


def test_the_stored_bounds_can_be_checked() -> None:
    stored = bounds.load(Path(__file__).parents[2] / bounds.FILE)
    assert stored.keys() == bounds.SHORT.keys()
    for name, found in stored.items():
        pairs = {(view.metric, *pair) for view in VIEWS[name] for pair in view.ratios}
        assert found
        assert {(bound.metric, bound.upper, bound.lower) for bound in found} <= pairs
        assert bounds.SHORT[name].keys() <= vars(_parser().parse_args([name])).keys()
    assert bounds.SHORT.keys() <= BENCHMARKS.keys()
