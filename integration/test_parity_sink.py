"""The sink writes and refuses the same as Spark's own: see :mod:`integration.parity`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from integration.parity import BUILT_IN, OURS, Run, Scenario, outcomes
from pyspark_kafka_group.testing import ExistingKafka, Kafka

pytestmark = pytest.mark.timeout(600)  # the first test runs all scenarios

AGREE: dict[str, Scenario] = {}
"""Scenarios in which both sinks write the same records."""

REFUSED: dict[str, tuple[str, str, Scenario]] = {}
"""Scenarios that both sinks refuse: a text of both errors in lower case, and a text of ours; each may be empty."""


def agree(scenario: Scenario) -> Scenario:
    AGREE[scenario.__name__] = scenario
    return scenario


def stream(run: Run, *expressions: str, mode: str = "append", grouped: bool = False, **options: Any) -> int:
    """Write the numbers 1 to 5 in a stream, and then 6 to 10.  Return the number of rows in its progress."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder) / "numbers"
        numbers.mkdir()
        rows = run.spark.readStream.text(str(numbers))
        if grouped:
            rows = rows.groupBy("value").count().selectExpr("value as key", "cast(count as string) as value")
        shown = 0
        for at in (1, 6):
            (numbers / f"{at}.txt").write_text("\n".join(map(str, range(at, at + 5))))
            query = (
                rows.selectExpr(*expressions or ("value",))
                .writeStream.format(run.format)
                .options(**run.options(options), checkpointLocation=f"{folder}/checkpoint")
                .outputMode(mode)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(60)
            shown += sum(progress["sink"]["numOutputRows"] for progress in query.recentProgress)
        return shown


def in_topic(run: Run, topic: str) -> list[Any]:
    """Return the partition, key, value and headers of all records in a topic, sorted."""
    return sorted(
        ([r.partition, _text(r.key), _text(r.value), [[k, _text(v)] for k, v in r.headers]])
        for r in ExistingKafka(run.servers).read(topic)
    )


def _text(value: bytes | None) -> str:
    return "null" if value is None else "=" + value.decode()


def written(run: Run, topic: str) -> list[Any]:
    """Return the result of :func:`in_topic` without the partitions."""
    return sorted(record[1:] for record in in_topic(run, topic))


# -------------------------------------------------------------------------- what is written


@agree
def stream_with_a_topic_column(run: Run) -> Any:
    topic = run.topic()
    return [stream(run, f"'{topic}' as topic", "value"), written(run, topic)]


@agree
def stream_with_a_topic_option(run: Run) -> Any:
    topic = run.topic()
    return [stream(run, topic=topic), written(run, topic)]


@agree
def stream_where_the_option_overrides_the_column(run: Run) -> Any:
    topic = run.topic()
    return [stream(run, "'foo' as topic", "value", topic=topic), written(run, topic)]


@agree
def stream_in_complete_mode(run: Run) -> Any:
    topic = run.topic()
    return [stream(run, "key", "value", mode="complete", grouped=True, topic=topic), written(run, topic)]


Look = Callable[[Run, str], list[Any]]

BATCHES: dict[str, tuple[Look, int, str]] = {
    "headers": (
        written,
        4,
        """select value, headers from values
        ('1', array(named_struct('key', 'a', 'value', binary('b')))),
        ('2', array(named_struct('key', 'c', 'value', binary('d')), named_struct('key', 'e', 'value', binary('f')))),
        ('3', array(named_struct('key', 'g', 'value', binary('h')), named_struct('key', 'g', 'value', binary('i')))),
        ('4', null),
        ('5', array()),
        ('6', array(named_struct('key', 'ä', 'value', cast(null as binary)))),
        ('7', array(named_struct('key', '', 'value', binary(''))))
        as t(value, headers)""",
    ),
    # Each record is in the partition that Kafka's own partitioner chooses.
    "partitioned_by_key": (
        in_topic,
        7,
        "select case id when 0 then '' when 1 then 'ключ' else concat('key-', id) end as key, string(id) as value"
        " from range(500)",
    ),
    "a_partition_column": (
        in_topic,
        4,
        "select string(id) as key, string(id) as value, 2 as partition from range(20)",
    ),
    "some_partitions_null": (
        in_topic,
        4,
        "select string(id) as key, string(id) as value,"
        " case when id % 2 = 0 then cast(null as int) else 3 end as partition from range(50)",
    ),
    "no_keys": (written, 2, "select cast(null as string) as key, string(id) as value from range(1000)"),
    "nulls_and_empty_values": (
        written,
        4,
        "select key, value from values ('a', null), ('b', ''), ('', 'c'), ('d', 'd') as t(key, value)",
    ),
    "bytes": (in_topic, 4, "select binary(string(id)) as key, binary(string(id)) as value from range(9)"),
    "more_columns": (
        written,
        4,
        "select string(id) as value, id as offset, 'x' as VALUE2, id as Key from range(5)",
    ),
    "structs_as_json": (written, 4, "select to_json(struct(*)) as value from range(1, 1000)"),
    "no_rows": (written, 4, "select string(id) as value from range(0)"),
}
"""The function that reads the topic, its number of partitions, and the rows that a batch writes."""


def batch(run: Run, look: Look, partitions: int, rows: str) -> list[Any]:
    topic = run.topic(partitions)
    run.write(run.spark.sql(rows), topic=topic, **({"includeHeaders": "true"} if "headers" in rows else {}))
    return look(run, topic)


for _name, (_look, _partitions, _rows) in BATCHES.items():
    AGREE[f"batch_with_{_name}"] = partial(batch, look=_look, partitions=_partitions, rows=_rows)


@agree
def batch_to_several_topics(run: Run) -> Any:
    one, two = run.topic(), run.topic()
    topics = f"case when id % 3 = 0 then '{one}' else '{two}' end as topic"
    run.write(run.spark.sql(f"select {topics}, string(id) as key, string(id) as value from range(30)"))
    return [in_topic(run, one), in_topic(run, two)]


@agree
def batch_to_a_topic_that_takes_small_batches(run: Run) -> Any:
    """The limit is for batches of records: the sink's are larger, unless it asks for the limit."""
    topic = run.topic(2, max__message__bytes="100000")
    run.write(run.spark.sql("select string(id) as key, repeat('x', 1000) as value from range(3000)"), topic=topic)
    return in_topic(run, topic)


@agree
def batch_with_a_topic_in_blanks(run: Run) -> Any:
    topic = run.topic()
    run.write(run.spark.sql("select 'x' as value"), topic=f" {topic} ")
    return written(run, topic)


# -------------------------------------------------------------------------- what is refused


T = {"topic": "t"}

STREAMS_REFUSED: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    "no_topic": ("topic option required when no 'topic' attribute is present", "", ("value as key", "value"), {}),
    "no_value": ("required attribute 'value' not found", "", ("'t' as topic", "value as key"), {}),
    "a_value_of_a_wrong_type": ("value must be a(n) string or binary", "", ("CAST(value as INT) as value",), T),
    "a_topic_that_does_not_exist": (
        "",  # here and below: the session cannot load the error class of a task from an added jar
        "Create it, correct the name",
        (),
        {"topic": "no-such-topic", "kafka__max__block__ms": "1500"},
    ),
    "a_key_serializer": (
        "kafka option 'key.serializer' is not supported",
        "",
        (),
        {**T, "kafka__key__serializer": "foo"},
    ),
}

BATCHES_REFUSED: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "a_null_topic": ("", "contains a null topic", "cast(null as string) as topic, '1' as value", {}),
    "a_value_in_capitals": ("required attribute 'value' not found", "", "'1' as Value", T),
    "headers_of_a_wrong_type": (
        "headers must be a(n) array<struct<key:string,value:binary>>",
        "",
        "'1' as value, array('a') as headers",
        T,
    ),
    "mode_overwrite": ("save mode overwrite not allowed for kafka", "", "'1' as value", {**T, "mode": "overwrite"}),
    "mode_ignore": ("ignore", "", "'1' as value", {**T, "mode": "ignore"}),
    "a_record_that_is_too_large": (
        "",
        "raise them, or write smaller values",
        "repeat('x', 2000000) as value",
        {"topic": "made"},
    ),
    "a_partition_that_does_not_exist": (
        "partition",
        "The topic has no such partition. Correct the column partition",
        "'1' as value, 9 as partition",
        {"topic": "made", "kafka__max__block__ms": "1500"},
    ),
    "a_negative_partition": ("-1", "", "'1' as value, -1 as partition", {"topic": "made"}),
}
"""A text of both errors, a text of ours, the columns, and options.  For the topic ``made``, the test creates one."""


def refused_stream(run: Run, expressions: tuple[str, ...], options: dict[str, Any]) -> None:
    stream(run, *expressions, **options)


def refused_batch(run: Run, columns: str, options: dict[str, str]) -> None:
    made = {"topic": run.topic()} if options.get("topic") == "made" else {}
    run.write(run.spark.sql(f"select {columns}"), **{**options, **made})


def without_servers(run: Run) -> None:
    rows = run.spark.sql("select '1' as value")
    rows.write.format(run.format).option("topic", "t").mode("append").save()


for _name, (_both, _ours, _expressions, _options) in STREAMS_REFUSED.items():
    REFUSED[f"stream_with_{_name}"] = _both, _ours, partial(refused_stream, expressions=_expressions, options=_options)
for _name, (_both, _ours, _columns, _options) in BATCHES_REFUSED.items():
    REFUSED[f"batch_with_{_name}"] = _both, _ours, partial(refused_batch, columns=_columns, options=_options)
REFUSED["batch_without_servers"] = "", "Option 'kafka.bootstrap.servers': it is missing.", without_servers


@pytest.fixture(scope="module")
def found(spark: SparkSession, kafka: Kafka) -> dict[str, dict[str, Any]]:
    """Return the records or the error of both sinks in each scenario."""
    return outcomes(spark, kafka, {**AGREE, **{name: scenario for name, (*_, scenario) in REFUSED.items()}})


@pytest.mark.parametrize("name", AGREE)
def test_the_same_records_are_written(found: dict[str, dict[str, Any]], name: str) -> None:
    builtin, ours = found[name][BUILT_IN], found[name][OURS]
    assert "error" not in builtin, builtin
    assert ours == builtin


@pytest.mark.parametrize("name", REFUSED)
def test_the_same_writes_fail(found: dict[str, dict[str, Any]], name: str) -> None:
    builtin, ours = found[name][BUILT_IN]["error"], found[name][OURS]["error"]
    of_both, of_ours, _ = REFUSED[name]
    assert of_both in builtin.lower()
    assert of_both in ours.lower()
    assert of_ours in ours
