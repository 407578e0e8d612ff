"""Calls on a background thread, which `close` ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pyspark_kafka_group.cluster.daemon_executor import ClosedError, DaemonExecutor, unexpected

PATIENCE_S = 20.0


@pytest.fixture
def executor() -> Iterator[DaemonExecutor]:
    made = DaemonExecutor("under-test")
    yield made
    made.close()


def test_calls_run_in_order_on_one_thread(executor: DaemonExecutor) -> None:
    ran: list[tuple[int, str]] = []

    def note(n: int) -> None:
        ran.append((n, threading.current_thread().name))

    for call in [executor.submit(note, n) for n in range(3)]:
        call.result(PATIENCE_S)
    assert ran == [(n, "under-test") for n in range(3)]


def test_what_a_call_raises_goes_to_whoever_waits_for_it(executor: DaemonExecutor) -> None:
    with pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 // 0).result(PATIENCE_S)
    assert executor.submit(lambda: 2).result(PATIENCE_S) == 2


@pytest.mark.logs_errors("an unexpected error in the background")
def test_what_a_posted_call_raises_is_logged(executor: DaemonExecutor, caplog: pytest.LogCaptureFixture) -> None:
    executor.post(lambda: 1 // 0)
    executor.submit(lambda: None).result(PATIENCE_S)
    assert "ZeroDivisionError" in caplog.text


def test_what_is_queued_when_it_is_closed_runs_and_what_comes_later_does_not(executor: DaemonExecutor) -> None:
    begin = threading.Event()
    queued = [executor.submit(begin.wait, PATIENCE_S), executor.submit(lambda: True)]
    executor.close()
    executor.close()
    late = executor.submit(pytest.fail, "not run")
    begin.set()
    assert all(call.result(PATIENCE_S) for call in queued)
    with pytest.raises(ClosedError):
        late.result(0)


@pytest.mark.logs_errors("an unexpected error in the background")
def test_only_an_unexpected_error_ends_the_query(executor: DaemonExecutor) -> None:
    """A call after the end is no error: another thread of the query may still ask for something."""
    failed: list[str] = []
    ended = unexpected("Asking for topics", lambda problem: failed.append(str(problem)))
    executor.post(lambda: 1 // 0).add_done_callback(ended)
    executor.submit(lambda: None).result(PATIENCE_S)
    assert len(failed) == 1
    assert failed[0].startswith("Asking for topics failed: ZeroDivisionError")
    executor.close()
    executor.post(lambda: 1 // 0).add_done_callback(ended)
    assert len(failed) == 1
