"""The source process's report on the batch in flight, and whether the group has certainly begun a partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyspark_kafka_group.coordinator.handover.state import Batch, Partition, State
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.batch_offset import BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.commit_metadata import ANYBODY, CommitNote, Former
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.query.batch_report import batch_report
from tests.coordinator.machine import POLICY

TP = TopicPartition("orders", 0)
START: Any = 100
UNTIL: Any = 200


def state(*, owned: bool = True, running: bool = True, **known: Any) -> State:
    note = CommitNote("q", "id", 1, known.pop("since", START), "l", known.pop("former", ()))
    partition = Partition(Phase.ACTIVE, epoch=1, position=UNTIL, note=note, **known)  # type: ignore[arg-type]
    r = OffsetRange(START, UNTIL)
    end = BatchOffset("q", {TP: PartitionEntry(r, None, "id", "l")})
    batch = Batch(end=end, running={TP: r} if running else {}, epochs={})
    return State(policy=POLICY, query_id="q", owned={TP: partition} if owned else {}, batch=batch)


@pytest.mark.parametrize(
    ("known", "finished", "begun"),
    [
        pytest.param({"committed": 100}, 0, False, id="the first batch of the first query"),
        pytest.param({"committed": 100, "former": (Former(ANYBODY, START),)}, 0, False, id="after a reset"),
        pytest.param({"committed": 100, "since": 0}, 100, True, id="a later batch"),
        pytest.param({"committed": 40, "since": 0, "finished": 100}, 100, True, id="the commit is not there yet"),
        pytest.param({"committed": 100, "former": (Former("p", START),)}, 100, True, id="another query had it"),
        pytest.param(
            {"committed": 100, "former": (Former(ANYBODY, START), Former("p", START))}, 0, False, id="it was put back"
        ),
        pytest.param({"committed": 60, "since": 0, "finished": 60}, 60, True, id="records were deleted unread"),
        pytest.param({"committed": 200, "since": 0}, 100, True, id="it runs again"),
        pytest.param({"owned": False}, 0, False, id="it runs again and belongs to another query"),
    ],
)
def test_what_must_have_been_finished(known: dict[str, Any], finished: int, begun: bool) -> None:
    found = state(**known)
    assert found.batch is not None
    expected = ReadRange(START, UNTIL, finished, begun, "id", "etl")  # type: ignore[arg-type]
    assert batch_report(found, found.batch.end, "etl") == {TP: expected}


@pytest.mark.parametrize("keeps_offsets", [True, False])
@pytest.mark.parametrize("start", [60, 100])
def test_without_a_group_the_checkpoint_knows_what_was_finished(keeps_offsets: bool, start: Any) -> None:
    last = BatchOffset("q", {TP: PartitionEntry(OffsetRange(start, START), None, "id", "l")})
    found = replace(state(), policy=replace(POLICY, keeps_offsets=keeps_offsets), start=last)
    assert found.batch is not None
    report = batch_report(found, found.batch.end)
    assert report is not None
    assert report[TP].finished == (0 if keeps_offsets else 100)
    assert report[TP].begun is (not keeps_offsets and start < 100)


@pytest.mark.parametrize(("until", "finished"), [(90, 90), (120, 100)])
def test_of_a_partition_of_another_query_the_checkpoint_knows_what_was_finished(until: Any, finished: int) -> None:
    """Regression: records below the batch that were deleted unread counted as finished."""
    last = BatchOffset("q", {TP: PartitionEntry(OffsetRange(60, until), None, "id", "l")})  # type: ignore[arg-type]
    found = replace(state(owned=False), start=last)
    assert found.batch is not None
    assert batch_report(found, found.batch.end) == {TP: ReadRange(START, UNTIL, finished, True, "id")}  # type: ignore[arg-type]


def test_another_batch_is_not_known() -> None:
    assert batch_report(state(), BatchOffset("q")) is None
    assert batch_report(State(policy=POLICY), BatchOffset("q")) is None


def test_what_a_replay_skips_is_not_read() -> None:
    found = state(running=False)
    assert found.batch is not None
    assert batch_report(found, found.batch.end) == {}
