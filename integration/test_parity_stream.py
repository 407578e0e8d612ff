"""The same stream from Spark's own Kafka source and from this one, in one session: rows, batches, tasks, errors.

The two queries differ only in the name of the format and in a group id.  Their results are equal.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration.cluster import committed, members, produce
from integration.parity import BUILT_IN, OURS, with_builtin_source
from integration.pipelines import PATIENCE_S, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Batch = tuple[int, list[Any]]
"""The number of its tasks, and its rows."""


class Source:
    """Streams of one of the two formats."""

    def __init__(self, spark: SparkSession, name: str, options: dict[str, str], folder: Path) -> None:
        self.spark = spark
        self.name = name
        self._options = options
        self.folder = folder
        self._queries: list[StreamingQuery] = []
        self.fails = False

    def load(self, **options: Any) -> DataFrame:
        given = {**self._options, "includeHeaders": "true", **{key: str(value) for key, value in options.items()}}
        return self.spark.readStream.format(self.name).options(**{k: v for k, v in given.items() if v != "None"}).load()

    def start(self, checkpoint: str, batches: list[Batch], trigger: dict[str, Any], **options: Any) -> StreamingQuery:
        def take(batch: DataFrame, _id: int) -> None:
            assert not self.fails, "the sink fails"
            rows = [tuple(row) for row in batch.orderBy("topic", "partition", "offset").collect()]
            if rows:
                batches.append((batch.rdd.getNumPartitions(), rows))

        writer = self.load(**options).writeStream.foreachBatch(take)
        query = (
            writer.option("checkpointLocation", str(self.folder / self.name / checkpoint)).trigger(**trigger).start()
        )
        self._queries.append(query)
        return query

    def run(self, checkpoint: str = "", **options: Any) -> list[Batch]:
        """Read everything and return the batches.  A checkpoint that was used before makes this a restart."""
        batches: list[Batch] = []
        checkpoint = checkpoint or str(time.monotonic_ns())
        query = self.start(checkpoint, batches, {"availableNow": True}, **options)
        assert query.awaitTermination(int(PATIENCE_S)), f"{self.name} does not end"
        return batches

    def failure(self, **options: Any) -> str:
        """Return the text of the error; empty if the query succeeds."""
        try:
            self.run(**options)
        except Exception as problem:
            return str(problem)
        return ""

    def stop(self) -> None:
        for query in self._queries:
            query.stop()


class Both(NamedTuple):
    built_in: Source
    ours: Source

    def run(self, **options: Any) -> list[Batch]:
        """Read everything with both, and check that the rows are equal.

        The numbers of tasks must also be equal if an option sets them.
        """
        theirs, ours = (source.run(**options) for source in self)
        assert [rows for _, rows in ours] == [rows for _, rows in theirs]
        if "minPartitions" in options or "maxRecordsPerPartition" in options:
            assert [tasks for tasks, _ in ours] == [tasks for tasks, _ in theirs]
        return ours

    def values(self, **options: Any) -> dict[int, list[str]]:
        """Return the values of each partition, which both return."""
        found: dict[int, list[str]] = {}
        for _, rows in self.run(**options):
            for row in rows:
                found.setdefault(row[3], []).append(row[1].decode())
        return found

    def failures(self, **options: Any) -> tuple[str, str]:
        return self.built_in.failure(**options), self.ours.failure(**options)


@pytest.fixture(scope="module")
def with_jars(spark: SparkSession) -> SparkSession:
    """Return the session with Spark's own source."""
    return with_builtin_source(spark)


@pytest.fixture
def both(with_jars: SparkSession, kafka: Kafka, group: str, tmp_path: Path) -> Iterator[Both]:
    """Yield both sources.  They start at the beginning by default."""
    servers = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "startingOffsets": "earliest",
        # With these options Spark's own source fails sooner.
        "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "10",
    }
    found = Both(
        Source(with_jars, BUILT_IN, servers, tmp_path),
        # A new group for each checkpoint, because Spark's own source keeps its offsets in the checkpoint.
        Source(with_jars, OURS, {**servers, "groupIdPrefix": group, "kafka.group.protocol": "consumer"}, tmp_path),
    )
    yield found
    for source in found:
        source.stop()


# Recent times, or retention would delete the records.
FIRST = int(time.time() * 1000) - 60_000
SECOND = FIRST + 1000


def send(kafka: Kafka, topic: str, records: dict[int, list[tuple[str, int]]]) -> None:
    """Produce values with their timestamps to each partition."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, values in records.items():
        for value, time_ms in values:
            producer.produce(topic, value.encode(), partition=partition, timestamp=time_ms)
    assert producer.flush(PATIENCE_S) == 0


def test_where_a_new_query_starts(kafka: Kafka, topic: TopicFactory, both: Both) -> None:
    """A query starts at `earliest`, `latest`, offsets or times.  The test also checks their precedence."""
    name = topic(3)
    send(
        kafka,
        name,
        {
            0: [("a", FIRST), ("b", SECOND)],
            1: [("c", FIRST), ("d", FIRST), ("e", SECOND)],
            2: [("f", FIRST), ("g", FIRST)],
        },
    )

    def json_of(*values: int) -> str:
        return json.dumps({name: {str(n): value for n, value in enumerate(values)}})

    by_time = {"startingOffsetsByTimestamp": json_of(SECOND, SECOND, FIRST)}
    latest_else = {"startingTimestamp": SECOND, "startingOffsetsByTimestampStrategy": "LATEST"}
    cases: list[tuple[dict[str, Any], dict[int, list[str]]]] = [
        ({"startingOffsets": json_of(-2, -1, 1)}, {0: ["a", "b"], 2: ["g"]}),
        ({**by_time, "startingOffsets": "latest"}, {0: ["b"], 1: ["e"], 2: ["f", "g"]}),
        ({**by_time, **latest_else}, {0: ["b"], 1: ["e"]}),
    ]
    for options, expected in cases:
        assert both.values(subscribe=name, **options) == expected, options
    assert both.values(assign=json.dumps({name: [0, 2]}), startingTimestamp=FIRST) == {0: ["a", "b"], 2: ["f", "g"]}
    theirs, ours = both.failures(subscribe=name, startingTimestamp=SECOND)
    assert "No offset matched" in theirs
    assert f"{name}-2 has no record of the time {SECOND} (startingTimestamp, in milliseconds since 1970)" in ours
    theirs, ours = both.failures(subscribe=name, startingOffsets=json_of(0, 0, 0, 0))
    assert "you must specify all TopicPartitions" in theirs
    assert f"Option 'startingOffsets': the topic '{name}' has no partition 3: it has 3, counted from 0." in ours
    words = {name: "earliest"}
    found = both.ours.run(subscribe=name, startingOffsets=json.dumps(words))
    assert [len(rows) for _, rows in found] == [7], "Spark's own source of this release does not know that yet"


def test_rows_batches_and_tasks(kafka: Kafka, topic: TopicFactory, both: Both) -> None:
    """Both return the same rows, limit batches alike, and cut them into the same tasks."""
    name, other = topic(3), topic(1)
    produce(kafka.bootstrap_servers, name, {0: 101, 1: 11, 2: 1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"b"), ("a", None), ("", b"")]
    for key, value, given in [(None, None, []), (b"", b"", headers), (b"k", None, headers)]:
        producer.produce(other, value, key, headers=given, timestamp=FIRST)
    assert producer.flush(PATIENCE_S) == 0

    [(_, rows)] = both.run(subscribe=other)
    assert [row[:2] for row in rows] == [(None, None), (b"", b""), (b"k", None)]
    batches = both.run(subscribe=name, maxOffsetsPerTrigger=50)
    assert [len(rows) for _, rows in batches] == [49, 49, 15]
    [(tasks, rows)] = both.run(subscribe=f" {other} ,, {name}", minPartitions=1)
    assert (tasks, len(rows)) == (4, 116), "one task for each partition, as with Spark's own source"
    [(tasks, _)] = both.run(subscribePattern=f"{name}|{other}", minPartitions=10)
    assert tasks == 10
    [(tasks, _)] = both.run(subscribe=name, maxRecordsPerPartition=40)
    assert tasks == 5


@pytest.mark.parametrize(
    ("limit", "expected"), [({}, [4, 15]), ({"maxOffsetsPerTrigger": 12}, [4, 11])], ids=["at least", "and at most"]
)
def test_a_batch_waits_for_the_least_number_of_records(
    kafka: Kafka, topic: TopicFactory, both: Both, limit: dict[str, int], expected: list[int]
) -> None:
    """`processAllAvailable` returns while records wait.  Meanwhile the query commits the finished batches."""
    limits = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "60m", **limit}
    for source in both:
        name = topic(2)
        batches: list[Batch] = []

        def sizes(batches: list[Batch] = batches) -> list[int]:
            return [len(rows) for _, rows in batches]

        produce(kafka.bootstrap_servers, name, {0: 3, 1: 1})
        query = source.start("waits", batches, {"processingTime": "0 seconds"}, subscribe=name, **limits)
        query.processAllAvailable()
        assert sizes() == [4], "the first batch does not wait"
        produce(kafka.bootstrap_servers, name, {0: 5, 1: 4})
        query.processAllAvailable()
        assert sizes() == [4], source.name
        if source is both.ours:
            progress = query.lastProgress
            assert progress is not None
            made_up = json.loads(progress["sources"][0]["latestOffset"])["group"]
            done = {0: 3, 1: 1}
            wait_for(lambda: committed(kafka.bootstrap_servers, made_up, name, [0, 1]) == done, "a commit")  # noqa: B023
        produce(kafka.bootstrap_servers, name, {0: 6})
        wait_for(lambda: sizes() == expected, f"a batch of {source.name}")
        query.processAllAvailable()
        assert sizes() == expected, "the rest waits"
        query.stop()


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "Option 'subscribe': it is missing."),
    ({"subscribe": "t", "subscribePattern": "t.*"}, "it is given together with subscribe."),
    ({"subscribe": " , "}, "Option 'subscribe': it names no topic."),
    ({"subscribe": "t", "endingOffsets": "latest"}, "Option 'endingOffsets': it is not supported with streaming"),
    ({"subscribe": "t", "minOffsetsPerTrigger": 20, "maxOffsetsPerTrigger": 15}, "20 is higher than maxOffsetsPer"),
    ({"subscribe": "t", "kafka.auto.offset.reset": "latest"}, "Option 'kafka.auto.offset.reset': it cannot be set"),
    ({"subscribe": "t", "startingOffsets": "{"}, "Option 'startingOffsets': it is neither earliest, latest, nor JSON"),
    ({"subscribe": "t", "kafka.bootstrap.servers": None}, "Option 'kafka.bootstrap.servers': it is missing."),
]


def test_bad_options_are_refused_by_both(both: Both) -> None:
    for options, expected in BAD:
        theirs, ours = both.failures(**options)
        assert theirs, f"Spark's own source takes {options}"
        assert expected in ours, options


def test_assigned_partitions_without_a_group(kafka: Kafka, topic: TopicFactory, both: Both) -> None:
    """Only the checkpoint contains the offsets.  A partition that is added to `assign` starts at its beginning."""
    name = topic(3)
    both.ours._options.pop("groupIdPrefix")
    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(3), 4))
    some = {"assign": json.dumps({name: [0, 1]}), "startingOffsets": "latest"}
    assert both.run(checkpoint="kept", **some) == []
    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(3), 2), start=4)
    assert both.values(checkpoint="kept", **some) == {0: ["0:4", "0:5"], 1: ["1:4", "1:5"]}
    produce(kafka.bootstrap_servers, name, {0: 1}, start=6)
    for source in both:
        source.fails = True
        assert "the sink fails" in source.failure(checkpoint="kept", **some)
        source.fails = False
    assert both.values(checkpoint="kept", **some) == {0: ["0:6"]}, "Spark runs the batch again"
    produce(kafka.bootstrap_servers, name, {0: 1}, start=7)
    more = {**some, "assign": json.dumps({name: [0, 1, 2]})}
    assert both.values(checkpoint="kept", **more) == {0: ["0:7"], 2: [f"2:{n}" for n in range(6)]}
    ours = both.ours.failure(assign=json.dumps({name: [7]}))
    assert f"Option 'assign': the topic '{name}' has no partition 7: it has 3" in ours


@either_protocol
def test_assigned_partitions_with_a_group(
    kafka: Kafka, topic: TopicFactory, both: Both, group: str, pipeline: Callable[..., Any]
) -> None:
    """The query starts at the group's offsets and commits to the group.  It fails if the group has members."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 4, 1: 4})
    mine = {"assign": json.dumps({name: [1]}), "kafka.group.id": group}
    assert [len(rows) for _, rows in both.ours.run("first", **mine)] == [4]
    assert committed(kafka.bootstrap_servers, group, name, [0, 1]).get(1) == 4
    produce(kafka.bootstrap_servers, name, {1: 3})
    assert [len(rows) for _, rows in both.ours.run("first", **mine)] == [3]
    produce(kafka.bootstrap_servers, name, {1: 2})
    assert [len(rows) for _, rows in both.ours.run("another", **mine)] == [2], (
        "a new query starts at the group's offset"
    )
    produce(kafka.bootstrap_servers, name, {1: 1})
    assert [len(rows) for _, rows in both.ours.run("first", **mine)] == [3], "its checkpoint decides"
    member = pipeline(name, name="member").start()
    member.wait_for_rows(4)
    assert f"the group '{group}' has members, and accepts offsets only from them" in both.ours.failure(**mine)
    member.stop()
    wait_for(lambda: not members(kafka.bootstrap_servers, group), "the member has left")
