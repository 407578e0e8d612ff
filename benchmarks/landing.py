"""From a topic into a lake table: landing, `LakeTable`, and plain appends behind this source and Spark's own.

Each format runs in a separate environment, with a PySpark for which it has a runtime; see `integration.compatibility`.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.environment import Say
from benchmarks.other_spark import LAKES, measure_lakes
from benchmarks.results import Result

QUICK: dict[str, Any] = {
    "records": 50_000, "large": 50_000, "kinds": ["100 B", "Avro"], "batches": 2, "repetitions": 1
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    kinds = ["100 B", "1 kB", "Avro"]
    parser.add_argument("--records", type=int, default=4_000_000, help="of 100 B (default: %(default)s)")
    parser.add_argument("--large", type=int, default=10_000_000, help="rows of the large table (default: %(default)s)")
    parser.add_argument("--kinds", nargs="*", default=kinds, help="of values (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=5, help="the first is not measured (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--formats", nargs="*", default=LAKES, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    options = {name: getattr(args, name) for name in ("records", "large", "kinds", "batches", "repetitions")}
    measure_lakes(args.formats, "benchmarks.landing_runs", options, result, say, extras="avro,bench,delta,iceberg")
