"""The live view in pipes and in terminals, and histories by polling."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from pyspark_kafka_group.wire.types import TopicPartition
from tests.tools.shell import run_for_etl
from tests.wire.fake_broker import HANG_UP, FakeBroker
from tests.wire.fake_group import CLASSIC, FETCH, LIST, METADATA, classic, fetched, logs, topic_metadata

TP = TopicPartition("orders", 0)
LEAVES = b"\x1b[?1049l"
SHOWS_THE_CURSOR = b"\x1b[?25h"


def committed(offset: int) -> Any:
    return fetched({TP: offset})


@pytest.fixture(autouse=True)
def commits(broker: FakeBroker) -> None:
    """Let the group commit 5, 15, 25 and 35.  The log ends at 90."""
    broker.answers |= {FETCH: [committed(offset) for offset in (5, 15, 25, 35)], LIST: logs({TP: 90})}


def test_there_is_an_object_for_each_look(broker: FakeBroker) -> None:
    found = run_for_etl(broker, "watch", "--json", "--interval", "0.1", "--count", "4")
    assert found.exit_code == 0, found.output
    looks = [json.loads(line) for line in found.stdout.splitlines()]
    assert [look["partitions"][0]["committed_offset"] for look in looks] == [5, 15, 25, 35]
    first, second, _, fourth = looks
    assert first["consumed_per_second"] is None
    assert second["consumed_per_second"] is None, "one commit shows no rate"
    assert second["produced_per_second"] == 0
    assert fourth["consumed_per_second"] > 0
    assert (second["rebalances"], second["error"]) == (0, None)


def test_people_are_shown_80_columns(broker: FakeBroker) -> None:
    found = run_for_etl(broker, "watch", "--interval", "0.1", "--count", "2")
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "etl: Empty, classic protocol, 0 members"
    assert lines[5].split() == ["TOPIC", "PART", "OFFSET", "LAG", "BEHIND", "IN/S", "OUT/S", "CLIENT-ID"]
    assert lines[6].split() == ["orders", "0", "5", "85", "-", "-", "-", "-"]


def test_a_cluster_that_goes_away_is_told_and_waited_for(broker: FakeBroker) -> None:
    broker.answers[FETCH] = [committed(5), HANG_UP, HANG_UP, committed(15)]
    found = run_for_etl(broker, "watch", "--json", "--interval", "0.1", "--count", "4")
    assert found.exit_code == 0, found.output
    looks = [json.loads(line) for line in found.stdout.splitlines()]
    assert looks[0]["error"] is None
    assert any(look["error"] for look in looks[1:])
    assert looks[-1]["error"] is None
    assert looks[-1]["partitions"][0]["committed_offset"] == 15


def test_a_cluster_that_never_answers_is_2_and_a_missing_group_1(broker: FakeBroker) -> None:
    broker.answers |= {FETCH: fetched({}), CLASSIC: classic("Dead")}
    for command, options in (("watch", ()), ("history", ("--poll", "1"))):
        found = run_for_etl(broker, command, *options)
        assert (found.exit_code, found.stdout.count("orders")) == (1, 0)
        assert "does not know the group 'etl'" in found.stderr
    broker.close()
    for command, options in (("watch", ()), ("history", ("--poll", "1"))):
        found = run_for_etl(broker, command, *options)
        assert found.exit_code == 2, found.output
        assert "does not answer" in found.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_clean_terminal(broker: FakeBroker, number: signal.Signals, status: int) -> None:
    """Regression: after SIGTERM, as of ``timeout``, the terminal stayed on the separate screen, without a cursor."""
    mine, theirs = pty.openpty()
    # A shell that runs the tests in the background ignores Ctrl-C for them and for their child processes.
    program = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += "runpy.run_module('pyspark_kafka_group.tools', run_name='__main__')"
    command = [sys.executable, "-c", program, "watch", "-b", str(broker.address), "etl"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True, close_fds=True
    )
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 60
    try:
        while b"CLIENT-ID" not in shown:
            assert time.monotonic() < deadline, shown
            shown += read(mine)
        process.send_signal(number)
        while (more := read(mine, 10.0)) != b"":
            assert time.monotonic() < deadline, "it goes on"
            shown += more
        assert process.wait(30) == status, shown
    finally:
        process.kill()
        process.wait()
        os.close(mine)
    assert b"Traceback" not in shown
    assert b"Aborted" not in shown
    assert shown.rfind(LEAVES) > shown.rfind(b"CLIENT-ID")
    assert shown.rfind(SHOWS_THE_CURSOR) > shown.rfind(b"\x1b[?25l")


def read(terminal: int, wait_s: float = 0.2) -> bytes:
    """Return the new output; nothing after the other side has closed."""
    if not select.select([terminal], [], [], wait_s)[0]:
        return b""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_a_history_without_the_offsets_topic_is_polled(broker: FakeBroker) -> None:
    found = run_for_etl(broker, "history", "--poll", "0.1", "--count", "3", "--json")
    assert found.exit_code == 0, found.output
    assert "Earlier commits are unknown" in found.stderr
    steps = [json.loads(line) for line in found.stdout.splitlines()]
    assert [(s["move"], s["previous_offset"], s["committed_offset"]) for s in steps] == [
        ("first", None, 5),
        ("forth", 5, 15),
        ("forth", 15, 25),
    ]
    assert {step["log_offset"] for step in steps} == {None}
    broker.answers[FETCH] = [committed(5), committed(15)]
    lines = run_for_etl(broker, "history", "--poll", "0.1", "--count", "2", "--topics", "orders:0").stdout.splitlines()
    assert [line.split()[2:] for line in lines[1:]] == [
        ["orders-0", "-", "5", "first", "no", "member"],
        ["orders-0", "5", "15", "forth", "no", "member"],
    ]
    broker.answers[METADATA] = topic_metadata([broker], {"orders": 1, "refunds": 1})
    (head,) = run_for_etl(broker, "history", "--poll", "0.1", "--count", "1", "--topics", "refunds").stdout.splitlines()
    assert head.startswith("TIME (UTC)")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *((well, 0) for well in ("0.1", "100ms", "0.1s")),
        *((bad, 2) for bad in ("0", "-1", "nan", "soon", "50ms", "2d")),
    ],
)
def test_intervals_are_written_like_the_waits_of_the_options(broker: FakeBroker, value: str, code: int) -> None:
    for command, option in (("watch", "--interval"), ("history", "--poll")):
        found = run_for_etl(broker, command, option, value, "--count", "1")
        assert (found.exit_code, bool(found.stdout)) == (code, code == 0), found.output
