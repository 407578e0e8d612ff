"""Rules for every fast test: no warnings, nothing left behind, and only expected errors in the log."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from pyspark_kafka_group.cluster.properties.permissions import VARIABLE
from pyspark_kafka_group.wire.login import known_secrets
from tests.left_behind import LeftBehind, usual_signals
from tests.timeouts import pytest_timeout_names_the_calls

__all__ = ["pytest_timeout_names_the_calls"]

# On a busy machine the time of an example has no meaning.
settings.register_profile("fast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fast")

_FAILED = pytest.StashKey[bool]()


def pytest_configure() -> None:
    """Start Spark with this Python and on loopback, whatever the user's shell says."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(name, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turn warnings into errors, for example about an unclosed socket or a deprecated name."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("error"), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test has failed."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this worker, and the processes that it starts, a temporary folder of its own.

    Regression: a query of another worker found the control socket of a test there, and connected to it.
    """
    tmp_path_factory.getbasetemp()  # stays where pytest wants it
    with tempfile.TemporaryDirectory(prefix="fast-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr("tempfile.tempdir", folder)
        yield


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close the threads, processes and sockets of a test.  Fail a test that has passed and left some.

    This fixture runs before all others, so theirs also count.
    """
    left = LeftBehind()
    with usual_signals(), left.watch():
        yield
    found = left.end(failed=request.node.stash.get(_FAILED, False))
    assert not found, f"left behind: {found}"


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes the owner of this process allow options what entries name, and nothing else."""
    return lambda *entries: monkeypatch.setenv(VARIABLE, ",".join(entries))


@pytest.fixture
def references_allowed(allow: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow all files and variables as references.  Texts of other tests may show the values that were read."""
    allow("file:/", "env:*")
    for known in ("_secrets", "_read"):
        monkeypatch.setattr(known_secrets, known, frozenset())


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
