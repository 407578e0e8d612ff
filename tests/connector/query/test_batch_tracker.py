"""Signals that a batch is finished, and the warning if no such signal comes."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pyspark_kafka_group.coordinator.handover.inputs import End
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending
from pyspark_kafka_group.coordinator.handover.state import Batch, Partition, State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.membership import Membership, StoppingError
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.query.batch_tracker import BatchTracker

CHECKPOINT = Path(__file__).parents[2] / "offsets" / "checkpoints" / "v1"
"""Spark has written it.  See `tests/offsets/make_checkpoints.py`."""

FINISHED = BatchOffset.from_json(json.loads((CHECKPOINT / "offsets" / "1").read_text().split("\n")[2]))
LOGGED = BatchOffset.from_json(json.loads((CHECKPOINT / "offsets" / "2").read_text().split("\n")[2]))
ORDERS = TopicPartition("orders", 0)


class FakeGroup:
    """The parts of a membership that `BatchTracker` needs: a state, and a method for finished batches."""

    def __init__(self, batch: BatchOffset | None, phase: Phase = Phase.DRAINING) -> None:
        self.state = State(
            policy=StartPolicy(group_id="etl", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True),
            owned={ORDERS: Partition(phase=phase, epoch=OwnershipEpoch(1), position=Offset(10))},
            batch=None if batch is None else Batch(end=batch, running={}, epochs={}),
        )
        self.alive = True
        self.finished: list[BatchOffset] = []
        self.told = threading.Event()

    def note_finished(self, end: BatchOffset) -> None:
        self.finished.append(end)
        self.told.set()

    def finish(self, end: BatchOffset) -> None:
        if not self.alive:
            raise StoppingError("left")
        self.finished.append(end)
        self.told.set()


@pytest.fixture
def tracker(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[..., BatchTracker]]:
    caplog.set_level(logging.WARNING, logger="pyspark_kafka_group")
    made: list[BatchTracker] = []

    def make(group: FakeGroup, checkpoint: Path | None = None) -> BatchTracker:
        made.append(BatchTracker(cast(Membership, group), client_id="etl", checkpoint=checkpoint))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return the same checkpoint, with offsets in the current format."""
    target = tmp_path / "checkpoint"
    shutil.copytree(CHECKPOINT, target)
    for path in (target / "offsets").glob("[0-9]*"):
        version, metadata, ours, other = path.read_text().split("\n")
        ours = json.dumps(BatchOffset.from_json(json.loads(ours)).to_json())
        path.write_text("\n".join([version, metadata, ours, other]))
    return target


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("pyspark_kafka_group.query.batch_tracker.time.monotonic", lambda: now[0])
    return now


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_the_listener_says_reaches_the_group(tracker: Callable[..., BatchTracker]) -> None:
    group = FakeGroup(FINISHED)
    tracker(group).report(FINISHED.to_json())
    assert group.finished == [FINISHED]


def test_what_is_not_an_offset_is_refused(tracker: Callable[..., BatchTracker]) -> None:
    group = FakeGroup(FINISHED)
    with pytest.raises(OffsetFormatError):
        tracker(group).report({"orders": {"0": 7}})
    assert not group.finished


def test_a_batch_of_the_commit_log_is_finished_while_a_partition_drains(
    tracker: Callable[..., BatchTracker], checkpoint: Path
) -> None:
    group = FakeGroup(FINISHED)
    tracker(group, checkpoint)
    assert group.told.wait(10)
    assert group.finished[0] == FINISHED


@pytest.mark.parametrize("ending", [Ending.FINISH, Ending.STOP])
def test_so_it_is_while_the_query_is_being_stopped(
    tracker: Callable[..., BatchTracker], ending: Ending, checkpoint: Path
) -> None:
    group = FakeGroup(FINISHED, Phase.ACTIVE)
    group.state = step(group.state, End(ending))[0]
    tracker(group, checkpoint)
    assert group.told.wait(10)


def test_the_commit_log_is_not_read_while_nobody_waits(
    tracker: Callable[..., BatchTracker], monkeypatch: pytest.MonkeyPatch, checkpoint: Path
) -> None:
    looked = threading.Event()
    awaited: list[bool] = []

    def not_awaited(_state: State) -> bool:
        awaited.append(False)
        if len(awaited) == 3:
            looked.set()
        return False

    group = FakeGroup(FINISHED)
    monkeypatch.setattr("pyspark_kafka_group.query.batch_tracker._awaited", not_awaited)
    tracker(group, checkpoint)
    assert looked.wait(10)
    assert not group.finished


def test_a_batch_that_is_only_logged_is_not_finished(tracker: Callable[..., BatchTracker], checkpoint: Path) -> None:
    group = FakeGroup(LOGGED)
    tracker(group, checkpoint).read_commit_log()
    assert not group.finished


def test_looking_is_harmless_whatever_is_there(
    tracker: Callable[..., BatchTracker], tmp_path: Path, checkpoint: Path
) -> None:
    (tmp_path / "commits").mkdir()
    shutil.copytree(checkpoint / "offsets", tmp_path / "offsets")
    (tmp_path / "commits" / "1").touch()
    (tmp_path / "offsets" / "1").write_bytes(b"\xff\xfe")
    tracker(FakeGroup(FINISHED), tmp_path).read_commit_log()
    (tmp_path / "file").touch()
    tracker(FakeGroup(FINISHED), tmp_path / "file").read_commit_log()
    left = FakeGroup(FINISHED)
    left.alive = False  # Regression: once the member had begun to leave, its finished batch was forgotten
    tracker(left, checkpoint).read_commit_log()
    assert left.finished == [FINISHED]
    tracker(FakeGroup(None), checkpoint).read_commit_log()


def rounds(tracker: BatchTracker, clock: list[float], *gaps_s: float) -> None:
    """Let Spark plan a batch and return after each of these gaps."""
    for gap_s in gaps_s:
        tracker.called()
        tracker.planned()
        clock[0] += gap_s
    tracker.called()


def test_triggers_that_are_far_apart_are_warned_of_once_with_the_remedies(
    tracker: Callable[..., BatchTracker], clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    rounds(tracker(FakeGroup(None)), clock, 60, 60, 60, 60)
    (warning,) = warnings(caplog)
    assert "pyspark_kafka_group.register(spark)" in warning
    assert "checkpointLocation" in warning
    assert "60 s" in warning


@pytest.mark.parametrize("gaps_s", [(60.0,), (9.0, 9.0, 9.0)])
def test_one_long_batch_and_quick_batches_are_not_warned_of(
    tracker: Callable[..., BatchTracker], clock: list[float], caplog: pytest.LogCaptureFixture, gaps_s: Any
) -> None:
    rounds(tracker(FakeGroup(None)), clock, *gaps_s)
    assert not warnings(caplog)


def test_time_without_a_batch_does_not_count(
    tracker: Callable[..., BatchTracker], clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    idle = tracker(FakeGroup(None))
    for _ in range(5):
        idle.called()
        clock[0] += 60
    assert not warnings(caplog)


def test_with_a_listener_there_is_nothing_to_warn_of(
    tracker: Callable[..., BatchTracker], clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    reported = tracker(FakeGroup(None))
    reported.report(FINISHED.to_json())
    rounds(reported, clock, 60, 60, 60)
    assert not warnings(caplog)


def test_with_a_checkpoint_there_is_nothing_to_warn_of(
    tracker: Callable[..., BatchTracker], clock: list[float], caplog: pytest.LogCaptureFixture, checkpoint: Path
) -> None:
    rounds(tracker(FakeGroup(None), checkpoint), clock, 60, 60, 60)
    assert not warnings(caplog)


def test_a_checkpoint_that_is_not_the_querys_is_warned_of_once(
    tracker: Callable[..., BatchTracker], clock: list[float], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    rounds(tracker(FakeGroup(None), tmp_path), clock, 1, 1, 1)
    (warning,) = warnings(caplog)
    assert str(tmp_path) in warning
    assert "option checkpointLocation" in warning
