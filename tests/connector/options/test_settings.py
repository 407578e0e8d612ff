"""Options: what is accepted, what is refused, and how the refusal reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafka_group.columns.schema import COLUMNS, DEFAULT_COLUMNS
from pyspark_kafka_group.coordinator.settings import CommitMode
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.start_inputs import StartingOffset
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.settings import Settings, parse
from pyspark_kafka_group.options.table import OPTIONS

REQUIRED = {"kafka.bootstrap.servers": "broker:9092", "kafka.group.id": "etl", "subscribe": "orders,payments"}


def settings(**more: str | None) -> Settings:
    return parse({key: value for key, value in {**REQUIRED, **more}.items() if value is not None})


def refusal(**more: str | None) -> str:
    with pytest.raises(OptionError) as raised:
        settings(**more)
    return str(raised.value)


def test_the_defaults() -> None:
    parsed = settings()
    assert parsed.group.topics == ("orders", "payments")
    assert parsed.group.commit_mode is CommitMode.TRANSACTION
    assert parsed.group.start.default is StartingOffset.LATEST
    assert parsed.group.start.fail_on_data_loss
    assert parsed.group.read_committed
    assert parsed.group.drain_timeout_s == 120
    assert parsed.columns == DEFAULT_COLUMNS
    assert parsed.max_offsets_per_trigger is None
    assert parsed.event_log is None
    assert parsed.checkpoint is None
    assert parsed.client_id == "kafka-group"


def test_keys_are_matched_without_case_as_spark_lowers_them() -> None:
    assert settings(MAXOFFSETSPERTRIGGER="7").max_offsets_per_trigger == 7
    assert settings(maxoffsetspertrigger="7").max_offsets_per_trigger == 7


def test_kafka_properties_pass_without_their_prefix() -> None:
    properties = settings(**{"kafka.security.protocol": "SSL", "kafka.client.id": "orders-etl"}).group.properties
    assert properties["security.protocol"] == "SSL"
    assert settings(**{"kafka.client.id": "orders-etl"}).client_id == "orders-etl"


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_missing_option_is_named_with_its_meaning(missing: str) -> None:
    with pytest.raises(OptionError, match="it is missing") as raised:
        parse({key: value for key, value in REQUIRED.items() if key != missing})
    assert raised.value.option == missing
    assert f".option({missing!r}, ...)" in str(raised.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": " , "}, "Option 'subscribe': it names no topic."),
        (
            {"columns": "value,payload"},
            "Option 'columns': 'payload' is not a column of this source. Write some of key, value, topic, partition, "
            "offset, timestamp, timestampType, headers, separated by commas.",
        ),
        ({"columns": " , "}, "Option 'columns': it names no column. Write some of key,"),
        ({"includeHeaders": "yes"}, "Option 'includeHeaders': 'yes' is neither true nor false. Write true or false."),
        ({"maxOffsetsPerTrigger": "0"}, "Option 'maxOffsetsPerTrigger': '0' is not a positive whole number."),
        ({"maxOffsetsPerTrigger": "many"}, "'many' is not a positive whole number. Write a number such as 10000."),
        ({"commitMode": "sync"}, "Option 'commitMode': 'sync' is not a commit mode. Write transaction or plain."),
        ({"startingOffsets": "first"}, "Option 'startingOffsets': it is neither earliest, latest, nor JSON"),
        ({"startingOffsets": "[1]"}, "Option 'startingOffsets': the JSON is not an object of objects."),
        ({"startingOffsets": '{"orders": {"x": 1}}'}, "'x' is not a partition number of topic 'orders'."),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "-3 is not an offset ('orders', 0)."),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "True is not an offset ('orders', 0)."),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "it names a topic that is not in subscribe: other."),
        ({"failOnDatLoss": "true"}, "Option 'failondatloss': it is not an option of this source. Did you mean 'failOn"),
        ({"bootstrap.servers": "x"}, "Write kafka.bootstrap.servers for a Kafka property."),
        ({"sasl.username": "x"}, "Write kafka.sasl.username for a Kafka property."),
        ({"subscribePattern": "o.*"}, "Option 'subscribePattern': it is given together with subscribe."),
        ({"subscribe": None, "subscribePattern": "o("}, "Option 'subscribePattern': 'o(' is not a regular expression"),
        (
            {"subscribe": None, "subscribePattern": "o.*", "startingOffsets": '{"orders": {"0": 1}, "x": {"0": 1}}'},
            "it names a topic that is not matched by subscribePattern: x.",
        ),
        (
            {"kafka.group.protocol": "eager"},
            "group.protocol': it cannot be 'eager'. Write classic or consumer.",
        ),
        (
            {"kafka.isolation.level": "none"},
            "it cannot be 'none'. Write read_committed or read_uncommitted.",
        ),
        ({"kafka.max.poll.interval.ms": "soon"}, "Option 'kafka.max.poll.interval.ms': 'soon' is not a whole number."),
        ({"kafka.max.poll.interval.ms": "0"}, "Option 'drainTimeoutMs': 1 ms is not below"),
        (
            {"kafka.max.poll.interval.ms": "60000", "drainTimeoutMs": "60000"},
            "Option 'drainTimeoutMs': 60000 ms is not below kafka.max.poll.interval.ms (60000 ms), after which the "
            "group throws the member out. Lower drainTimeoutMs or raise kafka.max.poll.interval.ms.",
        ),
        ({"kafka.sasl.jaas.config": "secret"}, "Use kafka.sasl.username and kafka.sasl.password."),
    ],
)
def test_what_is_wrong_and_what_to_write(given: dict[str, str | None], expected: str) -> None:
    assert expected in refusal(**given)


@pytest.mark.parametrize(
    ("interval_ms", "drain_timeout_ms"),
    [(600_000, 120_000), (130_000, 120_000), (120_000, 110_000), (60_000, 50_000), (15_000, 10_000), (1000, 667)],
)
def test_drain_timeout_stays_below_a_max_poll_interval_that_is_set_alone(
    interval_ms: int, drain_timeout_ms: int
) -> None:
    """Regression: kafka.max.poll.interval.ms=60000 was refused, for a drainTimeoutMs that nobody had set."""
    group = settings(**{"kafka.max.poll.interval.ms": str(interval_ms)}).group
    assert group.drain_timeout_s == drain_timeout_ms / 1000


def test_drain_timeout_that_is_set_is_left_alone() -> None:
    given = {"kafka.max.poll.interval.ms": "60000", "drainTimeoutMs": "59999"}
    assert settings(**given).group.drain_timeout_s == 59.999


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "range,cooperative-sticky"])
def test_eager_assignors_are_refused(strategy: str) -> None:
    text = refusal(**{"kafka.partition.assignment.strategy": strategy})
    assert text.startswith("Option 'kafka.partition.assignment.strategy': it cannot be set")
    assert "cooperative-sticky" in text


def test_what_says_the_same_as_the_source_is_accepted() -> None:
    settings(**{"kafka.enable.auto.commit": "false", "kafka.partition.assignment.strategy": "cooperative-sticky"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"includeHeaders": "true"}, COLUMNS),
        ({"columns": "offset, VALUE,offset"}, ("value", "offset")),
        ({"columns": "timestamptype,headers"}, ("timestampType", "headers")),
        ({"columns": "value", "includeHeaders": "true"}, ("value", "headers")),
    ],
)
def test_columns_come_once_in_the_order_of_the_schema(given: dict[str, str], expected: tuple[str, ...]) -> None:
    assert settings(**given).columns == expected


def test_a_pattern_takes_the_place_of_topics() -> None:
    group = settings(subscribe=None, subscribePattern="orders-.*").group
    assert (group.topics, group.pattern) == ((), "orders-.*")
    assert settings().group.pattern is None


def test_starting_offsets_as_json() -> None:
    start = settings(startingOffsets='{"orders": {"0": 23, "1": -1, "2": -2}}').group.start
    assert start.default is StartingOffset.EARLIEST
    assert start.explicit == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): StartingOffset.LATEST,
        TopicPartition("orders", 2): StartingOffset.EARLIEST,
    }


def test_a_refused_secret_is_not_repeated() -> None:
    assert "hunter2" not in refusal(**{"kafka.sasl.jaas.config": "password=hunter2"})


def test_settings_do_not_show_secrets() -> None:
    assert "hunter2" not in repr(settings(**{"kafka.sasl.password": "hunter2"}))


def test_every_option_is_documented_in_a_sentence() -> None:
    for option in OPTIONS:
        assert option.doc.endswith("."), option.name
        assert option.doc[0].isupper(), option.name


@pytest.mark.parametrize("text", ["/data/etl", "file:/data/etl", "file:///data/etl", "FILE:///data/etl", " /data/etl "])
def test_a_checkpoint_is_a_path_or_a_file_uri(text: str) -> None:
    assert settings(checkpointLocation=text).checkpoint == Path("/data/etl")


def test_a_checkpoint_is_not_decoded_as_hadoop_does_not() -> None:
    assert settings(checkpointLocation="file:///data/a%20b c").checkpoint == Path("/data/a%20b c")


@pytest.mark.parametrize("text", ["hdfs:///data/etl", "s3a://bucket/etl", "dbfs:/etl"])
def test_a_checkpoint_elsewhere_is_refused_with_the_other_way(text: str) -> None:
    told = refusal(checkpointLocation=text)
    assert "checkpointLocation" in told
    assert "not a path on the driver's machine" in told
    assert "pyspark_kafka_group.register(spark)" in told


@pytest.mark.parametrize("text", ["checkpoint", "file:checkpoint", "file://host/checkpoint"])
def test_a_checkpoint_that_is_not_absolute_is_refused(text: str) -> None:
    assert "not an absolute path" in refusal(checkpointLocation=text)
