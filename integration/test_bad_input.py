"""The error for bad input is clear: it names the option and the remedy."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from integration.pipelines import Pipeline
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


@pytest.fixture
def protocol() -> str:
    """Return one protocol only: no query here reaches the group."""
    return "classic"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kafka.bootstrap.servers": None}, "Option 'kafka.bootstrap.servers': it is missing."),
        ({"subscribe": None}, "Option 'subscribe': it is missing."),
        ({"startingOffsets": '{"orders": '}, "Option 'startingOffsets': it is neither earliest, latest, nor JSON"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "it names a topic that is not in subscribe: other."),
        ({"maxOffsetPerTrigger": "5"}, "Did you mean 'maxOffsetsPerTrigger'?"),
        ({"kafka.partition.assignment.strategy": "range"}, "'kafka.partition.assignment.strategy': it cannot be set"),
        ({"kafka.enable.auto.commit": "true"}, "Option 'kafka.enable.auto.commit': it cannot be set"),
        ({"kafka.auto.offset.reset": "latest"}, "Use startingOffsets"),
        (
            {"kafka.group.protocol": "consumer", "kafka.session.timeout.ms": "9000"},
            "Option 'kafka.session.timeout.ms': the broker decides this",
        ),
        ({"drainTimeoutMs": "400000"}, "Lower drainTimeoutMs or raise kafka.max.poll.interval.ms."),
    ],
)
def test_load_names_the_option_and_the_remedy(
    spark: SparkSession, options: dict[str, str | None], expected: str
) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "orders", **options}
    reader = spark.readStream.format("kafka-group")
    for key, value in given.items():
        if value is not None:
            reader = reader.option(key, value)
    with pytest.raises(PySparkException) as raised:
        reader.load()
    assert expected in str(raised.value)


def failure(pipeline: Pipeline) -> str:
    """Start a query that cannot run, and return the text of its error."""
    with pytest.raises(PySparkException) as raised:
        query = pipeline.start().query
        assert query is not None
        query.awaitTermination(90)
    return str(raised.value)


def test_an_unknown_topic(topic: TopicFactory, pipeline: Pipelines) -> None:
    known = topic(1)
    text = failure(pipeline(f"{known},no-such-topic"))
    assert "Option 'subscribe': topic not found: no-such-topic. Create it, correct the name" in text


def test_an_unreachable_broker_is_told_in_bounded_time(pipeline: Pipelines) -> None:
    query = pipeline("orders", **{"kafka.bootstrap.servers": "127.0.0.1:1"})
    begin = time.monotonic()
    text = failure(query)
    assert "Option 'kafka.bootstrap.servers': no broker of '127.0.0.1:1' answered within 30 s" in text
    assert time.monotonic() - begin < 60


def test_an_unknown_kafka_property(topic: TopicFactory, pipeline: Pipelines) -> None:
    text = failure(pipeline(topic(1), **{"kafka.no.such.property": "1"}))
    assert "Option 'kafka.no.such.property': the Kafka client refuses it" in text


def test_a_schema_of_the_users_own_is_refused(
    spark: SparkSession, topic: TopicFactory, options: dict[str, str]
) -> None:
    reader = spark.readStream.format("kafka-group").options(**options, subscribe=topic(1)).schema("a INT")
    with pytest.raises(PySparkException) as raised:
        query = reader.load().writeStream.format("noop").start()
        query.awaitTermination(60)
    assert "The kafka-group source has a fixed schema. Remove .schema(...)" in str(raised.value)


def test_a_stream_without_a_group_is_told_when_it_starts(pipeline: Pipelines, options: dict[str, str]) -> None:
    """Before the start, `load()` could still belong to a batch read, which needs no group."""
    del options["kafka.group.id"]
    assert "Option 'kafka.group.id': it is missing." in failure(pipeline("orders"))
