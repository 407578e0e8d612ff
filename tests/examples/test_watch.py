"""The demo's watch merges event logs in order of time, and derives hand-overs from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from watch import EventLogs, LiveHandOver, Owners, Snapshot


def started(time: float, *partitions: int) -> dict[str, Any]:
    return {"event": "started", "time": time, "positions": {f"orders-{p}": 0 for p in partitions}}


def released(time: float, *partitions: int) -> dict[str, Any]:
    return {"event": "released", "time": time, "partitions": [f"orders-{p}" for p in partitions]}


def append(path: Path, *events: dict[str, Any], end: str = "\n") -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, events)) + end)


def two_logs(folder: Path) -> tuple[EventLogs, Path, Path]:
    logs = EventLogs()
    logs.add("etl-1", folder / "a")
    logs.add("etl-2", folder / "b")
    return logs, folder / "a", folder / "b"


def test_events_of_two_logs_come_in_order_of_time_and_once(tmp_path: Path) -> None:
    logs, a, b = two_logs(tmp_path)
    append(a, started(1, 0), released(3, 0))
    append(b, started(2, 1))
    found = [(name, event["time"]) for name, event in logs.new_events(now=10)]
    assert found == [("etl-1", 1), ("etl-2", 2), ("etl-1", 3)]
    assert list(logs.new_events(now=10)) == []


def test_a_young_event_waits_for_older_ones_of_the_other_log(tmp_path: Path) -> None:
    logs, a, b = two_logs(tmp_path)
    append(b, started(9.9, 0))
    assert list(logs.new_events(now=10)) == []
    append(a, released(9.8, 0))
    assert [event["event"] for _, event in logs.new_events(now=11)] == ["released", "started"]


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    logs, path, _ = two_logs(tmp_path)
    append(path, started(1, 0), end="")
    assert list(logs.new_events(now=10)) == []
    path.write_text(path.read_text() + "\n")
    assert len(list(logs.new_events(now=10))) == 1


def test_a_hand_over_runs_from_the_release_to_the_start_at_the_new_owner() -> None:
    owners = Owners()
    owners.apply("etl-1", started(1, 0, 1, 2))
    owners.apply("etl-1", released(5, 1, 2))
    assert owners.now == {0: "etl-1"}
    owners.apply("etl-2", started(5.5, 1))
    owners.apply("etl-2", started(6, 2))
    assert owners.now == {0: "etl-1", 1: "etl-2", 2: "etl-2"}
    assert owners.hand_overs(now=6.1) == []
    assert owners.hand_overs(now=7) == [LiveHandOver((1, 2), "etl-1", "etl-2", 1.0)]
    assert owners.hand_overs(now=8) == []


def test_a_partition_that_comes_back_to_its_owner_is_no_hand_over() -> None:
    owners = Owners()
    owners.apply("etl-1", started(1, 0))
    owners.apply("etl-1", released(2, 0))
    owners.apply("etl-1", started(3, 0))
    assert owners.hand_overs(now=100) == []


def test_a_lost_partition_moves_as_well() -> None:
    owners = Owners()
    owners.apply("etl-1", started(1, 0))
    owners.apply("etl-1", {"event": "lost", "time": 4, "partitions": ["my-orders-0"]})
    owners.apply("etl-2", started(6, 0))
    assert owners.hand_overs(now=100) == [LiveHandOver((0,), "etl-1", "etl-2", 2)]


def test_lag_counts_a_partition_without_a_commit_from_its_beginning() -> None:
    snapshot = Snapshot(at=0, owners=None, committed={0: 4}, ends={0: 10, 1: 7})
    assert (snapshot.lag(0), snapshot.lag(1), snapshot.total_lag) == (6, 7, 13)


def test_an_application_that_leaves_gives_up_all_it_had() -> None:
    owners = Owners()
    owners.apply("etl-1", started(1, 0, 1))
    owners.apply("etl-1", released(2, 0))
    owners.apply("etl-1", {"event": "left", "time": 3, "clean": False})
    owners.apply("etl-2", started(4, 0, 1))
    assert owners.hand_overs(now=100) == [LiveHandOver((0, 1), "etl-1", "etl-2", 2)]
