"""How a source process ends: after any request, and at any moment, its member leaves the group."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_kafka_group.query.process import prepare_source_process

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the signal handlers of the test's process."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Keep the functions that would run at the end of the interpreter, because here it is that of the tests."""
    kept: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", kept.append)
    return kept


def test_a_member_leaves_at_whatever_line_the_process_is_told_to_end(tmp_path: Path) -> None:
    """Regression: a query that was stopped during its first calls emitted neither `released` nor `left`.

    Spark closes the socket, and sends SIGTERM some milliseconds later.  If the signal arrived just before stop() began,
    stop() never ran.
    """
    command = [sys.executable, "-m", "tests.connector.query.endings", str(tmp_path)]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, check=True)
    ends = json.loads(found.stdout)
    assert ends["points"] > ends["joined"] > 100
    assert ends["stayed"] == []


@pytest.mark.parametrize("number", ENDING)
def test_every_signal_that_ends_a_process_is_one_to_leave_and_the_others_are_ignored_then(
    number: signal.Signals, exits: list[Callable[[], None]]
) -> None:
    """Regression: Ctrl-C interrupted the member while it left, and a closed terminal ended the process at once."""
    asked: list[str] = []

    def interrupt() -> bool:
        asked.append("interrupt")
        return True

    for other in ENDING:
        signal.signal(other, signal.SIG_DFL)
    prepare_source_process(interrupt, lambda: asked.append("stop"))
    for one in (number, *ENDING):
        os.kill(os.getpid(), one)
    assert asked == ["interrupt"]
    for run in exits:
        run()
    assert asked == ["interrupt", "stop"]


def test_what_was_ignored_before_stays_ignored(exits: list[Callable[[], None]]) -> None:
    """PySpark ignores SIGINT in the JVM, so that Ctrl-C in a notebook does not stop queries."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_source_process(lambda: False, lambda: None)
    os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
