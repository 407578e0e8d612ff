"""The options of a write, and the configuration of its producers."""

from __future__ import annotations

import confluent_kafka
import pytest

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.writing.options import FEWER_ROWS, Delivery, parse_write_options
from pyspark_kafka_group.writing.producer_properties import PROPERTIES, producer_config

REQUIRED = {"kafka.bootstrap.servers": "b:9092"}

DEFAULTS = {
    "bootstrap.servers": "b:9092",
    "partitioner": "murmur2_random",
    "enable.idempotence": "true",
    "acks": "all",
    "message.timeout.ms": "120000",
    "topic.metadata.propagation.max.ms": "5000",
    "queue.buffering.max.kbytes": "65536",
    "message.max.bytes": "1048576",
    "transaction.timeout.ms": "900000",
    "linger.ms": "5",
    "client.id": "kafka-group-sink",
    "enable.metrics.push": "false",
    "delivery.report.only.error": "true",
}


def config(**options: str) -> dict[str, str]:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return producer_config(parse_write_options({**REQUIRED, **given}).properties)


def test_the_whole_configuration_of_a_producer() -> None:
    assert config() == DEFAULTS


def test_librdkafka_takes_it() -> None:
    del_report = {**config(), "delivery.report.only.error": True}
    confluent_kafka.Producer({**del_report, "log_level": 0})


def test_javas_names_are_understood() -> None:
    found = config(
        kafka__max__block__ms="5000",
        kafka__delivery__timeout__ms="9000",
        kafka__buffer__memory="16384",
        kafka__max__request__size="2000000",
        kafka__compression__type="lz4",
    )
    assert found == {
        **DEFAULTS,
        "topic.metadata.propagation.max.ms": "5000",
        "message.timeout.ms": "9000",
        "queue.buffering.max.kbytes": "16",
        "message.max.bytes": "2000000",
        "compression.type": "lz4",
    }


@pytest.mark.parametrize(("acks", "idempotence"), [("1", "false"), ("-1", "true"), ("ALL", "true")])
def test_fewer_acks_turn_idempotence_off(acks: str, idempotence: str) -> None:
    assert config(kafka__acks=acks)["enable.idempotence"] == idempotence


def test_a_record_may_not_take_longer_than_its_transaction() -> None:
    """librdkafka refuses a producer with such a configuration."""
    found = config(kafka__transaction__timeout__ms="60000")
    assert found["message.timeout.ms"] == "60000"
    confluent_kafka.Producer({**found, "delivery.report.only.error": True, "transactional.id": "x", "log_level": 0})
    assert config(kafka__transaction__timeout__ms="600000")["message.timeout.ms"] == "120000"
    both = config(kafka__transaction__timeout__ms="60000", kafka__delivery__timeout__ms="30000")
    assert both["message.timeout.ms"] == "30000"


def test_options_are_parsed() -> None:
    of_spark = {
        "checkpointLocation": "/c",
        "queryName": "q",
        "asyncProgressTrackingEnabled": "false",
        "asyncProgressTrackingCheckpointIntervalMs": "1000",
    }
    found = parse_write_options(
        {"KAFKA.bootstrap.servers": "b", "topic": " t ", "DELIVERY": "Exactly-Once", **of_spark}
    )
    assert (found.topic, found.delivery) == ("t", Delivery.EXACTLY_ONCE)
    assert dict(found.properties) == {"bootstrap.servers": "b"}
    assert (found.transactional_id_prefix, found.accept_batch) == ("kafka-group-sink-", None)
    defaults = parse_write_options(REQUIRED)
    assert (defaults.topic, defaults.transaction_timeout_s) == (None, 900)
    once = {**REQUIRED, "delivery": "exactly-once", "kafka.transaction.timeout.ms": "5000"}
    found = parse_write_options({**once, "transactionalIdPrefix": "a-", "acceptBatch": " 12 "})
    assert (found.transactional_id_prefix, found.accept_batch, found.transaction_timeout_s) == ("a-", 12, 5)
    assert parse_write_options({**once, "acceptBatch": "fewerrows"}).accept_batch == FEWER_ROWS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kafka.bootstrap.servers": " "}, "'kafka.bootstrap.servers': it is empty."),
        ({"acceptBatch": "-1"}, "'acceptBatch': '-1' is neither the number of a batch nor fewerRows."),
        ({"transactionalIdPrefix": " "}, "'transactionalIdPrefix': it is empty."),
        (
            {"transactionalIdPrefix": "a-"},
            "'transactionalIdPrefix': it changes nothing without delivery=exactly-once. Set delivery=exactly-once, or",
        ),
        (
            {"acceptBatch": "1", "delivery": "at-least-once"},
            "'acceptBatch': it changes nothing without delivery=exactly-once.",
        ),
        (
            {"delivery": "exactly-once", "kafka.delivery.timeout.ms": "900001"},
            "'kafka.delivery.timeout.ms': 900001 ms is more than kafka.transaction.timeout.ms (900000 ms), after which",
        ),
        (
            {"delivery": "exactly-once", "kafka.message.timeout.ms": "9", "kafka.transaction.timeout.ms": "8"},
            "'kafka.message.timeout.ms': 9 ms is more than kafka.transaction.timeout.ms (8 ms), after which the broker "
            "aborts the transaction of the record. Lower it, or raise kafka.transaction.timeout.ms.",
        ),
        ({"topic": ""}, "'topic': it is empty."),
        ({"topics": "t"}, "'topics': it is not an option of this sink. Did you mean 'topic'?"),
        ({"subscribe": "t"}, "'subscribe': it is not an option of this sink."),
        ({"delivery": "twice"}, "'delivery': 'twice' is not a kind of delivery. Write at-least-once or exactly-once."),
        ({"includeHeaders": "yes"}, "'includeHeaders': 'yes' is neither true nor false."),
        ({"kafka.key.serializer": "x"}, "Kafka option 'key.serializer' is not supported"),
        ({"kafka.value.serializer": "x"}, "Kafka option 'value.serializer' is not supported"),
        ({"kafka.transactional.id": "x"}, "set delivery=exactly-once"),
        ({"kafka.partitioner.class": "x"}, "Use kafka.partitioner"),
        ({"kafka.delivery.report.only.error": "false"}, "'kafka.delivery.report.only.error': it cannot be set"),
        ({"kafka.max.block.ms": "5s"}, "'kafka.max.block.ms': '5s' is not a whole number."),
        ({"kafka.max.block.ms": "5", "kafka.topic.metadata.propagation.max.ms": "5"}, "Remove one."),
        (
            {"delivery": "exactly-once", "kafka.acks": "1"},
            "'kafka.acks': delivery=exactly-once does not work with '1'.",
        ),
        ({"delivery": "exactly-once", "kafka.enable.idempotence": "false"}, "does not work with 'false'"),
    ],
)
def test_what_does_not_work_names_the_option_and_the_remedy(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_write_options({**REQUIRED, **options})
    assert text in str(raised.value)


@pytest.mark.parametrize("delivery", [{"delivery": "exactly-once"}, {}], ids=["exactly once", "at least once"])
def test_delivery_may_take_as_long_as_the_transaction_if_there_is_one(delivery: dict[str, str]) -> None:
    parse_write_options({**REQUIRED, **delivery, "kafka.delivery.timeout.ms": "900000"})
    for least in ("0", "900001"):
        parse_write_options({**REQUIRED, "kafka.delivery.timeout.ms": least})
        with pytest.raises(OptionError, match=r"is more than kafka\.transaction\.timeout\.ms"):
            parse_write_options({**REQUIRED, "delivery": "exactly-once", "kafka.delivery.timeout.ms": least})


@pytest.mark.usefixtures("references_allowed")
@pytest.mark.parametrize("delivery", [{"delivery": "exactly-once"}, {}], ids=["exactly once", "at least once"])
def test_addresses_that_no_client_can_use_are_refused_before_the_first_task(delivery: dict[str, str]) -> None:
    """Regression: librdkafka tried for two minutes, and then no broker was configured."""
    for servers in ("INTERNAL://broker:9092", "broker:9092:1", "broker:http", ","):
        with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers'"):
            parse_write_options({**REQUIRED, **delivery, "kafka.bootstrap.servers": servers})
    parse_write_options({**REQUIRED, "kafka.bootstrap.servers": "${env:BROKERS}"})
    parse_write_options({**REQUIRED, "kafka.bootstrap.servers": "SSL://b:1, SSL://c", "kafka.security.protocol": "ssl"})


def test_passwords_are_not_shown() -> None:
    assert "hunter2" not in repr(parse_write_options({**REQUIRED, "kafka.sasl.password": "hunter2"}))


def test_a_missing_server_is_told() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers': it is missing"):
        parse_write_options({"topic": "t"})


def test_each_property_has_one_row() -> None:
    keys = [row.key for row in PROPERTIES]
    assert len(keys) == len(set(keys))
