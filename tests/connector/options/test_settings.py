"""Options: which ones are valid, which ones are refused, and the message of the refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafka_group.columns.schema import COLUMNS, DEFAULT_COLUMNS
from pyspark_kafka_group.coordinator.settings import CommitMode
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.start_inputs import NoMatch, StartingOffset
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.settings import Settings, parse
from pyspark_kafka_group.options.table import OPTIONS

REQUIRED = {"kafka.bootstrap.servers": "broker:9092", "kafka.group.id": "etl", "subscribe": "orders,payments"}


ORDERS = TopicPartition("orders", 0)


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


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, "subscribe"),
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"subscribe": "t", "subscribePattern": "t.*"}, "subscribePattern"),
        ({"assign": ""}, "assign"),
        ({"subscribe": "t", "minPartitions": "0"}, "minPartitions"),
        ({"subscribe": "t"}, "kafka.bootstrap.servers"),
    ],
)
def test_what_is_given_is_looked_at_before_what_is_missing(options: dict[str, str], wrong: str) -> None:
    """Spark's own test suites pass a bad option alone, without the address of a cluster."""
    with pytest.raises(OptionError) as raised:
        parse(options)
    assert raised.value.option == wrong


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
        ({"maxBytesPerTrigger": "1g"}, "Option 'maxBytesPerTrigger': there is no limit in bytes. The source"),
        ({"provider": "kafka-group", "option.subscribe": "a"}, "Option 'provider': Spark adds it for CREATE TABLE."),
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
        ({"kafka.max.poll.interval.ms": "1"}, "Option 'drainTimeoutMs': 1 ms is not below"),
        ({"kafka.max.poll.interval.ms": "0"}, "0 is out of range. Write a number of milliseconds from 1 to 86400000."),
        (
            {"kafka.group.protocol": "consumer", "kafka.session.timeout.ms": "9000"},
            "Option 'kafka.session.timeout.ms': the broker decides this under kafka.group.protocol=consumer.",
        ),
        ({"kafka.group.instance.id": ""}, "Option 'kafka.group.instance.id': it is blank. Write a name of this query"),
        ({"kafka.group.instance.id": " "}, "Option 'kafka.group.instance.id': it is blank."),
        # Regression: these ended with errors of Python that name no option.
        ({"kafka.client.rack": "r\ud800"}, "Option 'kafka.client.rack': it contains half of a surrogate pair"),
        (
            {"kafka.default.topic.config": "x"},
            "Option 'kafka.default.topic.config': it cannot be set: it has no form as",
        ),
        ({"subscribe": "r\ud800"}, "Option 'subscribe': it contains half of a surrogate pair"),
        ({"kafka.group.id": "g" * 40_000}, "Option 'kafka.group.id': it has more than 30000 bytes. Write a shorter"),
        ({"kafka.session.timeout.ms": "1" * 5000}, "Option 'kafka.session.timeout.ms': 11111111111111111111 is out of"),
        ({"subscribe": "o" * 250}, "Option 'subscribe': 'ooooo"),
        ({"kafka.topic.metadata.refresh.interval.ms": "30s"}, "'30s' is not a whole number."),
        ({"kafka.topic.metadata.refresh.interval.ms": "-1"}, "'-1' is not a whole number."),
        ({"kafka.max.partition.fetch.bytes": "1MB"}, "Option 'kafka.max.partition.fetch.bytes': '1MB' is not a whole"),
        ({"kafka.max.partition.fetch.bytes": "3000000000"}, "3000000000 is out of range."),
        ({"kafka.queued.max.messages.kbytes": "0"}, "0 is out of range."),
        ({"startingOffsets": "committed"}, "A stream resumes at the committed offsets anyway. Remove it."),
        ({"maxOffsetsPerTrigger": "1_000"}, "'1_000' is not a positive whole number."),
        ({"subscribe": None, "subscribePattern": "a{99999999999}"}, "is not a regular expression"),
        ({"Subscribe": "payments"}, "it is given twice, with different values."),
        (
            {"kafka.max.poll.interval.ms": "60000", "drainTimeoutMs": "60000"},
            "Option 'drainTimeoutMs': 60000 ms is not below kafka.max.poll.interval.ms (60000 ms), after which the "
            "group removes the member. Lower drainTimeoutMs or raise kafka.max.poll.interval.ms.",
        ),
        (
            {"kafka.session.timeout.ms": "600000"},
            "Option 'kafka.session.timeout.ms': 600000 ms is above kafka.max.poll.interval.ms (300000 ms), and the "
            "Kafka client allows no longer session. Lower it, or raise kafka.max.poll.interval.ms.",
        ),
        (
            {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "6000"},
            "Option 'kafka.heartbeat.interval.ms': 6000 ms is not below kafka.session.timeout.ms (6000 ms), after "
            "which the group removes the member. Lower it to a third of kafka.session.timeout.ms, or remove it.",
        ),
        ({"kafka.max.poll.interval.ms": "9000", "kafka.heartbeat.interval.ms": "9000"}, "timeout.ms (9000 ms), after"),
        ({"kafka.sasl.jaas.config": "secret"}, "use kafka.sasl.username and kafka.sasl.password."),
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
    """Regression: the source refused kafka.max.poll.interval.ms=60000 because of the default drainTimeoutMs."""
    group = settings(**{"kafka.max.poll.interval.ms": str(interval_ms)}).group
    assert group.drain_timeout_s == drain_timeout_ms / 1000


@pytest.mark.parametrize("key", ["session.timeout.ms", "heartbeat.interval.ms"])
def test_without_a_member_its_times_do_not_matter(key: str) -> None:
    settings(subscribe=None, assign='{"orders": [0]}', **{f"kafka.{key}": "600000"})


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


def test_the_first_of_the_starts_decides_as_in_sparks_own_source() -> None:
    by_time = {"startingOffsetsByTimestamp": '{"orders": {"0": 5}}'}
    offsets = {"startingOffsets": '{"orders": {"0": 7}, "payments": "latest"}'}
    start = settings(startingTimestamp="3", **by_time, **offsets).group.start
    assert (start.time_ms, start.times_ms, start.explicit, start.topics) == (3, {}, {}, {})
    start = settings(**by_time, **offsets).group.start
    assert (start.time_ms, start.times_ms, start.explicit) == (None, {ORDERS: 5}, {})
    assert start.default is StartingOffset.EARLIEST
    start = settings(**offsets).group.start
    assert (start.explicit, start.topics) == ({ORDERS: 7}, {"payments": StartingOffset.LATEST})
    assert start.no_match is NoMatch.ERROR
    assert settings(startingOffsetsByTimestampStrategy="LATEST").group.start.no_match is NoMatch.LATEST


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"startingOffsetsByTimestamp": '{"x": {"0": 1}}'},
            "'startingOffsetsByTimestamp': it names a topic that is not",
        ),
        ({"startingOffsets": '{"x": "latest"}'}, "it names a topic that is not in subscribe: x."),
        ({"assign": '{"orders": [0]}'}, "Option 'assign': it is given together with subscribe. Remove one of the two."),
        (
            {"subscribe": None, "assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"1": 4}}'},
            "Option 'startingOffsets': it names a partition that is not in assign: orders-1.",
        ),
        (
            {"subscribe": None, "assign": '{"orders": [0]}', "startingOffsets": '{"x": "latest"}'},
            "it names a topic that is not in assign: x.",
        ),
        (
            {"subscribe": None, "assign": '{"orders": [0]}', "commitMode": "transaction"},
            "Option 'commitMode': it is transaction, but with assign there is no member",
        ),
        ({"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"}, "20 is higher than maxOffsetsPerTrigger (15)."),
        ({"EndingTimestamp": "1"}, "Option 'endingTimestamp': it is not supported with streaming"),
        ({"kafka.group.id": None}, "Or add groupIdPrefix, to give the query its own group."),
        ({"fetchOffset.numRetries": "-1"}, "'-1' is not a whole number."),
    ],
)
def test_what_does_not_fit_together(given: dict[str, str | None], expected: str) -> None:
    assert expected in refusal(**given)


def test_partitions_that_are_given() -> None:
    given = {"subscribe": None, "assign": '{"orders": [1, 0], "a": [3]}'}
    group = settings(**given).group
    assert group.partitions == (TopicPartition("a", 3), ORDERS, TopicPartition("orders", 1))
    assert group.topics == ("a", "orders")
    assert group.commit_mode is CommitMode.PLAIN
    assert group.commits
    assert not group.start.keeps_offsets, "the checkpoint decides"
    assert not group.leaves_with_a_request
    assert group.for_query("q").group_id == "etl"
    assert not settings(**{**given, "kafka.group.id": None}).group.commits


def test_a_partition_that_does_not_exist_is_refused() -> None:
    group = settings(subscribe=None, assign='{"orders": [0, 4]}').group
    assert group.partitions_of({"orders": 5}) == [ORDERS, TopicPartition("orders", 4)]
    with pytest.raises(OptionError, match=r"the topic 'orders' has no partition 4: it has 4, counted from 0\."):
        group.partitions_of({"orders": 4})


def test_a_group_of_the_querys_own_has_its_name_from_the_query() -> None:
    group = settings(**{"kafka.group.id": None, "groupIdPrefix": "etl"}).group.for_query("q")
    assert (group.group_id, group.start.group_id) == ("etl-q", "etl-q")
    assert group.for_query("another").group_id == "etl-q"
    assert settings(groupIdPrefix="mine").group.for_query("q").group_id == "etl", "it is ignored"


@pytest.mark.parametrize("splits", ["minPartitions", "maxRecordsPerPartition"])
def test_ranges_share_no_task_where_the_user_says_how_to_split(splits: str) -> None:
    assert settings().sizes.min_records == 10_000
    assert settings(**{splits: "7"}).sizes.min_records == 1
    assert settings(**{splits: "7", "minRecordsPerTask": "5"}).sizes.min_records == 5


def test_how_long_a_batch_waits() -> None:
    assert (settings().min_offsets_per_trigger, settings().max_trigger_delay_s) == (None, 900)
    waits = settings(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5", maxTriggerDelay="90s")
    assert (waits.min_offsets_per_trigger, waits.max_trigger_delay_s) == (5, 90)


@pytest.mark.parametrize("name", [o.name for o in OPTIONS if o.form.text.startswith("duration")])
def test_every_wait_is_written_like_the_others(name: str) -> None:
    """Regression: the source refused drainTimeoutMs=30s, but accepted maxTriggerDelay=30s."""
    (option,) = (option for option in OPTIONS if option.name == name)
    assert [option.value(text) for text in ("30s", "30000", "30 seconds", "0.5m", "30000ms")] == [30_000] * 5


def test_no_wait_has_a_parser_of_its_own() -> None:
    waits = {o.name for o in OPTIONS if o.name.endswith(("Ms", "Delay"))}
    assert waits == {o.name for o in OPTIONS if o.form.text.startswith("duration")} != set()
    assert not [o.name for o in OPTIONS if o.form.text == "milliseconds"]


def test_a_drain_timeout_with_a_unit() -> None:
    assert settings(drainTimeoutMs="90s").group.drain_timeout_s == 90
    assert settings(**{"kafkaConsumer.pollTimeoutMs": "1m"}).poll_timeout_s == 60


def test_a_start_of_a_partition_that_does_not_exist_is_refused() -> None:
    by_offset = settings(startingOffsets='{"orders": {"0": 7, "1": -1}}').group
    by_offset.check_starts({"orders": 2})
    with pytest.raises(OptionError, match=r"'startingOffsets': the topic 'orders' has no partition 1: it has 1,"):
        by_offset.check_starts({"orders": 1})
    matched = settings(subscribe=None, subscribePattern="o.*", startingOffsetsByTimestamp='{"old": {"0": 7}}').group
    with pytest.raises(
        OptionError, match=r"ByTimestamp': the topic 'old' has no partition 0: there is no such topic\."
    ):
        matched.check_starts({"orders": 1})
    whole = settings(subscribe=None, subscribePattern="o.*", startingOffsets='{"old": "latest"}').group
    whole.check_starts({"old": 1, "orders": 1})
    with pytest.raises(OptionError, match=r"'startingOffsets': there is no topic 'old'\. Remove it"):
        whole.check_starts({"orders": 1})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 30),
        ({"kafka.metadata.max.age.ms": "1"}, 1),
        ({"kafka.metadata.max.age.ms": "5000"}, 5),
        ({"kafka.metadata.max.age.ms": "300000"}, 30),
        ({"kafka.topic.metadata.refresh.interval.ms": "90000"}, 90),
        ({"kafka.metadata.max.age.ms": "5000", "kafka.topic.metadata.refresh.interval.ms": "90000"}, 5),
        ({"kafka.metadata.max.age.ms": "5000", "kafka.topic.metadata.refresh.interval.ms": "500"}, 0.5),
    ],
)
def test_how_often_to_look_for_topics_and_partitions(given: dict[str, str], seconds: float) -> None:
    assert settings(**given).group.topics_refresh_s == seconds


@pytest.mark.parametrize("method", [{}, {"kafka.sasl.oauthbearer.method": "default"}])
def test_tokens_that_only_a_callback_could_give_are_refused(method: dict[str, str]) -> None:
    """Otherwise librdkafka would open its clients, and wait."""
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER", **method}
    with pytest.raises(OptionError, match=r"kafka\.sasl\.oauthbearer\.method.*for ever.* Write oidc.*provider"):
        parse({**REQUIRED, **login})
    parse({**REQUIRED, **login, "kafka.sasl.oauthbearer.method": "oidc"})


def test_a_service_credential_of_databricks_means_a_token_provider() -> None:
    given = {**REQUIRED, "kafka.bootstrap.servers": "shop.servicebus.windows.net:9093"}
    found = parse({**given, "databricks.serviceCredential": "shop", "databricks.serviceCredential.scope": "s"})
    properties = found.group.properties
    assert properties["sasl.oauthbearer.provider"] == "databricks:shop"
    assert properties["sasl.oauthbearer.config"] == "scope=s"
    twice = {"databricks.serviceCredential": "shop", "kafka.sasl.oauthbearer.provider": "google"}
    with pytest.raises(OptionError, match=r"databricks\.servicecredential.*given together with kafka\.sasl"):
        parse({**given, **twice})


@pytest.mark.parametrize("name", ["größe", "a\tb", "a\x7f"])
@pytest.mark.parametrize("option", ["kafka.group.id", "groupIdPrefix", "kafka.group.instance.id", "kafka.client.id"])
def test_names_that_no_transaction_can_commit_are_refused(option: str, name: str) -> None:
    """Regression: the query read nothing for ever, and warned every 10 s that the commit had failed."""
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "kafka.group.id": "g", option: name}
    if option == "groupIdPrefix":
        del given["kafka.group.id"]
    with pytest.raises(
        OptionError, match=r"other than printable ASCII.*or \.option\('commitMode', 'plain'\)"
    ) as refused:
        parse(given)
    assert refused.value.option == option
    parse({**given, "commitMode": "plain"})
    parse({**{key: value for key, value in given.items() if key != "subscribe"}, "assign": '{"t": [0]}'})
    parse({**given, option: "orders etl~"})


def test_the_consumer_protocol_makes_ids_of_members_itself() -> None:
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "kafka.group.id": "g", "kafka.client.id": "größe"}
    parse({**given, "kafka.group.protocol": "consumer"})
