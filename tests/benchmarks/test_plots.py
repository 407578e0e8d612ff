"""Plots are an extra.  Everything else works without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import plots
from benchmarks.results import Cell, Result


def _result() -> Result:
    cell = Cell(name="base")
    for rate in (1.0, 2.0):
        cell.add("kafka", {"records_per_s": rate})
    return Result(benchmark="throughput", quick=False, taken="", machine={}, settings={}, cells=[cell])


def test_without_matplotlib_there_is_a_word_instead_of_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "'.[bench]'" in plots.draw(_result(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_same_figures_give_the_same_plot(tmp_path: Path) -> None:
    pictures = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        pictures.append(Path(plots.draw(_result(), tmp_path / name)).read_bytes())
    assert pictures[0] == pictures[1]
    assert b"<svg" in pictures[0]


def test_a_result_without_figures_has_no_plot(tmp_path: Path) -> None:
    empty = Result(benchmark="throughput", quick=False, taken="", machine={}, settings={})
    assert "nothing was measured" in plots.draw(empty, tmp_path)
