"""The source finds the last finished batch in checkpoints of Spark (see `make_checkpoints.py`)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.spark_commit_log import last_finished, offsets_in

CHECKPOINTS = Path(__file__).with_name("checkpoints")
VERSIONS = ("v1", "v2")


def ours(found: list[object]) -> list[BatchOffset]:
    return [BatchOffset.from_json(offset) for offset in found if isinstance(offset, dict)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_newest_finished_batch_is_found_and_the_one_that_is_only_logged_is_not(version: str) -> None:
    checkpoint = CHECKPOINTS / version
    (end,) = ours(last_finished(checkpoint))
    assert {str(tp): (r.start, r.until) for tp, r in end.ranges().items()} == {"orders-0": (5, 10), "orders-1": (5, 10)}
    (logged,) = ours(offsets_in((checkpoint / "offsets" / "2").read_text()))
    assert logged != end


@pytest.mark.parametrize("version", VERSIONS)
def test_the_offsets_of_other_sources_are_there_as_well(version: str) -> None:
    assert len(last_finished(CHECKPOINTS / version)) == 2


def test_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    for part in ("offsets", "commits"):
        shutil.copytree(CHECKPOINTS / "v1" / part, tmp_path / part)
        shutil.copy(tmp_path / part / "1", tmp_path / part / "10")
        shutil.copy(tmp_path / part / "0", tmp_path / part / "9")
    assert last_finished(tmp_path) == last_finished(CHECKPOINTS / "v1")


def test_a_query_that_has_finished_nothing_is_not_a_problem(tmp_path: Path) -> None:
    assert last_finished(tmp_path) == []
    shutil.copytree(CHECKPOINTS / "v1" / "offsets", tmp_path / "offsets")
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / ".0.7c01ea8c.tmp").touch()
    assert last_finished(tmp_path) == []


def test_an_offset_that_was_removed_as_too_old_is_not_a_problem(tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINTS / "v1" / "commits", tmp_path / "commits")
    (tmp_path / "offsets").mkdir()
    assert last_finished(tmp_path) == []


def test_a_source_without_an_offset_is_left_out() -> None:
    assert offsets_in('v1\n{}\n-\n{"a": 1}') == [{"a": 1}]
    assert offsets_in('v2\n{}\nfirst:-\nsecond:{"a": 1}') == [{"a": 1}]
    assert offsets_in("v1\n{}\n" + "[" * 200_000) == [], "regression: it was a RecursionError"


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", 'v3\n{}\n{"a": 1}'])
def test_what_is_unknown_or_unfinished_says_nothing(text: str) -> None:
    assert offsets_in(text) == []
