"""Reading and writing beside Spark's own source and sink with their defaults, and tuned: all in one table.

It runs a part of the benchmarks ``throughput``, ``batch`` and ``sink``.  This source and this sink have their defaults.
Spark's own have first their defaults, and then what someone who knows them would set: `queries.TUNING`, `sink.TUNING`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks import batch, sink, throughput
from benchmarks.environment import Say
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, DEFAULTS, EXACTLY_ONCE, FAIR, FAIR_ONCE, FAIR_TUNED, OURS, TUNED

_ARMS = {BUILTIN: DEFAULTS, TUNED: FAIR_TUNED, OURS: FAIR, EXACTLY_ONCE: FAIR_ONCE}


class _Part(NamedTuple):
    """A benchmark, its options, and how many seconds it takes about on two idle cores: once, and for each round."""

    module: ModuleType
    options: Mapping[str, Any]
    once_s: int
    round_s: int


_NOTHING_ELSE: dict[str, Any] = {"sizes": [], "headers": [], "partitions": [], "sinks": [], "columns": []}
_CODECS = ["none", "zstd"]

PARTS: Mapping[str, _Part] = {
    "stream": _Part(throughput, {**_NOTHING_ELSE, "codecs": _CODECS, "sources": [BUILTIN, TUNED, OURS]}, 90, 30),
    "batch": _Part(batch, {"partitions": [8], "codecs": _CODECS}, 80, 15),
    "sink": _Part(sink, {"rows": 2, "cold": 0, "sources": [BUILTIN, TUNED, OURS, EXACTLY_ONCE]}, 180, 25),
}

QUICK: dict[str, Any] = {"records": 40_000, "rounds": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=3, help="all arms run in each (default: %(default)s)")
    parser.add_argument("--records", type=int, default=3_000_000, help="to read; a third to write (%(default)s)")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    say(f"takes about {estimate(args.parts, args.rounds)} (h:mm:ss) on two idle cores")
    for name in args.parts:
        part = Result(benchmark=name, quick=result.quick, taken=result.taken, machine=result.machine, settings={})
        module = PARTS[name].module
        module.measure(arguments(name, args), part, say)
        result.cells += fair_cells(name, part.cells)
        say(f"{name} is done")


def estimate(parts: Iterable[str], rounds: int) -> timedelta:
    """Return about how long the parts take on two idle cores."""
    return timedelta(seconds=sum(PARTS[name].once_s + rounds * PARTS[name].round_s for name in parts))


def fair_cells(part: str, cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells of a part with the names of this benchmark."""
    found = []
    for cell in cells:
        size = cell.factors.get("value_size", 100)
        shown = f"{part}, {size} B" if size < 1000 else f"{part}, {size // 1000} kB"
        arms = {_ARMS[arm]: {"records_per_s": cell.samples(arm, "records_per_s")} for arm in cell.arms}
        found.append(Cell(name=f"{shown}, {cell.factors['codec']}", factors={**cell.factors, "part": part}, arms=arms))
    return found


def arguments(name: str, args: argparse.Namespace) -> argparse.Namespace:
    """Return the options of a part: its defaults, and what this benchmark changes."""
    module, options, *_ = PARTS[name]
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    given = parser.parse_args([])
    vars(given).update(options, repetitions=args.rounds, records=args.records)
    if module is throughput:
        given.base_repetitions = args.rounds
    elif module is batch:
        given.records = [args.records]
    else:
        given.records = args.records // 3
    return given
