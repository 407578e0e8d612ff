"""``kafka-group health``: the queries on this machine, through their control sockets."""

from __future__ import annotations

import json
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pyspark_kafka_group.control import client
from pyspark_kafka_group.control.server import ControlSocket
from tests.tools.shell import refused
from tests.tools.shell import run as kafka_group_run

Start = Callable[[Callable[[], Any]], str]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the other queries on this machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


@pytest.fixture
def start() -> Iterator[Start]:
    """Yield a function that starts the control socket of a query with a report, and returns the query's id."""
    made: list[ControlSocket] = []

    def one(report: Callable[[], Any]) -> str:
        query_id = str(uuid.uuid4())
        made.append(ControlSocket(lambda _: True, lambda _: None, report, query_id))
        return query_id

    yield one
    for socket in made:
        socket.close()


def report(**changes: Any) -> dict[str, Any]:
    usual = {"group": "etl", "clientId": "etl-1", "alive": True, "calledAt": time.time(), "heldBack": {}}
    return {**usual, **changes}


def run(*options: str) -> Result:
    return kafka_group_run("health", *options)


def test_queries_that_are_well_are_0(start: Start) -> None:
    start(report)
    start(lambda: None)  # it has not joined yet
    found = run()
    assert found.exit_code == 0, found.output
    assert "etl-1 (group etl): well" in found.stdout.splitlines()


def test_one_query_that_is_not_is_1_and_only_those_of_the_group_count(start: Start) -> None:
    start(report)
    start(lambda: report(group="other", clientId="other-1", heldBack={"orders": {"3": "it has no leader"}}))
    found = run()
    assert found.exit_code == 1
    assert "other-1 (group other): held back: orders-3 (it has no leader)" in found.stdout.splitlines()
    assert run("etl").exit_code == 0
    assert run("other").exit_code == 1
    (document,) = map(json.loads, run("--json", "other").stdout.splitlines())
    assert (document["group"], document["healthy"], len(document["problems"])) == ("other", False, 1)


def test_how_long_a_batch_may_run_is_an_option(start: Start) -> None:
    start(lambda: report(batchMs=70_000))
    assert run().exit_code == 0
    assert run("--within", "1m").exit_code == 1
    assert run("--within", "36h").exit_code == 0, "regression: a day was the most, and a trigger may be 12 h"
    refused(run("--within", "10ms"), "'10ms' is not a duration of 100ms or more.")


def test_a_process_that_does_not_answer_is_1(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_HEALTH_PATIENCE_S", 0.2)
    goes_on = threading.Event()
    query_id = start(lambda: goes_on.wait(20) and None)
    found = run()
    goes_on.set()
    assert found.exit_code == 1
    assert f"query {query_id}: its source process does not answer" in found.stdout.splitlines()


def test_no_query_is_1_and_one_that_was_killed_is_none(start: Start, tmp_path: Path) -> None:
    assert run().exit_code == 1
    start(report)
    (folder,) = tmp_path.glob("kafka-group-queries-*")
    dead = tmp_path / "kafka-group-dead"
    dead.mkdir()
    (folder / str(uuid.uuid4())).symlink_to(dead / "control")
    assert run().exit_code == 0
    refused(run("payments"), "no query of this user runs on this machine in the group 'payments'", code=1)
