"""The mock cluster: supported features, refused ones, and faults."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
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


def produce(kafka: MockKafka, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for i in range(count):
        producer.produce(topic, str(i), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def test_it_has_as_many_brokers_as_asked_for_on_loopback(mock: MockKafka) -> None:
    servers = mock.bootstrap_servers.split(",")
    assert {server.split(":")[0] for server in servers} == {"127.0.0.1"}
    assert sorted(admin(mock).list_topics(timeout=TIMEOUT_S).brokers) == [1, 2, 3]


def test_topics_have_the_partitions_asked_for(mock: MockKafka) -> None:
    mock.create_topic("one")
    mock.create_topic("seven", 7, replication_factor=3)
    topics = admin(mock).list_topics(timeout=TIMEOUT_S).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"one": 1, "seven": 7}
    assert len(topics["seven"].partitions[0].replicas) == 3


def test_records_are_read_back(mock: MockKafka) -> None:
    mock.create_topic("t")
    produce(mock, "t", 10)
    reader = consumer(mock)
    reader.assign([TopicPartition("t", 0, 4)])
    messages = reader.consume(6, TIMEOUT_S)
    assert [message.value() for message in messages] == [str(i).encode() for i in range(4, 10)]
    reader.close()


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


def test_records_with_a_key_have_one_partition(mock: MockKafka) -> None:
    mock.create_topic("t", 4)
    mock.produce("t", (("customer", str(n)) for n in range(25_000)))
    found = mock.read("t")
    assert [record.value for record in found] == [str(n).encode() for n in range(25_000)]
    assert len({record.partition for record in found}) == 1


def test_keys_go_where_javas_producer_puts_them(mock: MockKafka) -> None:
    """Regression: librdkafka's own partitioner chose, so a pipeline and its test had keys in different partitions."""
    mock.create_topic("t", 7)
    mock.produce("t", [(key, "v") for key in MURMUR2])
    found = {record.key: record.partition for record in mock.read("t")}
    assert found == {key: (value & 0x7FFFFFFF) % 7 for key, value in MURMUR2.items()}


def test_an_empty_topic_has_no_records(mock: MockKafka) -> None:
    mock.create_topic("t", 2)
    mock.produce("t", [])
    assert mock.read("t") == []


def test_records_below_the_beginning_of_the_log_are_not_missed(mock: MockKafka) -> None:
    mock.create_topic("t")
    mock.produce("t", ["a", "b", "c"])
    mock.delete_records("t", 0, 2)
    assert [record.value for record in mock.read("t")] == [b"c"]


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
    produce(mock, "t", 1)
    member = consumer(mock, **{"group.protocol": protocol})
    member.subscribe(["t"])
    message = member.poll(2.5)  # the brokers' default delay for a new group is 3 s
    assert message is not None
    assert message.error() is None
    member.close()


def test_a_killed_broker_is_unreachable_until_it_is_restarted() -> None:
    with MockKafka(1) as mock:
        mock.create_topic("t")
        mock.kill(1)
        with pytest.raises(KafkaException):
            admin(mock).list_topics(timeout=0.3)
        mock.restart(1)
        assert "t" in admin(mock).list_topics(timeout=TIMEOUT_S).topics


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


def test_a_round_trip_delays_answers() -> None:
    with MockKafka(1) as mock:
        mock.create_topic("t")
        client = admin(mock)
        client.list_topics(timeout=TIMEOUT_S)
        mock.set_round_trip_ms(1, 60_000)
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.3)


def test_deleted_records_are_out_of_reach(mock: MockKafka) -> None:
    mock.create_topic("t")
    produce(mock, "t", 10)
    mock.delete_records("t", 0, 4)
    client = consumer(mock)
    assert client.get_watermark_offsets(TopicPartition("t", 0), timeout=TIMEOUT_S) == (4, 10)
    client.close()


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
