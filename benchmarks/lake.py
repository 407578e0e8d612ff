"""Writes to a Delta and an Iceberg table: with ``LakeTable``, by a plain append, and into PostgreSQL for comparison.

The benchmark varies the size of the table and the number of concurrent writers.  Each format runs in a separate
environment, with a PySpark for which it has a runtime; see `integration.compatibility`.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.environment import Say
from benchmarks.other_spark import LAKES, measure_lakes
from benchmarks.results import Result
from integration.postgres import postgres_from_environment

QUICK: dict[str, Any] = {"sizes": [1_000], "writers": [1, 2], "per_batch": 1_000, "writes": 2, "repetitions": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    sizes = [1_000, 100_000, 10_000_000]
    parser.add_argument("--sizes", type=int, nargs="*", default=sizes, help="rows of the table (default: %(default)s)")
    parser.add_argument("--writers", type=int, nargs="*", default=[1, 2, 4, 8], help="(default: %(default)s)")
    parser.add_argument("--per-batch", type=int, default=10_000, help="rows of a write (default: %(default)s)")
    parser.add_argument("--writes", type=int, default=5, help="of each writer (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--formats", nargs="*", default=LAKES, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    options = {name: getattr(args, name) for name in ("sizes", "writers", "per_batch", "writes", "repetitions")}
    result.notes.append("all writers are threads of one application, on the same two cores")
    with postgres_from_environment() as database:
        measure_lakes(
            args.formats, ["benchmarks.lake_writes"], options, result, say, variables={"DATABASE_URL": database}
        )
