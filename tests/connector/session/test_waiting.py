"""``run_until_signal``, with signals to this process and fakes of Spark's queries."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

import pytest
from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_kafka_group
from pyspark_kafka_group.control.server import ControlSocket
from pyspark_kafka_group.session import stopping

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Query:
    """A query whose batch lasts until :attr:`finished` is set."""

    def __init__(self, error: Exception | None = None, *, active: bool = True) -> None:
        self.finished = threading.Event()
        self.stopping = threading.Event()
        self.isActive = active
        self._error = error
        self._control = ControlSocket(self._drain, lambda _: None)
        progress = {"sources": [{"latestOffset": {"control": self._control.address}, "endOffset": None}]}
        self.lastProgress = SimpleNamespace(json=json.dumps(progress))

    def _drain(self, timeout_s: float) -> bool:
        self.stopping.set()
        return self.finished.wait(timeout_s)

    id = "0"

    def exception(self) -> Exception | None:
        return self._error

    def fail(self, error: Exception) -> None:
        self._error, self.isActive = error, False

    def stop(self) -> None:
        self.isActive = False

    def awaitTermination(self, timeout: float) -> bool:
        if self._error is not None:
            raise self._error
        return True

    def close(self) -> None:
        self.finished.set()
        self._control.close()


@pytest.fixture
def query() -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def make(error: Exception | None = None, *, active: bool = True) -> Query:
        made.append(Query(error, active=active))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def _handlers_come_back() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


def run(*queries: Query, timeout_s: float = 30.0) -> bool:
    first, *more = [cast(StreamingQuery, query) for query in queries]
    return pyspark_kafka_group.run_until_signal(first, *more, timeout_s=timeout_s)


def after(event: threading.Event, *actions: Callable[[], None]) -> threading.Thread:
    """Run the actions in another thread when the event is set."""

    def act() -> None:
        assert event.wait(20)
        for action in actions:
            action()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def give(number: signal.Signals) -> threading.Timer:
    """Send a signal to this process after a moment."""
    timer = threading.Timer(0.1, os.kill, (os.getpid(), number))
    timer.start()
    return timer


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_all_queries_at_the_same_time(query: Callable[..., Query], number: signal.Signals) -> None:
    first, second = query(), query()
    give(number)
    after(second.stopping, first.finished.set)  # so that the second query does not wait for the first
    after(first.stopping, second.finished.set)
    assert run(first, second)
    assert not first.isActive
    assert not second.isActive


def test_a_batch_that_takes_too_long_is_a_warning(
    query: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    give(signal.SIGTERM)
    assert not run(query(), timeout_s=0.2)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning == "A batch was not finished within 0.2 s. The next owners of its partitions repeat it."


def test_a_python_function_that_spark_cannot_interrupt_is_left_behind(
    query: Callable[..., Query], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after timeout_s the program waited for the function of foreachBatch, however long it took."""
    monkeypatch.setattr("pyspark_kafka_group.session.stopping._END_S", 0.1)
    one, over = query(), threading.Event()
    one.stop = over.wait  # type: ignore[method-assign,assignment]
    give(signal.SIGTERM)
    assert not run(one, timeout_s=0.2)
    assert any("has not ended within 0.1 s" in record.getMessage() for record in caplog.records)
    over.set()


def test_spark_submit_is_a_warning_because_no_signal_comes_through_it(
    query: Callable[..., Query], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "12345")
    assert run(query(active=False))
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("spark-submit has started this program, so SIGTERM and Ctrl-C do not reach it")


def test_a_second_sigterm_changes_nothing(query: Callable[..., Query]) -> None:
    one = query()
    give(signal.SIGTERM)
    again = after(one.stopping, lambda: os.kill(os.getpid(), signal.SIGTERM), one.finished.set)
    assert run(one)
    again.join()


def test_a_second_ctrl_c_does_not_wait(query: Callable[..., Query]) -> None:
    one = query()
    give(signal.SIGINT)
    after(one.stopping, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(one)
    assert one.isActive, "its batch runs"


def test_without_a_signal_it_returns_when_all_have_ended(query: Callable[..., Query]) -> None:
    one, ended = query(), query(active=False)
    timer = threading.Timer(0.3, one.stop)
    timer.start()
    assert run(one, ended)
    assert not timer.is_alive()


def test_an_error_of_one_query_is_raised_after_the_others_have_stopped(query: Callable[..., Query]) -> None:
    fails, works = query(), query()
    threading.Timer(0.1, fails.fail, [ValueError("the table is full")]).start()
    after(works.stopping, works.finished.set)
    with pytest.raises(ValueError, match="the table is full"):
        run(works, fails)
    assert not works.isActive


def test_a_query_that_fails_while_it_is_stopped_is_an_error(query: Callable[..., Query]) -> None:
    one = query()
    give(signal.SIGTERM)
    after(one.stopping, lambda: one.fail(ValueError("the table is full")), one.finished.set)
    with pytest.raises(ValueError, match="the table is full"):
        run(one)


def test_an_error_in_the_call_that_stops_is_raised(query: Callable[..., Query]) -> None:
    one = query()

    def broken() -> None:
        one.isActive = False
        raise ConnectionError("the driver's JVM has ended")

    one.stop = broken  # type: ignore[method-assign]
    one.finished.set()
    give(signal.SIGTERM)
    with pytest.raises(ConnectionError, match="the driver's JVM has ended"):
        run(one)


def test_a_query_that_cannot_be_stopped_does_not_cut_off_the_others(query: Callable[..., Query]) -> None:
    """Regression: the call raised at once, and the batches of the others ended with the program."""

    class Unreachable(Query):
        @property
        def isActive(self) -> bool:
            if self.stopping.is_set():
                raise ConnectionError("the driver's JVM has ended")
            return True

        @isActive.setter
        def isActive(self, active: bool) -> None: ...

    lost, works = Unreachable(), query()
    threading.Timer(0.05, lost.stopping.set).start()
    give(signal.SIGTERM)
    after(works.stopping, works.finished.set)
    with pytest.raises(ConnectionError, match="the driver's JVM has ended"):
        run(lost, works)
    assert not works.isActive
    lost.close()


@pytest.mark.parametrize(
    ("error", "planned", "clean"),
    [(None, 9, True), (None, 12, False), (ValueError("the table is full"), 9, False)],
    ids=["finished", "stopped in a batch", "failed"],
)
def test_a_query_that_has_ended_by_itself_has_finished_its_batch(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch, error: Exception | None, planned: int, clean: bool
) -> None:
    """Regression: after a run with availableNow, stop() said that the next owners repeat its last batch."""

    def end(until: int) -> dict[str, object]:
        return {"query": "q", "topics": {"orders": until}}

    monkeypatch.setattr(stopping, "planned_ends", lambda _: [end(planned)])
    one = query(error, active=False)
    one.lastProgress.json = json.dumps({"sources": [{"latestOffset": None, "endOffset": end(9)}]})
    one.close()
    assert pyspark_kafka_group.stop(cast(StreamingQuery, one)) == clean


def test_the_error_of_a_query_whose_end_takes_long_is_raised(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark notes the error first, and lets others know of the end only after it has cleaned up."""
    one = query(ValueError("the table is full"), active=False)
    monkeypatch.setattr(one, "awaitTermination", lambda _: False)
    with pytest.raises(ValueError, match="the table is full"):
        run(one)


def test_stop_is_refused_in_the_thread_that_runs_the_batch_only(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for the batch that calls it.  A thread that the function starts may call it."""
    jvm = MagicMock()
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    thread = jvm.java.lang.Thread.currentThread.return_value
    one = query()
    one.id = "6f2c"
    thread.getName.return_value = "stream execution thread for [id = 6f2c, runId = 9b1d]"
    with pytest.raises(RuntimeError, match="own foreachBatch"):
        pyspark_kafka_group.stop(cast(StreamingQuery, one))
    thread.getName.return_value = "Thread-7"
    one.finished.set()
    assert pyspark_kafka_group.stop(cast(StreamingQuery, one))


def test_another_thread_is_told_what_to_do(query: Callable[..., Query]) -> None:
    one = query()
    with ThreadPoolExecutor(1) as threads, pytest.raises(RuntimeError, match=r"main thread.*awaitTermination.*stop"):
        threads.submit(run, one).result()
    assert one.isActive
