"""The lines of librdkafka that reach Python's logging."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from pyspark_kafka_group.cluster.properties import clients
from pyspark_kafka_group.cluster.properties.clients import QUIET_S, ClientLog

LOGGER = logging.getLogger("test_client_log")

pytestmark = pytest.mark.logs_errors("^test_client_log: ")


class Lines:
    """A `ClientLog` with its own clock."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, LOGGER.name)
        self.now = 1000.0
        self._caplog = caplog
        self._log = ClientLog(LOGGER, {"sasl.password": "hunter2", "sasl.username": "bob"})

    def write(self, text: str, *, level: int = logging.ERROR, facility: str = "FAIL") -> None:
        with patch.object(clients, "time", SimpleNamespace(monotonic=lambda: self.now)):
            self._log.log(level, "%s [%s] %s", facility, "etl-reader#consumer-1", text)

    @property
    def written(self) -> list[str]:
        return self._caplog.messages


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    return Lines(caplog)


def test_a_line_keeps_its_facility_client_and_text(lines: Lines) -> None:
    lines.write("Connection refused")
    assert lines.written == ["FAIL [etl-reader#consumer-1] Connection refused"]


def test_a_line_that_comes_again_at_once_is_suppressed(lines: Lines) -> None:
    for _ in range(100):
        lines.write("Connection refused")
    assert len(lines.written) == 1


def test_a_line_after_the_quiet_time_tells_how_many_were_suppressed(lines: Lines) -> None:
    for _ in range(100):
        lines.write("Connection refused")
    lines.now += QUIET_S
    lines.write("Connection refused")
    lines.now += QUIET_S
    lines.write("Connection refused")
    assert [line.partition("refused")[2] for line in lines.written] == ["", " [and 99 like it before]", ""]


def test_lines_of_another_facility_are_not_suppressed(lines: Lines) -> None:
    lines.write("Connection refused", facility="FAIL")
    lines.write("ssl.ca.location ignored", facility="CONFWARN")
    assert len(lines.written) == 2


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_debugging_lines_are_never_suppressed(lines: Lines, level: int) -> None:
    for _ in range(5):
        lines.write("Fetch topic", level=level, facility="FETCH")
    assert len(lines.written) == 5


def test_secrets_are_not_shown(lines: Lines) -> None:
    lines.write("bob:hunter2 refused")
    assert lines.written == ["FAIL [etl-reader#consumer-1] bob:[redacted] refused"]
