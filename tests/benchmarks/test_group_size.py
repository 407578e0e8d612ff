"""Positions in the benchmark of large groups."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.group_size import fallen_back, first_positions


def test_a_partition_that_began_elsewhere_is_named() -> None:
    committed = {"t-0": 5, "t-1": 7, "t-2": 9}
    assert fallen_back(committed, committed) == []
    assert fallen_back({"t-0": 5, "t-1": 12}, committed) == [
        "t-1: began at 12, committed was 7",
        "t-2: began at None, committed was 9",
    ]


def test_the_first_owner_of_a_partition_says_where_it_began(tmp_path: Path) -> None:
    """The next owners begin where the first one has stopped."""

    def write(name: str, at: float, positions: dict[str, int]) -> None:
        event = {"time": at, "event": "started", "positions": positions}
        (tmp_path / name).write_text(json.dumps(event) + "\n")

    write("b.jsonl", 2.0, {"t-0": 8})
    write("a.jsonl", 1.0, {"t-0": 5, "t-1": 3})
    assert first_positions(tmp_path) == {"t-0": 5, "t-1": 3}
