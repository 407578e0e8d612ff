"""The stored result of one benchmark.  It contains every repetition, never only a summary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1

Samples = dict[str, list[float | None]]
"""The values of each metric, one for each repetition; None if a repetition has no value."""


@dataclass(kw_only=True)
class Cell:
    """One row of a benchmark: the case, and the results of each source.

    Attributes
    ----------
    name : str
        The case, for people.
    factors : mapping
        The case, for programs.
    arms : mapping of str to Samples
        The results by source.  The sources took turns in each repetition.
    """

    name: str
    factors: dict[str, Any] = field(default_factory=dict)
    arms: dict[str, Samples] = field(default_factory=dict)

    def add(self, arm: str, measured: Mapping[str, float | None]) -> None:
        """Add one repetition."""
        samples = self.arms.setdefault(arm, {})
        for metric, value in measured.items():
            samples.setdefault(metric, []).append(value)

    def samples(self, arm: str, metric: str) -> list[float | None]:
        """Return the repetitions of a metric; empty if the benchmark did not measure it."""
        return self.arms.get(arm, {}).get(metric, [])


@dataclass(kw_only=True)
class Result:
    """The result of one benchmark.

    Attributes
    ----------
    benchmark : str
        The name on the command line.
    quick : bool
        Whether the run only tried the harness.  Its figures then mean nothing.
    taken : str
        The time in UTC.
    machine : mapping
        The machine of the run.
    settings : mapping
        The options of the benchmark.
    notes : list of str
        Events during the run that a reader must know.
    cells : list of Cell
        The figures.
    """

    benchmark: str
    quick: bool
    taken: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)

    def save(self, folder: Path) -> Path:
        """Write the result to ``<benchmark>.json`` in a folder, and return that file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.benchmark}.json"
        file.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")
        return file

    @classmethod
    def load(cls, file: Path) -> Result:
        """Read a stored result."""
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored.pop("format", None) != FORMAT:
            raise ValueError(f"{file.name} is of another format than {FORMAT}: run the benchmark again")
        cells = [Cell(**cell) for cell in stored.pop("cells")]
        return cls(**stored, cells=cells)
