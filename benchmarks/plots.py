"""A plot of each result: bars by source, with the range of the repetitions as whiskers.

The plots need matplotlib, which is in the extra ``bench``.  Without it, the rest still works.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from benchmarks.results import Result
from benchmarks.samples import Spread, spread
from benchmarks.views import VIEWS

MISSING = "none: matplotlib is missing, install it with .venv/bin/pip install '.[bench]'"

_PANELS = 2
"""Number of tables of a benchmark in its plot: the first ones are the most important."""


def draw(result: Result, folder: Path) -> str:
    """Draw a result into ``<benchmark>.svg``, and return the name of the file, or the reason for none."""
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError:
        return MISSING
    matplotlib.use("svg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    views = [v for v in VIEWS[result.benchmark] if any(c.samples(a, v.metric) for c in result.cells for a in c.arms)]
    if not views:
        return "none: nothing was measured"
    views = views[:_PANELS]
    names = [cell.name for cell in result.cells]
    arms = list(dict.fromkeys(arm for cell in result.cells for arm in cell.arms))
    height = 1.2 + 0.3 * len(names) * len(arms)
    picture, axes = pyplot.subplots(1, len(views), figsize=(6 * len(views), height), sharey=True, squeeze=False)
    for axis, view in zip(axes[0], views, strict=True):
        for at, arm in enumerate(arms):
            spreads = [spread(cell.samples(arm, view.metric)) for cell in result.cells]
            axis.barh(
                [n + at * 0.8 / len(arms) for n in range(len(names))],
                [s.median if s else 0 for s in spreads],
                height=0.75 / len(arms),
                xerr=_whiskers(spreads),
                label=arm,
                ecolor="#555555",
            )
        axis.set_title(view.title, fontsize=9)
    axes[0][0].set_yticks([n + 0.4 - 0.4 / len(arms) for n in range(len(names))], names, fontsize=8)
    axes[0][0].invert_yaxis()
    axes[0][0].legend(fontsize=8)
    picture.suptitle(result.benchmark + (" (--quick: means nothing)" if result.quick else ""), fontsize=10)
    picture.tight_layout()
    file = folder / f"{result.benchmark}.svg"
    # Without a date and random ids, equal figures produce equal files.  Fonts as text and paths on one line keep the
    # file small.
    with matplotlib.rc_context({"svg.hashsalt": result.benchmark, "svg.fonttype": "none"}):
        picture.savefig(file, metadata={"Date": None})
    file.write_text(re.sub(r' d="[^"]+"', lambda path: " " + " ".join(path[0].split()), file.read_text()))
    pyplot.close(picture)
    return str(file)


def _whiskers(spreads: list[Spread | None]) -> list[list[float]]:
    return [
        [s.median - s.smallest if s else 0 for s in spreads],
        [s.largest - s.median if s else 0 for s in spreads],
    ]
