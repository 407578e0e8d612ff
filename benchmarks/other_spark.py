"""Runs the measurements of a benchmark with another PySpark, for which a lake format has a runtime."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.environment import Say
from benchmarks.results import Cell, Result
from integration.compatibility.__main__ import ROOT, environment, wheel
from integration.compatibility.rows import ROWS

LAKES = ("delta", "iceberg")


def measure_lakes(
    formats: Iterable[str],
    modules: Iterable[str],
    options: Mapping[str, Any],
    result: Result,
    say: Say,
    *,
    extras: str = "",
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run modules in the environment of each format, and add what they print to the result.

    Parameters
    ----------
    formats : iterable of str
        Of `LAKES`, or with a catalog, such as ``iceberg-jdbc``: a row ``lake-...`` of `integration.compatibility`.
    modules : iterable of str
        The modules.  They get the options as JSON, and call :func:`tell` for each measurement.
    options : mapping
        The options.
    result : Result
        Where to add the cells.
    say : callable
        Prints a line.
    extras : str
        More extras of the package, separated by commas.
    variables : mapping of str to str, optional
        More variables of the environment.

    Raises
    ------
    RuntimeError
        If a module fails.
    """
    built = wheel()
    cells: dict[str, Cell] = {}
    for row in ROWS:
        if row.name not in {f"lake-{name}" for name in formats}:
            continue
        say(f"preparing {row.name}")
        python = str(environment(replace(row, extras=f"{row.extras}{extras and ','}{extras}"), built))
        environ = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, **row.variables, **(variables or {})}
        for module in modules:
            command = [python, "-m", module, json.dumps(options)]
            with subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True
            ) as process:
                for line in process.stdout or ():
                    if not line.startswith("{"):
                        continue
                    found = json.loads(line)
                    if found["cell"] not in cells:
                        cells[found["cell"]] = Cell(name=found["cell"], factors=found["factors"])
                        result.cells.append(cells[found["cell"]])
                    cells[found["cell"]].add(found["arm"], found["metrics"])
                    say(f"{found['cell']}, {found['arm']}: {found['metrics']}")
            if process.returncode:
                raise RuntimeError(f"{module} with {row.name} ended with {process.returncode}: look into the log")


def tell(cell: str, factors: Mapping[str, Any], arm: str, metrics: Mapping[str, float | None]) -> None:
    """Print a measurement for :func:`measure_lakes`."""
    print(json.dumps({"cell": cell, "factors": factors, "arm": arm, "metrics": metrics}), flush=True)
