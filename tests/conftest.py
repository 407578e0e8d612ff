"""Rules for every fast test: no warnings, no threads left behind, and only expected errors in the log."""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from pyspark_kafka_group.cluster.properties.permissions import VARIABLE

# On a busy machine the time of an example has no meaning.
settings.register_profile("fast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fast")

# Time for stopped threads to end: the timeouts of some requests, if brokers are gone.  Only a test that fails waits so
# long.
_ENDING_S = 20.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turn warnings into errors, for example about an unclosed socket or a deprecated name."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("error"), append=False)


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    """Fail a test that leaves a thread behind.  This fixture runs before all others, so their threads also count."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + _ENDING_S
    for thread in _started_since(before):
        thread.join(max(0.0, deadline - time.monotonic()))
    left = sorted(thread.name for thread in _started_since(before))
    assert not left, f"threads left behind: {', '.join(left)}"


def _started_since(before: set[threading.Thread]) -> list[threading.Thread]:
    # Python names a thread of librdkafka that has called it Dummy, and never notices its end.
    return [t for t in threading.enumerate() if t not in before and not t.name.startswith("Dummy-")]


@pytest.fixture(autouse=True)
def _usual_signals() -> Iterator[None]:
    """Handle signals as in a terminal, whatever the parent of this process ignores, and undo changes at the end."""
    usual = signal.SIG_DFL
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: usual, signal.SIGHUP: usual}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes the owner of this process allow options what entries name, and nothing else."""
    return lambda *entries: monkeypatch.setenv(VARIABLE, ",".join(entries))


@pytest.fixture
def references_allowed(allow: Callable[..., None]) -> None:
    """Allow all files and variables as references."""
    allow("file:/", "env:*")


class _Errors(logging.Handler):
    """Keeps the errors in the log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")


@pytest.fixture(autouse=True)
def _no_unexpected_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test for an error in the log, unless the test is marked ``logs_errors(pattern)``."""
    expected = [re.compile(pattern) for mark in request.node.iter_markers("logs_errors") for pattern in mark.args]
    errors = _Errors()
    logging.getLogger().addHandler(errors)
    yield
    logging.getLogger().removeHandler(errors)
    unexpected = [line for line in errors.lines if not any(pattern.search(line) for pattern in expected)]
    assert not unexpected, f"errors in the log: {unexpected}"
