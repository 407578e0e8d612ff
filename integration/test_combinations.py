"""Random combinations of options: the test computes the expected rows from the records that it produced.

The seed of a case determines:

* the topics: transactions, some of them aborted; keys and values that are null or malformed; headers;
* how the query names the topics, where it starts, and how it cuts batches and tasks;
* columns and formats.

The query runs with ``availableNow``.  The test then produces more, and the query continues from its checkpoint,
perhaps with other limits for batches and tasks.  A batch read of such a case must return its records.
"""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from integration.cluster import committed, log_ends
from integration.pipelines import wait_for
from pyspark_kafka_group.testing import Kafka

_PATIENCE_S = 120
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_BEGIN_MS = round(time.time() * 1000) - 7_200_000
"""The timestamp of the first record.  It is so recent that retention does not delete the record."""

_CREATE_TIME = 0
_SCHEMA = "n BIGINT, s STRING"


class Produced(NamedTuple):
    """A record as the test produced it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    committed: bool


class Start(NamedTuple):
    """Where the query starts: the option, and the first offset of each partition that it implies."""

    options: dict[str, str]
    offsets: dict[tuple[str, int], int]


@dataclass
class World:
    """The topics of a case and all their records."""

    kafka: Kafka
    draw: random.Random
    topics: dict[str, int]
    records: list[Produced] = field(default_factory=list)
    clock_ms: int = _BEGIN_MS

    @classmethod
    def drawn(cls, kafka: Kafka, draw: random.Random) -> World:
        name = f"combination-{uuid.UUID(int=draw.getrandbits(128)).hex[:6]}-{uuid.uuid4().hex[:6]}"
        topics = {f"{name}-{n}": draw.randint(1, 4) for n in range(draw.randint(1, 2))}
        for topic, partitions in topics.items():
            kafka.create_topic(topic, partitions)
        return cls(kafka, draw, topics)

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [(topic, number) for topic, count in self.topics.items() for number in range(count)]

    def produce(self) -> None:
        """Produce records to some partitions, without a transaction or in one, which may be aborted."""
        draw = self.draw
        for _ in range(draw.randint(1, 4)):
            transactional, commits = draw.random() < 0.5, draw.random() < 0.6
            config = {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "linger.ms": 2,
                "compression.type": draw.choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            }
            producer = Producer({**config, "transactional.id": uuid.uuid4().hex} if transactional else config)
            if transactional:
                producer.init_transactions(60)
                producer.begin_transaction()
            for topic, number in self.partitions:
                if draw.random() < 0.7:
                    for _ in range(draw.choice([1, 2, 7, 30])):
                        self._one(producer, topic, number, commits or not transactional)
            assert producer.flush(60) == 0
            if transactional and commits:
                producer.commit_transaction(60)
            elif transactional:
                producer.abort_transaction(60)
        # The brokers write the transaction markers a moment later.
        wait_for(lambda: self.ends() == self.ends("read_uncommitted"), "all transactions are ended")

    def _one(self, producer: Producer, topic: str, number: int, committed: bool) -> None:
        draw = self.draw
        self.clock_ms += draw.randint(0, 1000)
        n = draw.randint(-5, 10**12)
        key = draw.choice([None, b"", str(n).encode(), b"\xff\x00"])
        value = draw.choice([None, json.dumps({"n": n, "s": f"ä{n}"}).encode(), b'{"n": 1', b"[]", b"\xff"])
        headers = tuple((draw.choice("hij"), draw.choice([None, b"", b"\x00x"])) for _ in range(draw.choice([0, 0, 2])))
        at = self.clock_ms

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            self.records.append(Produced(topic, number, message.offset(), at, key, value, headers, committed))

        producer.produce(topic, value, key, partition=number, on_delivery=delivered, timestamp=at, headers=[*headers])
        producer.poll(0)

    def ends(self, isolation: str = "read_committed") -> dict[tuple[str, int], int]:
        return log_ends(self.kafka.bootstrap_servers, self.partitions, isolation_level=isolation)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        servers = self.kafka.bootstrap_servers
        return {
            (topic, partition): offset
            for topic, count in self.topics.items()
            for partition, offset in committed(servers, group, topic, range(count)).items()
        }

    def visible(self, isolation: str, since: dict[tuple[str, int], int]) -> list[Produced]:
        """Return the records that a reader with this isolation level gets, starting at these offsets."""
        return [
            record
            for record in self.records
            if (record.committed or isolation == "read_uncommitted")
            and record.offset >= since.get((record.topic, record.partition), 0)
        ]


def named_topics(world: World, *, may_assign: bool = True) -> dict[str, str]:
    """Draw the option that names the topics."""
    draw, names = world.draw, [*world.topics]
    partitions = {topic: [*range(count)] for topic, count in world.topics.items()}
    ways = [
        {"subscribe": ",".join(names)},
        {"subscribePattern": names[0].rsplit("-", 1)[0] + "-[0-9]"},
        {"assign": json.dumps(partitions)},
    ]
    return draw.choice(ways if may_assign else ways[:2])


def drawn_start(world: World, *, batch: bool) -> Start:
    """Draw where to start."""
    draw, ends = world.draw, world.ends()
    earliest = dict.fromkeys(world.partitions, 0)
    per_topic: dict[str, dict[str, int]] = {}
    match draw.choice(["default", "earliest", "latest", "offsets", "timestamp", "timestamps"]):
        case "default":
            return Start({}, earliest if batch else ends)
        case "latest" if not batch:
            return Start({"startingOffsets": draw.choice(["latest", "LATEST"])}, ends)
        case "offsets":
            offsets = dict(earliest)
            for (topic, number), end in ends.items():
                if batch or draw.random() < 0.7:
                    at = draw.choice([-2, 0, end // 2] + ([] if batch else [-1, end]))
                    per_topic.setdefault(topic, {})[str(number)] = at
                    offsets[topic, number] = {-2: 0, -1: end}.get(at, at)
            return Start(
                {"startingOffsets": json.dumps(per_topic)} if per_topic else {},
                offsets if per_topic else (earliest if batch else ends),
            )
        case "timestamp":
            at = draw.randint(_BEGIN_MS - 5, world.clock_ms + 5)
            options = {"startingTimestamp": str(at), "startingOffsetsByTimestampStrategy": "latest"}
            return Start(options, {tp: _first_at(world, tp, at, ends[tp]) for tp in world.partitions})
        case "timestamps":
            offsets = {}
            for topic, number in world.partitions:
                at = draw.randint(_BEGIN_MS - 5, world.clock_ms + 5)
                per_topic.setdefault(topic, {})[str(number)] = at
                offsets[topic, number] = _first_at(world, (topic, number), at, ends[topic, number])
            options = {
                "startingOffsetsByTimestamp": json.dumps(per_topic),
                "startingOffsetsByTimestampStrategy": "latest",
            }
            return Start(options, offsets)
    return Start({"startingOffsets": "earliest"}, earliest)


def _first_at(world: World, tp: tuple[str, int], at: int, end: int) -> int:
    """Return the offset that Kafka finds.  An offset without a record is a transaction marker, timed at its end."""
    times = {record.offset: record.timestamp for record in world.records if (record.topic, record.partition) == tp}
    return next((offset for offset in range(end) if times.get(offset, at) >= at), end)


def drawn_cuts(draw: random.Random, *, batch: bool) -> dict[str, str]:
    """Draw the options that limit batches and tasks."""
    cuts = {
        "minPartitions": draw.choice(["1", "3", "17"]),
        "maxRecordsPerPartition": draw.choice(["1", "4", "100"]),
        "minRecordsPerTask": draw.choice(["1", "10", "1000"]),
    }
    if not batch:
        cuts |= {
            "maxOffsetsPerTrigger": draw.choice(["5", "20", "1000"]),
            "minOffsetsPerTrigger": draw.choice(["1", "5"]),
        }
    chosen = {name: value for name, value in cuts.items() if draw.random() < 0.35}
    if "minOffsetsPerTrigger" in chosen:
        chosen["maxTriggerDelay"] = "10s"
    return chosen


class Shape(NamedTuple):
    """The columns and formats of the rows."""

    options: dict[str, str]
    columns: tuple[str, ...]

    def of(self, record: Produced) -> tuple[Any, ...]:
        """Return the row that the query must deliver for a record."""
        plain = {
            "key": record.key,
            "value": record.value,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": _CREATE_TIME,
            "headers": record.headers or None,
            "malformed": None,
        }
        if self.options.get("keyFormat") == "string" and record.key is not None:
            try:
                plain["key"] = record.key.decode()
            except UnicodeDecodeError:
                plain["key"], plain["malformed"] = None, True
        if self.options.get("valueFormat") == "json":
            plain["value"], malformed = _json(record.value)
            plain["malformed"] = plain["malformed"] or malformed
        return tuple(plain[name] for name in self.columns)


def _json(value: bytes | None) -> tuple[Any, bool | None]:
    if value is None:
        return None, None
    try:
        found = json.loads(value)
    except ValueError:
        return None, True
    return ((found["n"], found["s"]), None) if isinstance(found, dict) else (None, True)


def drawn_shape(draw: random.Random) -> Shape:
    """Draw columns and formats."""
    options: dict[str, str] = {}
    columns: tuple[str, ...] = _COLUMNS
    if draw.random() < 0.4:
        columns = tuple(name for name in _COLUMNS if draw.random() < 0.5) or ("offset",)
        options["columns"] = ",".join(columns)
    if draw.random() < 0.5:
        options["includeHeaders"] = "true"
        columns = (*columns, "headers")
    if draw.random() < 0.4:
        options["malformedRecords"] = "null"
        if draw.random() < 0.7 and "value" in columns:
            options |= {"valueFormat": "json", "valueSchema": _SCHEMA}
        elif "key" in columns:
            options["keyFormat"] = "string"
        if "keyFormat" in options or "valueFormat" in options:
            columns = (*columns, "malformed")
        else:
            del options["malformedRecords"]
    return Shape(options, columns)


def rows_of(frame: DataFrame, columns: Iterable[str]) -> Counter[tuple[Any, ...]]:
    """Collect the rows and convert their values to comparable ones."""
    return Counter(tuple(_plain(name, row[name]) for name in columns) for row in frame.collect())


def _plain(name: str, value: Any) -> Any:
    match name:
        case "timestamp":
            return round(value.timestamp() * 1000)
        case "headers":
            return (
                None
                if not value
                else tuple((h["key"], None if h["value"] is None else bytes(h["value"])) for h in value)
            )
        case "malformed":
            return None if value is None else True
        case "key" | "value" if isinstance(value, bytearray | bytes):
            return bytes(value)
        case "key" | "value" if isinstance(value, tuple):
            return tuple(value)
    return value


class Case:
    """One drawn combination.  ``told`` describes it for error messages."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path, seed: int) -> None:
        self._spark = spark
        self._folder = folder
        self.draw = random.Random(seed)
        self.world = World.drawn(kafka, self.draw)
        self.told: list[str] = [f"seed {seed}"]
        self._runs = 0

    def stream(self) -> None:
        """Run a stream three times, and produce records before each run."""
        draw, world = self.draw, self.world
        world.produce()
        start, shape, named = drawn_start(world, batch=False), drawn_shape(draw), named_topics(world)
        isolation = draw.choice(["read_committed", "read_uncommitted"])
        group = f"group-{uuid.uuid4().hex[:8]}"
        fixed = {
            "kafka.bootstrap.servers": world.kafka.bootstrap_servers,
            "kafka.isolation.level": isolation,
            **named,
            **start.options,
            **shape.options,
        }
        for name, value in (
            ("commitMode", "plain" if "assign" in named else draw.choice(["plain", "transaction"])),
            ("kafka.group.protocol", draw.choice(["consumer", "classic"])),
            ("failOnDataLoss", draw.choice(["true", "false"])),
            ("warmUp", draw.choice(["true", "false"])),
            ("checkpointLocation", str(self._folder / "checkpoint")),
            ("eventLog", str(self._folder / "events.jsonl")),
        ):
            if draw.random() < 0.4:
                fixed[name] = value
        grouped = "assign" not in named or draw.random() < 0.5
        if grouped:
            fixed["kafka.group.id"] = group
            if "assign" not in named and draw.random() < 0.2:
                fixed["kafka.group.instance.id"] = "static"
        since = start.offsets
        for _ in range(3):
            expected = Counter(shape.of(record) for record in world.visible(isolation, since))
            ends = world.ends()
            found = self._run({**fixed, **drawn_cuts(draw, batch=False)}, shape)
            assert found == expected, self._difference(expected, found)
            if grouped:
                committed = world.committed(group)
                assert committed == ends, f"{self.told}: committed {committed}, the logs end at {ends}"
            since = ends
            world.produce()

    def batch(self) -> None:
        """Read a batch, and compare its rows with the produced records."""
        draw, world = self.draw, self.world
        world.produce()
        start, shape = drawn_start(world, batch=True), drawn_shape(draw)
        isolation = draw.choice(["read_committed", "read_uncommitted"])
        options = {
            "kafka.bootstrap.servers": world.kafka.bootstrap_servers,
            "kafka.isolation.level": isolation,
            **named_topics(world),
            **start.options,
            **shape.options,
            **drawn_cuts(draw, batch=True),
        }
        until = world.ends()
        if draw.random() < 0.4:
            until = {tp: draw.randint(min(start.offsets[tp], end), end) for tp, end in until.items()}
            ending: dict[str, dict[str, int]] = {}
            for (topic, number), offset in until.items():
                ending.setdefault(topic, {})[str(number)] = offset
            options["endingOffsets"] = json.dumps(ending)
        self.told.append(f"batch {options}")
        frame = self._spark.read.format("kafka-group").options(**options).load()
        assert tuple(frame.columns) == shape.columns, (self.told, frame.columns)
        expected = Counter(
            shape.of(record)
            for record in world.visible(isolation, start.offsets)
            if record.offset < until[record.topic, record.partition]
        )
        found = rows_of(frame, shape.columns)
        assert found == expected, self._difference(expected, found)
        assert frame.count() == sum(expected.values()), self.told

    def _run(self, options: dict[str, str], shape: Shape) -> Counter[tuple[Any, ...]]:
        self.told.append(f"stream {options}")
        found: Counter[tuple[Any, ...]] = Counter()
        frame = self._spark.readStream.format("kafka-group").options(**options).load()
        assert tuple(frame.columns) == shape.columns, (self.told, frame.columns)

        def take(batch: DataFrame, _batch_id: int) -> None:
            found.update(rows_of(batch, shape.columns))

        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self._folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(_PATIENCE_S), f"{self.told}: it does not end"
        finally:
            query.stop()
        return found

    def _difference(self, expected: Counter[tuple[Any, ...]], found: Counter[tuple[Any, ...]]) -> str:
        missing, surplus = expected - found, found - expected
        return "\n".join(
            [
                *self.told,
                f"{sum(expected.values())} rows expected, {sum(found.values())} found",
                f"missing: {[*missing.items()][:5]}",
                f"not expected: {[*surplus.items()][:5]}",
            ]
        )


# COMBINATIONS=200 runs more cases; COMBINATIONS_FROM is the first seed.
_FIRST = int(os.environ.get("COMBINATIONS_FROM", "0"))
_SEEDS = range(_FIRST, _FIRST + int(os.environ.get("COMBINATIONS", "2")))


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_stream(spark: SparkSession, kafka: Kafka, tmp_path: Path, seed: int) -> None:
    Case(spark, kafka, tmp_path, seed).stream()


@pytest.mark.parametrize("seed", [seed + 1_000_000 for seed in _SEEDS])
def test_a_batch(spark: SparkSession, kafka: Kafka, tmp_path: Path, seed: int) -> None:
    Case(spark, kafka, tmp_path, seed).batch()
