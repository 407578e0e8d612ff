"""What one benchmark has measured, as it is stored: every repetition, never only a summary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1

Samples = dict[str, list[float | None]]
"""For each metric its value in each repetition; None where a repetition has none."""


@dataclass(kw_only=True)
class Cell:
    """One row of a benchmark: the case, and the results of each source.

    Attributes
    ----------
    name : str
        What people read.
    factors : mapping
        What the cell is, for programs.
    arms : mapping of str to Samples
        By source.  Repetition ``i`` of all sources ran one after the other.
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
        """Return the repetitions of a metric; empty where it was not measured."""
        return self.arms.get(arm, {}).get(metric, [])


@dataclass(kw_only=True)
class Result:
    """All that one benchmark has measured.

    Attributes
    ----------
    benchmark : str
        Its name on the command line.
    quick : bool
        Whether it only tried the harness: then its figures mean nothing.
    taken : str
        When, in UTC.
    machine : mapping
        What it ran on.
    settings : mapping
        Its options.
    notes : list of str
        What happened meanwhile that a reader must know.
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
        """Write it to ``<benchmark>.json`` in a folder, and return that file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.benchmark}.json"
        file.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")
        return file

    @classmethod
    def load(cls, file: Path) -> Result:
        """Read it again."""
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored.pop("format", None) != FORMAT:
            raise ValueError(f"{file.name} is of another format than {FORMAT}: run the benchmark again")
        cells = [Cell(**cell) for cell in stored.pop("cells")]
        return cls(**stored, cells=cells)
