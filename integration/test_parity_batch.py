"""Batch reads return the same as Spark's own source: scenarios with both, see :mod:`integration.parity`."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from integration.parity import BUILT_IN, OURS, Run, Scenario, outcomes
from pyspark_kafka_group.testing import Kafka

pytestmark = pytest.mark.timeout(600)  # the first test runs all scenarios

AGREE: dict[str, Scenario] = {}
"""Scenarios in which both sources return the same rows."""

REFUSED: dict[str, tuple[str, Scenario]] = {}
"""Scenarios that both sources refuse, with a part of our error message."""

READ_AGAIN: dict[str, tuple[str | None, Scenario]] = {}
"""Scenarios that read a DataFrame twice.  Spark's own source reads the logs again.  Ours reads the same records as
before, or fails with this error if they are gone."""


def agree(scenario: Scenario) -> Scenario:
    AGREE[scenario.__name__] = scenario
    return scenario


def refused(text: str) -> Callable[[Scenario], Scenario]:
    def add(scenario: Scenario) -> Scenario:
        REFUSED[scenario.__name__] = text, scenario
        return scenario

    return add


def send(run: Run, topic: str, values: Any, partition: int, **record: Any) -> None:
    """Produce values to a partition."""
    producer = Producer({"bootstrap.servers": run.servers})
    for value in values:
        producer.produce(topic, value=str(value), partition=partition, **record)
    assert producer.flush(30) == 0


def filled(run: Run) -> str:
    """Return a topic with 0 to 20 in three partitions."""
    topic = run.topic()
    send(run, topic, range(10), 0)
    send(run, topic, range(10, 20), 1)
    send(run, topic, [20], 2)
    return topic


def ten(run: Run, *, deleted: int = 0) -> str:
    """Return a topic with 0 to 9 in one partition, without the first ``deleted`` records."""
    topic = run.topic(1)
    send(run, topic, range(10), 0)
    if deleted:
        delete_below(run, topic, deleted)
    return topic


def delete_below(run: Run, topic: str, offset: int) -> None:
    """Delete the records of the first partition below an offset."""
    admin = AdminClient({"bootstrap.servers": run.servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result()


def values_of(records: DataFrame) -> list[str]:
    """Return the values of records, sorted by number."""
    return sorted((row[0] for row in records.selectExpr("CAST(value AS STRING)").collect()), key=int)


def values(run: Run, **options: Any) -> list[str]:
    """Read with these options and return the values."""
    return values_of(run.read(**options))


def shown(records: DataFrame, *columns: str) -> list[str]:
    """Return some columns of records, as text."""
    return sorted(str(row) for row in records.select(*columns).collect())


def each(topic: str, *per_partition: int) -> str:
    """Return JSON with a number for each partition."""
    return json.dumps({topic: {str(n): number for n, number in enumerate(per_partition)}})


# -------------------------------------------------------------------------- what is read


READS: dict[str, Callable[[str], dict[str, Any]]] = {
    "defaults": lambda topic: {"subscribe": topic},
    "assigned": lambda topic: {"assign": json.dumps({topic: [0, 2]})},
    "a_pattern_that_nothing_matches": lambda _: {"subscribePattern": "no-such-.*"},
    "at_most_so_many_records_in_a_task": lambda topic: {"subscribe": topic, "maxRecordsPerPartition": 4},
    "an_empty_range": lambda topic: {
        "subscribe": topic,
        "startingOffsets": each(topic, 3, 3, 0),
        "endingOffsets": each(topic, 3, 4, 0),
    },
    "a_group": lambda topic: {"subscribe": topic, "kafka__group__id": "mine"},
}
"""Scenarios that only set options, on a topic of 21 records."""


def of_filled(run: Run, options: Callable[[str], dict[str, Any]]) -> list[str]:
    return values(run, **options(filled(run)))


for _name, _options in READS.items():
    AGREE[_name] = partial(of_filled, options=_options)

START, START_OF_EACH, START_OF_ALL = "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"
END, END_OF_EACH, END_OF_ALL = "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"
LATEST_ELSE = {"startingOffsetsByTimestampStrategy": "latest"}
NEVER = 2**63 - 1

Times = Callable[[Callable[..., str], list[int]], dict[str, Any]]
"""Options on a topic with four times.  The first argument is :func:`each`; a single number is for all partitions."""

TIMES: dict[str, Times] = {
    "times_at_both_ends": lambda of, at: {START_OF_EACH: of(at[1]), END_OF_EACH: of(at[2])},
    "time_and_ending_offsets": lambda of, at: {START_OF_EACH: of(at[0]), END: of(-1, -1, 1)},
    "starting_offsets_and_time": lambda of, at: {START: of(-2, -2, 0), END_OF_EACH: of(at[2])},
    "one_time_for_all": lambda _, at: {START_OF_ALL: at[1], END_OF_ALL: at[2]},
    "a_time_for_all_goes_first": lambda of, at: {START_OF_ALL: at[2], START_OF_EACH: of(at[1]), START: "earliest"},
    "no_record_of_the_starting_time_and_latest": lambda of, at: {
        START_OF_EACH: of(at[1], at[1], at[3] + 10**9),
        **LATEST_ELSE,
    },
    "no_record_of_the_ending_time": lambda of, at: {END_OF_EACH: of(at[1], at[1], NEVER)},
}

TIMES_REFUSED: dict[str, tuple[str, Times]] = {
    "no_record_of_the_starting_time": (
        f"has no record of the time {NEVER} (startingOffsetsByTimestamp",
        lambda of, at: {START_OF_EACH: of(at[1], at[1], NEVER)},
    ),
    "a_start_behind_an_ending_time": (
        "Option 'startingOffsets': the resolved start offset 5 of topic-",
        lambda of, at: {START: of(5), END_OF_EACH: of(at[1])},
    ),
    "a_time_for_a_partition_too_few": (
        "Option 'startingOffsetsByTimestamp': it does not name topic-",
        lambda of, at: {START_OF_EACH: of(at[0], at[0])},
    ),
}


def of_times(run: Run, options: Times) -> list[str]:
    """Read 0 to 29 in three partitions.  Each ten share a timestamp, and ``at`` has one more time after them."""
    topic, first = run.topic(), int(time.time() * 1000) - 5000
    for n in range(3):
        for partition in range(3):
            numbers = [v for v in range(10 * n, 10 * n + 10) if v % 3 == partition]
            send(run, topic, numbers, partition, timestamp=first + 1000 * n)

    def of(*numbers: int) -> str:
        return each(topic, *(numbers * 3 if len(numbers) == 1 else numbers))

    return values(run, subscribe=topic, **options(of, [first + 1000 * n for n in range(4)]))


for _name, _times in TIMES.items():
    AGREE[_name] = partial(of_times, options=_times)
for _name, (_text, _times) in TIMES_REFUSED.items():
    REFUSED[_name] = _text, partial(of_times, options=_times)


@agree
def schema(run: Run) -> Any:
    topic = filled(run)
    send(run, topic, ["x"], 0, key="k", headers=[("a", b"b"), ("a", None)])
    return [
        run.read(subscribe=topic).schema.json(),
        run.read(subscribe=topic, includeHeaders="true").schema.json(),
        shown(run.read(subscribe=topic, includeHeaders="true").where("key = 'k'"), "key", "value", "headers"),
        shown(run.read(subscribe=topic).where("offset = 3"), "partition", "offset", "timestampType"),
    ]


@agree
def explicit_offsets(run: Run) -> Any:
    topic = filled(run)
    options = {START: each(topic, -2, -2, 0), END: each(topic, -1, -1, 1)}
    found = [values(run, subscribe=topic, **options)]
    send(run, topic, range(31, 40), 2)
    found.append(values(run, subscribe=topic, **options))
    send(run, topic, range(21, 31), 1)
    return [*found, values(run, subscribe=topic, **options)]


@agree
def headers(run: Run) -> Any:
    topic = run.topic()
    send(run, topic, [1], 0)
    send(run, topic, [2], 1, headers=[("a", b"b"), ("c", b"d")])
    send(run, topic, [3], 2, headers=[("e", b"f"), ("e", b"g")])
    return shown(run.read(subscribe=topic, includeHeaders="true").selectExpr("string(value)", "headers"), "*")


@agree
def the_same_records_twice_in_one_query(run: Run) -> Any:
    records = run.read(subscribe=filled(run))
    return values_of(records.union(records))


def transactions(run: Run, level: str) -> Any:
    topic = run.topic(1)
    found = []
    producer = Producer({"bootstrap.servers": run.servers, "transactional.id": f"t-{uuid.uuid4().hex}"})
    producer.init_transactions(30)
    for begin, end in ((1, "commit"), (6, "abort"), (11, "commit")):
        producer.begin_transaction()
        for n in range(begin, begin + 5):
            producer.produce(topic, value=str(n))
        producer.flush(30)
        found.append(values(run, subscribe=topic, kafka__isolation__level=level))
        if end == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        found.append(values(run, subscribe=topic, kafka__isolation__level=level))
    return found


for _level in ("read_committed", "read_uncommitted"):
    AGREE[f"transactions_{_level}"] = partial(transactions, level=_level)


@agree
def min_partitions(run: Run) -> Any:
    records = run.read(subscribe=filled(run), minPartitions=6)
    return records.rdd.getNumPartitions() >= 6, values_of(records)


@agree
def several_topics(run: Run) -> Any:
    return values(run, subscribe=f"{filled(run)}, {filled(run)}")


@agree
def a_pattern(run: Run) -> Any:
    return values(run, subscribePattern=f"{filled(run)}|{filled(run)}")


@agree
def an_empty_topic(run: Run) -> Any:
    return values(run, subscribe=run.topic())


@agree
def filters(run: Run) -> Any:
    """Run queries with several filters on one DataFrame.  If a setting says so, Spark pushes them to Python sources."""
    topic = filled(run)
    pushing = ("false",) if run.format == BUILT_IN else ("false", "true")
    found = []
    for pushed in pushing:
        run.spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
        try:
            records = run.read(subscribe=topic)
            first = records.where("partition = 0 AND offset >= 5")
            second = records.where(f"partition = 1 AND topic = '{topic}' AND timestamp > '2001-01-01'")
            found.append([values_of(first), values_of(first.union(second)), records.count()])
        finally:
            run.spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    return found if len(found) > 1 else found * 2


NO_FAIL = {"failOnDataLoss": "false", "kafkaConsumer__pollTimeoutMs": 1000}


@agree
def deleted_records_and_no_fail_on_data_loss(run: Run) -> Any:
    topic = ten(run, deleted=4)
    return values(run, subscribe=topic, startingOffsets=each(topic, 0), **NO_FAIL)


@agree
def an_end_behind_the_log_and_no_fail_on_data_loss(run: Run) -> Any:
    topic = ten(run)
    return values(run, subscribe=topic, endingOffsets=each(topic, 100), **NO_FAIL)


@agree
def columns_in_any_order(run: Run) -> Any:
    records = run.read(subscribe=filled(run))
    counts = shown(records.groupBy("partition").count(), "*")
    return counts, records.select("offset", "partition").where("offset > 8").count()


# -------------------------------------------------------------------------- what is refused


@refused("offsets [0, 4) were deleted before they were read, usually by retention; the broker holds [4, 10)")
def deleted_records(run: Run) -> Any:
    topic = ten(run, deleted=4)
    return values(run, subscribe=topic, startingOffsets=each(topic, 0), kafkaConsumer__pollTimeoutMs=1000)


@refused("Option 'endingOffsets': 100 is behind the end of topic-")
def an_end_behind_the_log(run: Run) -> Any:
    topic = ten(run)
    return values(run, subscribe=topic, endingOffsets=each(topic, 100), kafkaConsumer__pollTimeoutMs=1000)


@refused("Option 'startingOffsets': the resolved start offset 1 of topic-")
def a_start_behind_the_log(run: Run) -> Any:
    topic = run.topic()
    return values(run, subscribe=topic, startingOffsets=each(topic, 1, 1, 1))


@refused("Option 'startingOffsets': it does not name topic-")
def a_partition_that_is_not_named(run: Run) -> Any:
    topic = filled(run)
    return values(run, subscribe=topic, startingOffsets=each(topic, 0, 0))


@refused("which is not read. A batch read must name each partition of each topic")
def a_partition_that_does_not_exist(run: Run) -> Any:
    topic = filled(run)
    return values(run, subscribe=topic, startingOffsets=each(topic, 0, 0, 0, 0))


UNREAD: dict[str, tuple[str, dict[str, Any]]] = {
    "other_partitions_at_the_end": (
        "it names other topic-partitions than startingOffsets: test-2",
        {"subscribe": "test", START: each("test", 1, 1, 1), END: each("test", 0, 0)},
    ),
    "a_start_above_the_end": (
        "the start offset 1 of test-0 is greater than its end offset 0",
        {"subscribe": "test", START: each("test", 1, 1), END: each("test", 0, 0)},
    ),
    "a_topic_that_does_not_exist": (
        "Option 'subscribe': topic not found: no-such-topic",
        {"subscribe": "no-such-topic", "fetchOffset__numRetries": 1},
    ),
}

for _name, (_text, _given) in UNREAD.items():
    REFUSED[_name] = _text, partial(values, **_given)

BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "start_latest": {"subscribe": "t", START: "latest"},
    "end_earliest": {"subscribe": "t", END: "earliest"},
    "no_strategy": {},
    "two_strategies": {"subscribe": "t", "subscribePattern": "t.*"},
    "no_topic": {"subscribe": ""},
    "malformed_json": {"subscribe": "t", START: '{"t": '},
    "auto_offset_reset": {"subscribe": "t", "kafka__auto__offset__reset": "latest"},
    "key_deserializer": {"subscribe": "t", "kafka__key__deserializer": "x"},
    "value_deserializer": {"subscribe": "t", "kafka__value__deserializer": "x"},
    "interceptors": {"subscribe": "t", "kafka__interceptor__classes": "x"},
    "enable_auto_commit": {"subscribe": "t", "kafka__enable__auto__commit": "true"},
    "min_above_max": {"subscribe": "t", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
}


@agree
def bad_options(run: Run) -> Any:
    """Return the names of the bad options that the source accepts: none."""
    accepted = []
    for name, options in BAD_OPTIONS.items():
        try:
            run.read(**options).collect()
            accepted.append(name)
        except (PySparkException, Exception):  # a JVM source raises many kinds of errors
            continue
    return accepted


# -------------------------------------------------------------------------- a DataFrame that is read twice


def read_again(run: Run, topic: str, change: Callable[[Run, str], None], **options: Any) -> dict[str, Any]:
    """Read a DataFrame, change the topic, read the DataFrame again, and read a new one with the same options."""
    records = run.read(subscribe=topic, **options)
    before = values_of(records)
    change(run, topic)
    try:
        same: Any = values_of(records)
    except Exception as problem:  # the tests compare its text
        same = str(problem)
    return {"before": before, "same": same, "new": values(run, subscribe=topic, **options)}


def replace_all(run: Run, topic: str) -> None:
    delete_below(run, topic, 10)
    send(run, topic, range(10, 20), 0)


def send_more(run: Run, topic: str) -> None:
    send(run, topic, range(21, 31), 0)


READ_AGAIN["after_more_records"] = None, lambda run: read_again(run, filled(run), send_more)
READ_AGAIN["in_cut_partitions"] = None, lambda run: read_again(run, filled(run), send_more, minPartitions=6)
READ_AGAIN["after_records_were_deleted"] = (
    "offsets [0, 10) were deleted before they were read",
    lambda run: read_again(run, ten(run), replace_all),
)


@pytest.fixture(scope="module")
def found(spark: SparkSession, kafka: Kafka) -> dict[str, dict[str, Any]]:
    """Return the rows or the error of both sources in each scenario."""
    expected = {**REFUSED, **READ_AGAIN}
    return outcomes(spark, kafka, {**AGREE, **{name: scenario for name, (_, scenario) in expected.items()}})


@pytest.mark.parametrize("name", AGREE)
def test_both_sources_give_the_same(found: dict[str, dict[str, Any]], name: str) -> None:
    assert found[name][OURS] == found[name][BUILT_IN]
    assert "error" not in found[name][OURS]


@pytest.mark.parametrize("name", REFUSED)
def test_both_sources_refuse(found: dict[str, dict[str, Any]], name: str) -> None:
    text, _ = REFUSED[name]
    assert "error" in found[name][BUILT_IN]
    assert text in found[name][OURS]["error"]


@pytest.mark.parametrize("name", READ_AGAIN)
def test_a_dataframe_that_is_read_again_gives_the_same_or_says_what_is_gone(
    found: dict[str, dict[str, Any]], name: str
) -> None:
    theirs, ours = found[name][BUILT_IN], found[name][OURS]
    text, _ = READ_AGAIN[name]
    assert theirs["same"] == theirs["new"] != theirs["before"]
    if text is None:
        assert ours == {**theirs, "same": theirs["before"]}
    else:
        assert text in ours["same"]
        assert ours == {**theirs, "same": ours["same"]}
