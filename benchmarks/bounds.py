"""The ratio that each cell of a benchmark must reach.  A short run is compared with it.

All ratios are between two sources of one run, so a slow machine does not fail the check.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import Cell, Result
from benchmarks.samples import Spread, paired_ratios, spread
from benchmarks.tables import Table, figure
from benchmarks.views import VIEWS, View

FILE = Path("benchmarks/bounds.json")

SLACK = 1.25
"""How much worse than the worst pair of the stored run the median of a short run may be: it has fewer pairs."""

ENOUGH = 10.0
"""The highest bound.  Larger ratios belong to reads of a fraction of a second, and vary from run to run."""

SHORT: Mapping[str, Mapping[str, Any]] = {
    "throughput": {"records": 3_000_000, "megabytes": 750, "repetitions": 2, "base_repetitions": 3},
    "latency": {"seconds": 12},
    "idle": {"windows": 1},
    "commit": {"repetitions": 2},
    "scaling": {"warm_up": 1_500_000, "records": 3_000_000, "steps": []},
    "sink": {"repetitions": 3},
    "batch": {"repetitions": 2},
    "database": {"repetitions": 2},
    "formats": {"repetitions": 3},
    "tls": {"repetitions": 2},
}
"""The options of a short run.  It has all cells."""


class Bound(NamedTuple):
    """The bound of one ratio: a metric of the source ``upper``, divided by the one of ``lower``.

    ``median``, ``smallest`` and ``largest`` are those of the stored run.
    """

    cell: str
    metric: str
    upper: str
    lower: str
    median: float
    smallest: float
    largest: float
    accepted: float


class Verdict(NamedTuple):
    """A bound, and the median ratio of a short run; None if the run did not measure it."""

    bound: Bound
    ratio: float | None
    good: bool

    def __str__(self) -> str:
        b = self.bound
        now = "was not measured" if self.ratio is None else f"is {figure(self.ratio)}, not {figure(b.accepted)}"
        return f"{b.metric} of {b.cell}, {b.upper} / {b.lower}, {now} (stored: {figure(b.median)})"


def bounds_of(result: Result) -> list[Bound]:
    """Return the bounds that the ratios of a result set."""
    return [
        Bound(cell.name, view.metric, upper, lower, found.median, found.smallest, found.largest, _accepted(view, found))
        for view, cell, upper, lower in _ratios(result.benchmark, result.cells)
        if (found := _measured(cell, view.metric, upper, lower)) is not None
    ]


def judge(result: Result, bounds: Sequence[Bound]) -> list[Verdict]:
    """Compare a run with bounds."""
    views = {view.metric: view for view in VIEWS[result.benchmark]}
    cells = {cell.name: cell for cell in result.cells}
    verdicts = []
    for bound in bounds:
        cell = cells.get(bound.cell)
        found = None if cell is None else _measured(cell, bound.metric, bound.upper, bound.lower)
        ratio = None if found is None else found.median
        good = ratio is not None and (
            ratio <= bound.accepted if views[bound.metric].less_is_better else ratio >= bound.accepted
        )
        verdicts.append(Verdict(bound, ratio, good))
    return verdicts


def table(name: str, verdicts: Sequence[Verdict]) -> Table:
    """Return what a check has found, for people."""
    rows = [
        [f"{b.cell}: {b.metric}, {b.upper} / {b.lower}", figure(ratio), figure(b.accepted), "" if good else "MISSED"]
        for b, ratio, good in verdicts
    ]
    return Table(title=f"{name}: ratios within this run", header=["", "ratio", "bound", ""], rows=rows)


def load(file: Path = FILE) -> dict[str, list[Bound]]:
    """Return the stored bounds by benchmark."""
    stored = json.loads(file.read_text(encoding="utf-8"))
    return {name: [Bound(**bound) for bound in entry["bounds"]] for name, entry in stored.items()}


def store(results: Sequence[Result], file: Path = FILE) -> None:
    """Set the bounds of these results.  Other benchmarks keep their bounds."""
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for result in results:
        found = [bound._asdict() for bound in bounds_of(result)]
        if found and result.benchmark in SHORT:
            stored[result.benchmark] = {"taken": result.taken, "machine": result.machine, "bounds": found}
    file.write_text(json.dumps(dict(sorted(stored.items())), indent=1) + "\n", encoding="utf-8")


def _ratios(benchmark: str, cells: Sequence[Cell]) -> Iterator[tuple[View, Cell, str, str]]:
    for view in VIEWS[benchmark]:
        for cell in cells:
            for upper, lower in view.ratios:
                yield view, cell, upper, lower


def _measured(cell: Cell, metric: str, upper: str, lower: str) -> Spread | None:
    return spread(paired_ratios(cell.samples(upper, metric), cell.samples(lower, metric)))


def _accepted(view: View, found: Spread) -> float:
    return round(found.largest * SLACK if view.less_is_better else min(found.smallest / SLACK, ENOUGH), 3)
