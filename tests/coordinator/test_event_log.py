"""The log describes events in words and as JSON."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from pyspark_kafka_group.coordinator import event_log
from pyspark_kafka_group.coordinator.event_log import LINE_FIELDS, EventLog, describe
from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import LogChange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from tests.coordinator.machine import A, B, span

TEXTS = [
    (
        events.Warming(others=2),
        "runs an empty batch before it joins the group, which has 2 other members for its topics",
    ),
    (events.Joined(member_id="m1"), "joined the group as m1"),
    (events.Assigned(partitions=(A, B)), "assigned t-0, t-1"),
    (events.Started(positions={A: Offset(5)}), "starting at t-0: 5"),
    (
        events.LogChanged(partitions=(A, B), change=LogChange.RECREATED.value, ranges={A: span(3, 8)}),
        "created again: t-0, t-1; the query decides again where they start; in flight or not committed: t-0 [3, 8)",
    ),
    (
        events.LogChanged(partitions=(A,), change=LogChange.TRUNCATED.value, ranges={}),
        "truncated: t-0; the query decides again where they start",
    ),
    (
        events.LogChanged(partitions=(A,), change=LogChange.DELETED.value, ranges={}),
        "deleted: t-0; the query decides again where they start",
    ),
    (
        events.Recreated(partition=A, position=Offset(2)),
        "t-0: the topic was deleted and created again, or the cluster restored from an older copy; starting at 2 "
        "(failOnDataLoss=false)",
    ),
    (
        events.HeldBack(partitions=(A,), reason="it has no leader"),
        "held back, cannot read t-0: it has no leader",
    ),
    (events.HeldBackEnded(partitions=(A,), seconds=12.5), "no longer held back, after 12.5 s: t-0"),
    (
        events.RecordsLost(partition=A, gone=(Offset(4), Offset(10))),
        "t-0: offsets [4, 10) are gone and were skipped (failOnDataLoss=false)",
    ),
    (
        events.OffsetReset(
            partition=A,
            by="alice@laptop",
            reset_at=1767225600.0,
            previous=Offset(9),
            committed=Offset(4),
            position=Offset(4),
        ),
        "t-0: the committed offset of the group is 4: alice@laptop set it with 'kafka-group' at 2026-01-01 "
        "00:00:00 UTC; it was 9 before; resuming at 4",
    ),
    (
        events.Rewound(partition=A, committed=Offset(4), position=Offset(9)),
        "t-0: the committed offset of the group went back to 4; resuming at 9 (onOffsetRewind)",
    ),
    (
        events.Rewound(partition=A, committed=None, position=Offset(9)),
        "t-0: the committed offset of the group is gone; resuming at 9 (onOffsetRewind)",
    ),
    (events.Planned(ranges={A: span(0, 5)}), "planned t-0 [0, 5)"),
    (
        events.Replayed(ranges={A: span(0, 5)}, not_owned=(A,), skipped={B: span(1, 2)}),
        "Spark runs its last batch again: t-0 [0, 5); left to its new owners: t-1 [1, 2); not owned, so not committed: "
        "t-0",
    ),
    (events.Finished(ranges={A: span(0, 5)}), "finished t-0 [0, 5)"),
    (events.Committed(offsets={A: Offset(5)}), "committed t-0: 5"),
    (events.Lag(topics={"t": 5, "u": 0}), "lag t: 5, u: 0"),
    (events.CommitFailed(problem="no answer"), "commit failed, retrying: no answer"),
    (events.Draining(partitions=(A,)), "revoked, leaving after the running batch: t-0"),
    (events.Released(partitions=(A,)), "released t-0"),
    (
        events.Expired(ranges={A: span(0, 5)}),
        "left before the batch was committed; may be processed twice: t-0 [0, 5)",
    ),
    (events.Lost(partitions=(A,), ranges={A: span(0, 5)}), "lost t-0; may be processed twice: t-0 [0, 5)"),
    (events.Lost(partitions=(A,), ranges={}), "lost t-0"),
    (events.Left(clean=True), "left the group"),
    (events.Left(clean=False), "left the group in the middle of a batch"),
]


@pytest.mark.parametrize(("event", "text"), TEXTS, ids=lambda value: getattr(value, "name", None))
def test_event_is_described_in_one_line(event: events.Event, text: str) -> None:
    assert describe(event) == text


def test_every_event_is_described() -> None:
    assert {event.name for event, _ in TEXTS} == {kind.name for kind in events.Event.__subclasses__()}


@pytest.mark.parametrize("change", LogChange, ids=lambda change: change.value)
def test_change_of_a_log_is_never_told_as_something_that_the_group_has_taken(change: LogChange) -> None:
    text = describe(events.LogChanged(partitions=(A,), change=change.value, ranges={A: span(3, 8)}))
    assert "lost" not in text
    assert "twice" not in text


def test_long_lists_are_cut() -> None:
    partitions = tuple(TopicPartition("t", n) for n in range(10))
    assert describe(events.Assigned(partitions=partitions)).endswith("t-7 and 2 more")


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (
            events.LogChanged(partitions=(A,), change="truncated", ranges={A: span(3, 8)}),
            {"event": "logChanged", "partitions": ["t-0"], "change": "truncated", "ranges": {"t-0": [3, 8]}},
        ),
        (events.Recreated(partition=A, position=Offset(2)), {"event": "recreated", "partition": "t-0", "position": 2}),
        (
            events.RecordsLost(partition=A, gone=(Offset(4), Offset(10))),
            {"event": "recordsLost", "partition": "t-0", "gone": [4, 10]},
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_event_is_one_line_of_the_file(event: events.Event, fields: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog("c", str(path))
    log(event)
    log.close()
    [line] = path.read_text(encoding="utf-8").splitlines()
    document = json.loads(line)
    assert {key: value for key, value in document.items() if key != "time"} == {"member": "c", **fields}
    assert log.counts[event.name] == 1


WARNED = [
    events.LogChanged(partitions=(A,), change="deleted", ranges={}),
    events.Recreated(partition=A, position=Offset(2)),
    events.HeldBack(partitions=(), reason="the coordinator of the group does not answer"),
    events.RecordsLost(partition=A, gone=(Offset(4), Offset(10))),
    events.Lost(partitions=(A,), ranges={}),
]


@pytest.mark.parametrize("event", WARNED, ids=lambda event: event.name)
def test_what_may_cost_records_is_a_warning(event: events.Event, caplog: pytest.LogCaptureFixture) -> None:
    EventLog("c", None)(event)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, f"c: {describe(event)}")
    ]


def test_file_that_cannot_be_written_is_given_up_after_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = EventLog("c", str(tmp_path / "missing" / "events.jsonl"))
    for _ in range(3):
        log(events.Left(clean=True))
    log.close()
    assert len([record for record in caplog.records if "eventLog: cannot write" in record.getMessage()]) == 1
    assert log.counts["left"] == 3


def test_every_line_begins_with_the_fields_that_the_docs_tell(tmp_path: Path) -> None:
    path = tmp_path / "events"
    log = EventLog("c", str(path))
    log(events.Left(clean=True))
    log.close()
    assert list(json.loads(path.read_text(encoding="utf-8"))) == [*LINE_FIELDS, "clean"]


def test_a_file_system_that_hangs_does_not_stop_the_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the group thread waited for the file, and the group threw its member out."""
    monkeypatch.setattr(event_log, "_MOST_WAITING", 3)
    monkeypatch.setattr(event_log, "_CLOSE_S", 0.1)
    path = tmp_path / "events"
    os.mkfifo(path)  # hangs until somebody reads it
    log = EventLog("c", str(path))
    for _ in range(9):
        log(events.Left(clean=True))
    log.close()
    assert [record.getMessage() for record in caplog.records if "takes no lines" in record.getMessage()] == [
        f"eventLog: {path} takes no lines. The file gets no further events."
    ]
    # Open until the last line is read: the log opens the pipe for each line, and would wait for another reader.
    with os.fdopen(os.open(path, os.O_RDWR)) as reader:
        assert [json.loads(reader.readline())["event"] for _ in range(3)] == ["left"] * 3
