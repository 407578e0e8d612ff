"""Batch reads: the features that Spark's own source lacks.  `test_parity_batch` tests the common ones."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import udf

import pyspark_kafka_group
from integration import cluster
from integration.cluster import produce
from integration.pipelines import Pipeline, wait_for
from pyspark_kafka_group.cluster.range_lookup import RangeLookup
from pyspark_kafka_group.offsets import notes, types
from pyspark_kafka_group.offsets.errors import (
    ActiveGroupError,
    ConfigurationError,
    OptionError,
    UnknownTopicError,
)
from pyspark_kafka_group.offsets.notes import BookmarkNote
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.tools.analysis.group_records import CommitRecord, decode, is_of_group
from pyspark_kafka_group.tools.analysis.offsets_topic import OFFSETS_TOPIC

Read = Callable[..., DataFrame]


@pytest.fixture
def protocol() -> str:
    """Return one protocol only: a batch read does not join the group."""
    return "classic"


@pytest.fixture
def base(options: dict[str, str]) -> dict[str, str]:
    """Return the options of a batch read with a group."""
    return {key: value for key, value in options.items() if key != "startingOffsets"}


@pytest.fixture
def read(spark: SparkSession, kafka: Kafka) -> Read:
    """Return a function that loads a DataFrame.

    Its keyword arguments are Spark's options, with ``__`` for a dot.  The read has no group unless you pass one.
    """

    def load(**options: object) -> DataFrame:
        given = {key.replace("__", "."): str(value) for key, value in options.items()}
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        return spark.read.format("kafka-group").options(**servers, **given).load()

    return load


def offsets(records: DataFrame) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for row in records.select("topic", "partition", "offset").collect():
        found.setdefault((row[0], row[1]), []).append(row[2])
    return {tp: sorted(numbers) for tp, numbers in sorted(found.items())}


def committed(kafka: Kafka, group: str, topic: str, partitions: int) -> list[int]:
    """Return the group's committed offset of each partition, or :data:`NONE`."""
    return [*cluster.committed(kafka.bootstrap_servers, group, topic, range(partitions)).values()]


def commit(kafka: Kafka, group: str, topic: str, *numbers: int) -> None:
    cluster.reset(kafka.bootstrap_servers, group, topic, dict(enumerate(numbers)))


NONE = -1001


@contextmanager
def producing(kafka: Kafka, topic: str) -> Iterator[None]:
    """Produce records continuously in a thread."""
    done = threading.Event()

    def produce_more() -> None:
        n = 1000
        while not done.is_set():
            produce(kafka.bootstrap_servers, topic, {0: 50, 1: 50}, start=n)
            n += 50

    thread = threading.Thread(target=produce_more)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def slowly(column: str) -> Column:
    """Return a column that slows each task down, so that Spark reads the scans one after the other."""

    @udf("int")
    def slow(number: int) -> int:
        time.sleep(0.01)
        return number

    return slow(column)


# ------------------------------------------------------------------------------------------ reading


def test_a_dataframe_is_planned_once(kafka: Kafka, topic: TopicFactory, read: Read, spark: SparkSession) -> None:
    """Every action, every scan of a query and every view of one ``load()`` reads the same records."""
    first = topic(1)
    produce(kafka.bootstrap_servers, first, {0: 3})
    options = {"subscribePattern": re.sub("[0-9a-f]{8}$", ".*", first), "minRecordsPerTask": 1}
    records = read(**options)
    assert offsets(records) == {(first, 0): [0, 1, 2]}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(first, 2)]).values():
        future.result()
    second = topic(1)
    wait_for(lambda: len(admin.list_topics(first, timeout=10).topics[first].partitions) == 2, "the new partition")
    produce(kafka.bootstrap_servers, first, {0: 1, 1: 2}, start=3)
    produce(kafka.bootstrap_servers, second, {0: 1})
    assert offsets(records) == {(first, 0): [0, 1, 2]}
    records.createOrReplaceTempView("planned_once")
    assert [row[0] for row in spark.sql("SELECT count(*) FROM planned_once").collect()] == [3]
    assert offsets(read(**options)) == {
        tp: list(range(n)) for tp, n in sorted({(first, 0): 4, (first, 1): 2, (second, 0): 1}.items())
    }


def test_both_sides_of_a_self_join_read_the_same(kafka: Kafka, topic: TopicFactory, read: Read) -> None:
    """Regression: the side that Spark reads later had hundreds of records more."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 20, 1: 20})
    records = read(subscribe=name, columns="partition,offset").withColumn("same", slowly("partition"))
    counts = read(subscribe=name, columns="partition,offset").groupBy("partition").count()
    joined = records.alias("one").join(records.alias("other"), ["partition", "offset"], "full_outer")
    with producing(kafka, name):
        found = joined.where("one.same IS NULL OR other.same IS NULL").collect()
        twice = records.union(records).groupBy("partition", "offset").count().where("count != 2").collect()
    assert found == twice == []
    assert sum(row["count"] for row in counts.collect()) > 40, "records came meanwhile"


def test_a_schema_of_the_users_own_is_refused(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    with pytest.raises(PySparkException, match="has a fixed schema"):
        spark.read.format("kafka-group").schema("a INT").options(**options).load().count()


def test_starting_where_a_group_has_committed(kafka: Kafka, topic: TopicFactory, read: Read, group: str) -> None:
    """A batch read starts at the group's offsets and never commits."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5})
    options = {"subscribe": name, "startingOffsets": "committed", "kafka__group__id": group}
    assert offsets(read(**options)) == {(name, 0): [0, 1, 2, 3, 4], (name, 1): [0, 1, 2, 3, 4]}
    assert read(**options, startingOffsetsIfNotCommitted="latest").count() == 0
    assert committed(kafka, group, name, 2) == [NONE, NONE]
    commit(kafka, group, name, 3)
    for more in ({}, {"startingOffsetsIfNotCommitted": "fail"}):
        with pytest.raises(PySparkException, match=f"'{group}' has no committed offset for {name}-1, but for other"):
            read(**options, **more).count()
    for policy in ("earliest", "latest"):
        assert offsets(read(**options, startingOffsetsIfNotCommitted=policy)) == {
            (name, 0): [3, 4],
            (name, 1): [0, 1, 2, 3, 4],
        }
    commit(kafka, group, name, 9, 5)
    with pytest.raises(PySparkException, match=r"offsets \[5, 9\) are beyond the end of the log"):
        read(**options).count()
    assert read(**options, failOnDataLoss="false").count() == 0


# ----------------------------------------------------------------------------------------- bookmark


def test_a_bookmark_gives_what_is_new_once(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, base: dict[str, str], group: str
) -> None:
    name = topic(2)
    options = {**base, "subscribe": name}
    produce(kafka.bootstrap_servers, name, {0: 3, 1: 2})
    with pyspark_kafka_group.bookmark(spark, options) as new:
        assert new.ranges == {(name, 0): (0, 3), (name, 1): (0, 2)}
        assert offsets(new.records) == {(name, 0): [0, 1, 2], (name, 1): [0, 1]}
        produce(kafka.bootstrap_servers, name, {0: 4}, start=3)
        assert new.records.count() == 5  # the new records do not belong to this run
        assert committed(kafka, group, name, 2) == [NONE, NONE]
    assert committed(kafka, group, name, 2) == [3, 2]
    with pytest.raises(ZeroDivisionError), pyspark_kafka_group.bookmark(spark, options) as new:
        assert new.ranges == {(name, 0): (3, 7), (name, 1): (2, 2)}
        raise ZeroDivisionError
    assert committed(kafka, group, name, 2) == [3, 2]
    again = pyspark_kafka_group.bookmark(spark, options)
    assert offsets(again.records) == {(name, 0): [3, 4, 5, 6]}
    again.commit()
    again.commit()
    assert committed(kafka, group, name, 2) == [7, 2]
    assert pyspark_kafka_group.bookmark(spark, options).records.count() == 0


def test_the_place_of_a_bookmark_does_not_expire(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, base: dict[str, str], group: str
) -> None:
    """The broker stores a time of expiry, in decades, also for a partition without records.

    It follows this time, not ``offsets.retention.minutes``: `test_an_offset_that_expires_is_not_taken_for_deleted`.
    """
    name, year_ms = topic(2), 365 * 86_400_000
    produce(kafka.bootstrap_servers, name, {0: 3})
    with pyspark_kafka_group.bookmark(spark, {**base, "subscribe": name}):
        pass
    stored = kafka.read(OFFSETS_TOPIC, isolation_level="read_uncommitted")
    commits = [decode(record.key, record.value) for record in stored if is_of_group(group)(record.key)]
    kept = [
        (one.tp.partition, one.offset, (one.expire_time_ms or 0) - one.commit_time_ms > 50 * year_ms)
        for one in commits
        if isinstance(one, CommitRecord)
    ]
    assert sorted(kept) == [(0, 3, True), (1, 0, True)]


def test_a_bookmark_is_bounded_and_starts_where_it_is_told(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, base: dict[str, str], group: str
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 9})
    options = {**base, "subscribe": name, "includeHeaders": "true"}
    with pyspark_kafka_group.bookmark(spark, {**options, "endingOffsets": json.dumps({name: {"0": 4}})}) as new:
        assert offsets(new.records) == {(name, 0): [0, 1, 2, 3]}
        assert "headers" in new.records.columns
    with pyspark_kafka_group.bookmark(spark, {**base, "subscribePattern": "nothing-.*"}) as nothing:
        assert nothing.ranges == {}
        assert nothing.records.columns[:2] == ["key", "value"]
        assert nothing.records.count() == 0
    assert committed(kafka, group, name, 1) == [4]
    for refused in ({"startingOffsets": "earliest"}, {"startingTimestamp": "5"}):
        with pytest.raises(OptionError, match="a bookmark starts where the group has committed"):
            pyspark_kafka_group.bookmark(spark, {**options, **refused})
    with pytest.raises(ConfigurationError, match="no committed offset"):
        pyspark_kafka_group.bookmark(
            spark, {**options, "kafka.group.id": f"{group}-2", "startingOffsetsIfNotCommitted": "fail"}
        )


def test_a_bookmark_of_a_group_with_members_is_refused(
    kafka: Kafka,
    topic: TopicFactory,
    spark: SparkSession,
    base: dict[str, str],
    pipeline: Callable[..., Pipeline],
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 3})
    early = pyspark_kafka_group.bookmark(spark, {**base, "subscribe": name})
    query = pipeline(name).start()
    query.wait_for_rows(3)
    with pytest.raises(ActiveGroupError, match="has members"):
        pyspark_kafka_group.bookmark(spark, {**base, "subscribe": name})
    with pytest.raises(ActiveGroupError, match="has members"):
        early.commit()
    wait_for(lambda: committed(kafka, base["kafka.group.id"], name, 1) == [3], "the stream's commit")
    query.stop()
    wait_for(lambda: not cluster.members(kafka.bootstrap_servers, base["kafka.group.id"]), "the group is empty")
    # A bookmark continues where the stream has stopped, and a stream where the bookmark has stopped.
    produce(kafka.bootstrap_servers, name, {0: 2}, start=3)
    with pyspark_kafka_group.bookmark(spark, {**base, "subscribe": name}) as new:
        assert offsets(new.records) == {(name, 0): [3, 4]}
    other = pipeline(name, name="other").run_available()
    assert [row.offset for row in other.rows] == []


# ------------------------------------------------------------------------------------------- lookup


@pytest.fixture
def lookup(kafka: Kafka, group: str) -> Iterator[RangeLookup]:
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    made = RangeLookup(properties, group_id=group, read_committed=True, attempts=3, pause_s=0.2)
    yield made
    made.close()


def test_both_ways_to_ask_tell_the_same(kafka: Kafka, topic: TopicFactory, lookup: RangeLookup, group: str) -> None:
    name = topic(2)
    first = int(time.time() * 1000) - 10_000
    for n in range(4):
        produce(kafka.bootstrap_servers, name, {0: 1}, start=n, timestamp=first + 1000 * n)
    empty, full = types.TopicPartition(name, 1), types.TopicPartition(name, 0)
    (info,) = lookup.topics([name]).values()
    assert [*info.leader_epochs] == [0, 1]
    (found,) = lookup.matching(re.escape(name)).values()
    assert (found.topic_id, [*found.leader_epochs]) == (info.topic_id, [0, 1])
    assert info.topic_id is not None
    assert lookup.matching("nothing") == {}
    assert lookup.log_starts([full, empty]) == {full: 0, empty: 0}
    assert lookup.log_ends([full, empty]) == {full: 4, empty: 0}
    assert lookup.offsets_at({full: first + 2000, empty: 0}) == {full: 2}
    assert lookup.offsets_at({full: first + 9000, empty: 5}) == {}
    assert lookup.committed([full, empty]) == {}
    lookup.check_group()
    lookup.commit({full: (types.Offset(3), BookmarkNote(info.topic_id, 2).encode())})
    (stored,) = lookup.committed([full, empty]).values()
    assert (stored.offset, notes.read(stored.metadata)) == (3, BookmarkNote(info.topic_id, 2))
    with pytest.raises(UnknownTopicError):
        lookup.topics(["no-such-topic"])
    member = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        member.subscribe([name])
        wait_for(lambda: member.poll(0.1) or member.assignment(), "a member")
        for refused in (lookup.check_group, lambda: lookup.commit({full: (types.Offset(4), "")})):
            with pytest.raises(ActiveGroupError, match="has members"):
                refused()
    finally:
        member.close()


# --------------------------------------------------------------------------------------------- docs


def test_what_the_command_line_shows(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, base: dict[str, str], group: str
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 3})
    commit(kafka, group, name, 4, 3)
    commit(kafka, group, name, 1, 3)
    member = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "client.id": "reader",
            "enable.auto.commit": False,
        }
    )
    try:
        member.subscribe([name])
        wait_for(lambda: member.poll(0.1) or member.assignment(), "a member")
        shown = {
            view: spark.read.format("kafka-group").options(**base, show=view).load()
            for view in ("lag", "members", "history", "rewinds")
        }
        lag = shown["lag"].orderBy("partition").collect()
        assert [(row.topic, row.partition, row.committed_offset, row.lag) for row in lag] == [
            (name, 0, 1, 4),
            (name, 1, 3, 0),
        ]
        assert {row.client_id for row in lag} == {"reader"}
        (one,) = shown["members"].collect()
        assert (one.group, one.client_id, one.state) == (group, "reader", "Stable")
        assert sorted((part.topic, part.partition) for part in one.assignment) == [(name, 0), (name, 1)]
    finally:
        member.close()
    steps = shown["history"].where("partition = 0").orderBy("log_offset").collect()
    assert [row.committed_offset for row in steps] == [4, 1]
    assert all(row.time is not None for row in steps)
    (back,) = shown["rewinds"].where("kind = 'rewind'").collect()
    assert (back.partition, back.highest_offset, back.lowest_offset) == (0, 4, 1)
    assert shown["lag"].join(shown["rewinds"], ["topic", "partition"]).count() == 1
    with pytest.raises(PySparkException, match="'latency' is not a view"):
        spark.read.format("kafka-group").options(**base, show="latency").load()
