"""pytest fixtures: a cluster for the whole run, topics with names of their own, the brokers' errors when a test fails.

In the ``conftest.py`` at the top of your tests write ``pytest_plugins = ["pyspark_kafka_group.testing.fixtures"]``,
or import the three names below into any other one.  To choose the cluster yourself, define a fixture ``kafka`` that
yields a started `Kafka`; ``topic`` and the log use it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from typing import Protocol

import pytest

from pyspark_kafka_group.testing.errors import KafkaTestingError
from pyspark_kafka_group.testing.kafka import ExistingKafka, Kafka
from pyspark_kafka_group.testing.local import kafka_from_environment

_LOG_LINES = 5000
_SHOWN_LINES = 15
_TROUBLE = re.compile(r"^---- |\b(WARN|ERROR|FATAL)\b")
"""The lines of a log that are shown: a test seldom fails because of the broker, and its other lines are very many."""
# Kafka allows 249 characters; what Kafka appends to names in its own folders and metrics needs room, too.
_NAME_LENGTH = 80


class TopicFactory(Protocol):
    """The type of the fixture ``topic``."""

    def __call__(
        self, partitions: int = 1, *, replication_factor: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, wait for its leaders, and return its name, which contains the name of the test."""
        ...


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Yield the cluster of ``KAFKA_BOOTSTRAP_SERVERS``, else a local one.  If neither works, tests fail."""
    with kafka_from_environment() as cluster:
        yield cluster


@pytest.fixture
def topic(kafka: Kafka, request: pytest.FixtureRequest) -> Iterator[TopicFactory]:
    """Yield a function that creates topics with a name of the test and of the run.

    On a cluster that stays they are deleted afterwards.
    """
    made: list[str] = []

    def make(partitions: int = 1, *, replication_factor: int = 1, config: Mapping[str, str] | None = None) -> str:
        readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_NAME_LENGTH]
        name = f"{readable}-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(name, partitions, replication_factor=replication_factor, config=config)
        made.append(name)
        return name

    yield make
    if isinstance(kafka, ExistingKafka):
        with ExitStack() as deletions:  # all of them, also if one fails
            for name in made:
                deletions.callback(_delete, kafka, name)


def _delete(kafka: Kafka, topic: str) -> None:
    """Delete a topic, unless the test has deleted it."""
    try:
        kafka.delete_topic(topic)
    except KafkaTestingError as problem:
        from confluent_kafka import KafkaException  # Deliberate: not at the top, because pytest imports this plugin

        cause = problem.__cause__
        if not isinstance(cause, KafkaException) or cause.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
            raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the last warnings and errors of the brokers into the report of a test that failed."""
    del call
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, Kafka) and (tail := _trouble(value)):
                report.sections.append((f"log of fixture {name!r}", tail))
    return report


def _trouble(kafka: Kafka) -> str:
    """Return the last warnings and errors of a cluster's log; empty if there are none."""
    try:
        tail = kafka.log_tail(_LOG_LINES)
    except Exception as problem:  # an error in a hook of pytest would end the whole run
        return f"the log cannot be read: {problem!r}"
    shown = [line for line in tail.splitlines() if _TROUBLE.search(line)][-_SHOWN_LINES:]
    return "\n".join(shown) if any(not line.startswith("---- ") for line in shown) else ""
