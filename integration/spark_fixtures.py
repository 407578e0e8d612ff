"""pytest fixtures for tests that run queries: a Spark session, a database, and queries that always stop at the end."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from integration.pipelines import BATCHES_APART, Application, Pipeline
from pyspark_kafka_group.testing import Kafka


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield a local session.  Spark finds the format without a registration."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("integration")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        # By default, Spark polls again 10 ms after it has found no data.  The queries of all workers share two cores.
        .config("spark.sql.streaming.pollingDelay", "50")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Yield the URL of a PostgreSQL database."""
    # Deliberate: not at the top, because not every environment of `make compatibility` has psycopg.
    from integration.postgres import postgres_from_environment

    with postgres_from_environment() as url:
        yield url


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    """Yield the URL of a new schema for the test."""
    from integration.postgres import new_schema

    with new_schema(postgres) as found:
        yield found


either_protocol = pytest.mark.parametrize("protocol", ["consumer"], indirect=True)
"""Mark a test that does not depend on the group protocol: one run is enough."""

classic_protocol = pytest.mark.parametrize("protocol", ["classic"], indirect=True)
"""Mark a test of the classic protocol, where members compute the assignment and choose the session timeout."""


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Return the group protocol.  Tests run under both, except those with :data:`either_protocol`."""
    return str(request.param)


@pytest.fixture
def group() -> str:
    """Return the name of a new group for the test."""
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def options(kafka: Kafka, group: str, protocol: str) -> dict[str, str]:
    """Return the options that every query of a test needs."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.group.id": group,
        "kafka.group.protocol": protocol,
        "startingOffsets": "earliest",
    }


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> Iterator[Callable[..., Pipeline]]:
    """Yield a function that makes pipelines: ``pipeline(topic, name=..., **options)``, with option names of Spark."""
    made: list[Pipeline] = []

    def make(topics: str | None, *, name: str = "query", **more: Any) -> Pipeline:
        before_batch = more.pop("before_batch", None)
        subscribe = {} if topics is None else {"subscribe": topics}
        given = {**options, **subscribe, **{key: str(value) for key, value in more.items()}}
        made.append(Pipeline(spark, tmp_path, given, name, before_batch))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def application(tmp_path: Path, options: dict[str, str]) -> Iterator[Callable[..., Application]]:
    """Yield a function that makes applications: ``application(topics, name, trigger=..., **options)``.

    No application survives the test.
    """
    made: list[Application] = []

    def make(topics: str, name: str, *, trigger: str = BATCHES_APART, **more: str) -> Application:
        made.append(Application(tmp_path, name, {**options, "subscribe": topics, **more}, trigger=trigger))
        return made[-1]

    yield make
    for one in made:
        one.kill()
