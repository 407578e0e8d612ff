"""The longest files of integration tests begin first."""

from __future__ import annotations

from pathlib import Path

from integration.order import FIRST, long_ones_first

INTEGRATION = Path(__file__).parents[2] / "integration"


def test_long_files_begin_first_and_the_others_stay_as_they_are() -> None:
    files = ["b/test_b.py", "b/test_b.py", "b/test_a.py", "b/test_long.py", "b/test_longer.py"]
    places = long_ones_first(files, ["test_longer", "test_long"])
    assert sorted(places, key=places.__getitem__) == [
        "b/test_longer.py",
        "b/test_long.py",
        "b/test_b.py",
        "b/test_a.py",
    ]


def test_every_file_that_begins_first_exists_and_has_one_place() -> None:
    assert {name for name in FIRST if not (INTEGRATION / f"{name}.py").is_file()} == set()
    assert len(set(FIRST)) == len(FIRST)
