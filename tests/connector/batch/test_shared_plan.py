"""All planning processes of one ``load()`` use the same plan."""

from __future__ import annotations

import fcntl
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from pyspark_kafka_group.batch import shared_plan as module
from pyspark_kafka_group.batch.shared_plan import shared_plan
from pyspark_kafka_group.offsets.errors import BrokerError
from pyspark_kafka_group.offsets.task_ranges import Task
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition


def plans(start: int = 1, *, pause_s: float = 0.0) -> Callable[[], list[Task]]:
    """Return a function that makes a longer plan each time."""
    numbers = itertools.count(start)

    def plan() -> list[Task]:
        time.sleep(pause_s)
        tp = TopicPartition("töpic", 0)
        return [{tp: OffsetRange(Offset(0), Offset(next(numbers)))}, {}]

    return plan


def ends(tasks: list[Task]) -> list[int]:
    return [r.until for task in tasks for r in task.values()]


def plan_in_process(folder: Path, start: int) -> list[Task]:
    return shared_plan("one", plans(start, pause_s=0.2), folder)


def test_the_first_plan_counts(tmp_path: Path) -> None:
    plan = plans()
    first = shared_plan("one", plan, tmp_path)
    assert shared_plan("one", plan, tmp_path) == first
    assert ends(first) == [1]
    assert len(first) == 2, "a task may be empty"
    assert ends(shared_plan("other", plan, tmp_path)) == [2]


def test_threads_of_one_query_wait_for_the_first(tmp_path: Path) -> None:
    plan = plans(pause_s=0.05)
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda _: shared_plan("one", plan, tmp_path), range(8))]
    assert [ends(tasks) for tasks in found] == [[1]] * 8


def test_processes_of_one_query_wait_for_the_first(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        one, other = pool.starmap(plan_in_process, [(tmp_path, 1), (tmp_path, 2)])
    assert one == other


@pytest.mark.parametrize("problem", [BrokerError("no answer"), ConnectionResetError("no answer")])
def test_a_plan_that_fails_is_made_again(tmp_path: Path, problem: Exception) -> None:
    with pytest.raises(type(problem), match="no answer"):
        shared_plan("one", MagicMock(side_effect=problem), tmp_path)
    assert ends(shared_plan("one", plans(), tmp_path)) == [1]


def test_a_process_that_died_while_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "one").write_text('[[["t", 0, 0, ')
    assert ends(shared_plan("one", plans(), tmp_path)) == [1]


def test_old_plans_are_removed_and_not_used(tmp_path: Path) -> None:
    plan = plans()
    for load in ("one", "other"):
        shared_plan(load, plan, tmp_path)
        long_ago = time.time() - module._KEPT_S - 1
        os.utime(tmp_path / load, (long_ago, long_ago))
    assert ends(shared_plan("one", plan, tmp_path)) == [3]
    assert ends(shared_plan("one", plan, tmp_path)) == [3]
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_file_that_was_removed_while_a_process_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock
    removed: list[int] = []

    def late(file: int, kind: int) -> None:
        if not removed:
            removed.append(file)
            (tmp_path / "one").unlink()
        lock(file, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    shared_plan("one", plans(), tmp_path)
    assert removed
    assert ends(shared_plan("one", plans(5), tmp_path)) == [1]


def test_without_a_folder_or_without_room_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert ends(shared_plan("one", plans(), tmp_path / "file")) == [1]
    assert "Set TMPDIR to a folder that the driver may write to" in caplog.text
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    assert ends(shared_plan("one", plans(), tmp_path)) == [1]
    assert "there is no room for the plan" in caplog.text


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "aim").write_text("kept")
    folder = tmp_path / "plans"
    folder.mkdir()
    (folder / "one").symlink_to(tmp_path / "aim")
    assert ends(shared_plan("one", plans(), folder)) == [1]
    assert (tmp_path / "aim").read_text() == "kept"
