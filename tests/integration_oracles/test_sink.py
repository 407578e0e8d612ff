"""The sink of the soak writes each batch once, as a whole, under its id."""

from __future__ import annotations

from pathlib import Path

from integration.sink import BatchFolder, in_order, runs


def test_a_batch_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    sink = BatchFolder(tmp_path / "rows", "a")
    assert not sink.has(7)
    sink.write(7, [("t", 0, 3), ("t", 0, 4), ("t", 1, 9)])
    assert sink.has(7)
    assert [d[2:] for d in sink.read()] == [(7, "t", 0, 3, 5), (7, "t", 1, 9, 10)]
    assert {d.member for d in BatchFolder(tmp_path / "rows", "a").read()} == {"a"}


def test_a_batch_that_was_not_written_to_its_end_is_not_there(tmp_path: Path) -> None:
    sink = BatchFolder(tmp_path)
    (tmp_path / ".7.123").write_text("{")
    assert not sink.has(7)
    assert sink.read() == []


def test_an_offset_that_comes_twice_is_in_two_ranges() -> None:
    assert runs([1, 2, 2, 3]) == [(1, 3), (2, 4)]


def test_rows_are_kept_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    assert in_order([3, 4, 1, 2, 2]) == [(3, 5), (1, 3), (2, 3)]
    sink = BatchFolder(tmp_path)
    sink.write(0, [("t", 0, 3), ("t", 0, 1)])
    assert [(d.start, d.until) for d in sink.read()] == [(3, 4), (1, 2)]
