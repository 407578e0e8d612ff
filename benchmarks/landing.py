"""From a topic into a lake table: landing, `LakeTable`, and plain appends behind this source and Spark's own.

Each format runs in a separate environment, with a PySpark for which it has a runtime; see `integration.compatibility`.
First all arms run in one session, with large batches, and then with small ones for the times of commits.  Then
applications of one group copy a topic side by side, each in a new JVM, and their memory is measured.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.environment import Say
from benchmarks.other_spark import LAKES, measure_lakes
from benchmarks.results import Result

QUICK: dict[str, Any] = {
    "records": 50_000,
    "large": 50_000,
    "kinds": ["100 B", "Avro"],
    "batches": 2,
    "repetitions": 1,
    "commits": 3,
    "applications": [1, 2],
    "group_records": 50_000,
    "warm_up": 20_000,
    "per_batch": 10_000,
}

# Iceberg's tables need a catalog into which several applications can commit at once.
_ROWS = {"delta": "delta", "iceberg": "iceberg-jdbc"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    kinds = ["100 B", "1 kB", "Avro"]
    parser.add_argument("--records", type=int, default=4_000_000, help="of 100 B (default: %(default)s)")
    parser.add_argument("--large", type=int, default=10_000_000, help="rows of the large table (default: %(default)s)")
    parser.add_argument("--kinds", nargs="*", default=kinds, help="of values (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=5, help="the first is not measured (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--commits", type=int, default=100, help="of small batches; 0: none (default: %(default)s)")
    text = "how many of one group run side by side; nothing: none (default: %(default)s)"
    parser.add_argument("--applications", type=int, nargs="*", default=[1, 2, 4], help=text)
    parser.add_argument("--cores", type=int, default=1, help="of such an application (default: %(default)s)")
    parser.add_argument("--group-records", type=int, default=3_000_000, help="that they copy (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=1_000_000, help="records before these (default: %(default)s)")
    parser.add_argument("--per-batch", type=int, default=250_000, help="records of one of them (default: %(default)s)")
    parser.add_argument("--formats", nargs="*", default=LAKES, choices=LAKES, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    options = {name: getattr(args, name) for name in (*QUICK, "cores")}
    modules = ["benchmarks.landing_runs"] if args.kinds or args.commits else []
    modules += ["benchmarks.landing_groups"] if args.applications else []
    rows = [_ROWS[name] for name in args.formats]
    measure_lakes(rows, modules, options, result, say, extras="avro,bench,delta,iceberg")
