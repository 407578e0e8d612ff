"""The mock cluster: supported features, refused ones, and faults."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from pyspark_kafka_group.testing import KafkaTestingError, MockKafka, Record, UnsupportedFaultError
from tests.connector.writing.murmur2 import MURMUR2

TIMEOUT_S = 15.0
PRODUCE, LIST_OFFSETS = 0, 2


@pytest.fixture
def mock() -> Iterator[MockKafka]:
    with MockKafka(3) as kafka:
        yield kafka


def admin(kafka: MockKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})


def consumer(kafka: MockKafka, **settings: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **settings,
        }
    )


def test_it_has_brokers_on_loopback_and_topics_as_asked_for(mock: MockKafka) -> None:
    assert {server.split(":")[0] for server in mock.bootstrap_servers.split(",")} == {"127.0.0.1"}
    mock.create_topic("one")
    mock.create_topic("seven", 7, replication_factor=3)
    found = admin(mock).list_topics(timeout=TIMEOUT_S)
    assert sorted(found.brokers) == [1, 2, 3]
    assert {name: len(topic.partitions) for name, topic in found.topics.items()} == {"one": 1, "seven": 7}
    assert len(found.topics["seven"].partitions[0].replicas) == 3


def test_produce_and_read(mock: MockKafka) -> None:
    mock.create_topic("t", 2)
    mock.produce("t", ["a", b"b", None], partition=1)
    mock.produce("t", [("customer", "c"), (None, "d")], partition=0)
    assert mock.read("t") == [
        Record(0, 0, b"customer", b"c", []),
        Record(0, 1, None, b"d", []),
        Record(1, 0, None, b"a", []),
        Record(1, 1, None, b"b", []),
        Record(1, 2, None, None, []),
    ]


def test_keys_go_where_javas_producer_puts_them(mock: MockKafka) -> None:
    """Regression: librdkafka's own partitioner chose, so a pipeline and its test had keys in different partitions."""
    mock.create_topic("t", 7)
    mock.produce("t", [(key, "v") for key in MURMUR2])
    found = {record.key: record.partition for record in mock.read("t")}
    assert found == {key: (value & 0x7FFFFFFF) % 7 for key, value in MURMUR2.items()}


def test_records_below_the_beginning_of_the_log_are_out_of_reach_and_not_missed(mock: MockKafka) -> None:
    mock.create_topic("t")
    assert mock.read("t") == []
    mock.produce("t", ["a", "b", "c"])
    mock.delete_records("t", 0, 2)
    assert [record.value for record in mock.read("t")] == [b"c"]
    client = consumer(mock)
    assert client.get_watermark_offsets(TopicPartition("t", 0), timeout=TIMEOUT_S) == (2, 3)
    client.close()


def test_a_topic_that_does_not_exist_is_named_and_not_created(mock: MockKafka) -> None:
    for use in (lambda: mock.produce("t", ["a"]), lambda: mock.read("t")):
        with pytest.raises(KafkaTestingError, match=r"topic 't' does not exist: create it with create_topic\(\)"):
            use()


def test_a_record_that_the_broker_refuses_is_an_error(mock: MockKafka) -> None:
    mock.create_topic("t")
    mock.push_errors(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaTestingError, match=r"1 of 1 records were not written to topic 't': .*[Aa]uthorization"):
        mock.produce("t", ["a"])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_new_group_gets_its_assignment_without_delay(mock: MockKafka, protocol: str) -> None:
    mock.create_topic("t")
    mock.produce("t", ["a"])
    member = consumer(mock, **{"group.protocol": protocol})
    member.subscribe(["t"])
    message = member.poll(2.5)  # the brokers' default delay for a new group is 3 s
    assert message is not None
    assert message.error() is None
    member.close()


def test_a_use_of_a_topic_asks_the_brokers_that_are_up(mock: MockKafka) -> None:
    """Regression: with all of them down it waited for 30 s."""
    mock.create_topic("orders")
    second = mock.bootstrap_servers.split(",")[1]
    mock.kill(1)
    mock.kill(3)
    assert mock._answering_servers() == [second]
    assert AdminClient({"bootstrap.servers": second, "log_level": 0}).list_topics(timeout=TIMEOUT_S).topics
    mock.kill(2)
    for use in (lambda: mock.produce("orders", ["a"]), lambda: mock.read("orders")):
        with pytest.raises(KafkaTestingError, match="all brokers are down or paused"):
            use()
    for broker_id in (1, 2, 3):
        mock.restart(broker_id)
    mock.produce("orders", ["a"])
    assert [record.value for record in mock.read("orders")] == [b"a"]


def test_a_broker_that_is_killed_or_slow_is_unreachable() -> None:
    with MockKafka(1) as mock:
        mock.create_topic("t")
        client = admin(mock)
        mock.kill(1)
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.3)
        mock.restart(1)
        assert "t" in client.list_topics(timeout=TIMEOUT_S).topics
        mock.set_round_trip_ms(1, 60_000)
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.3)


def test_pushed_errors_are_answered_once_each(mock: MockKafka) -> None:
    mock.create_topic("t")
    client, end = admin(mock), {TopicPartition("t", 0): OffsetSpec.latest()}

    def end_offset() -> int:
        [future] = client.list_offsets(end).values()
        offset: int = future.result(TIMEOUT_S).offset
        return offset

    # The error is permanent, because the client retries after others.
    mock.push_errors(LIST_OFFSETS, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException) as raised:
        end_offset()
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert end_offset() == 0


def test_what_it_cannot_do_is_said_with_a_remedy(mock: MockKafka) -> None:
    mock.create_topic("t")
    attempts: list[tuple[Callable[[], None], str]] = [
        (lambda: mock.delete_topic("t"), "MockKafka cannot delete topic 't'; use LocalKafka for this test"),
        (lambda: mock.add_partitions("t", 3), "MockKafka cannot raise topic 't' to 3 partitions; use LocalKafka"),
        (lambda: mock.create_topic("u", config={"retention.ms": "1"}), r"cannot apply topic settings \(retention.ms\)"),
        (lambda: mock.pause(1), r"MockKafka cannot pause broker 1; use kill\(\) or set_round_trip_ms\(\)"),
        (lambda: mock.resume(1), r"MockKafka cannot resume broker 1; use restart\(\) or set_round_trip_ms\(\)"),
    ]
    for attempt, text in attempts:
        with pytest.raises(UnsupportedFaultError, match=text):
            attempt()


def test_librdkafkas_refusals_are_passed_on(mock: MockKafka) -> None:
    mock.create_topic("t")
    with pytest.raises(KafkaTestingError, match=r"could not create topic 't': Broker: Topic already exists"):
        mock.create_topic("t")
    with pytest.raises(KafkaTestingError, match="could not take broker 7 down"):
        mock.kill(7)


def test_before_start_and_after_stop_it_says_that_it_is_not_started() -> None:
    mock = MockKafka()
    for _ in range(2):
        with pytest.raises(KafkaTestingError, match="MockKafka is not started"):
            mock.create_topic("t")
        mock.start()
        mock.stop()
        mock.stop()


def test_a_cluster_without_brokers_is_refused() -> None:
    with pytest.raises(ValueError, match="brokers=0"):
        MockKafka(0)
