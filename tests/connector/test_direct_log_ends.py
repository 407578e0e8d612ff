"""Log ends asked of the leaders directly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from pyspark_kafka_group import direct_log_ends
from pyspark_kafka_group.broker_connection import BrokerConnection
from pyspark_kafka_group.direct_log_ends import DirectLogEnds, open_direct_log_ends
from pyspark_kafka_group.kafka_protocol import LIST_OFFSETS, Address, ProtocolError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.testing import MockKafka

MANY = [TopicPartition("orders", n) for n in range(20)]
NOT_LEADER = 6


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockKafka]:
    with MockKafka(brokers=2) as mock:
        mock.create_topic("orders", len(MANY))
        mock.create_topic("refunds", 1)
        yield mock


@pytest.fixture
def produce(kafka: MockKafka) -> Callable[[TopicPartition], None]:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def produce(tp: TopicPartition) -> None:
        producer.produce(tp.topic, b"x", partition=tp.partition)
        assert producer.flush(20) == 0

    return produce


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConnection]:
    """Return the connections that were made, in order."""
    made: list[BrokerConnection] = []
    connect = BrokerConnection.__init__

    def note(connection: BrokerConnection, *args: object, **more: object) -> None:
        connect(connection, *args, **more)  # type: ignore[arg-type]
        made.append(connection)

    monkeypatch.setattr(BrokerConnection, "__init__", note)
    return made


@pytest.fixture
def logs(kafka: MockKafka) -> Iterator[DirectLogEnds]:
    client = open_direct_log_ends({"bootstrap.servers": kafka.bootstrap_servers}, client_id="etl", read_committed=True)
    assert client is not None
    yield client
    client.close()


def test_each_partition_has_its_own_end_whoever_leads_it(
    logs: DirectLogEnds, produce: Callable[[TopicPartition], None], connections: list[BrokerConnection]
) -> None:
    asked = [*MANY, TopicPartition("refunds", 0)]
    before = logs.ends(asked)
    assert before.keys() == set(asked)
    for tp in (MANY[13], MANY[13], MANY[2], asked[-1]):
        produce(tp)
    grown = {MANY[13]: 2, MANY[2]: 1, asked[-1]: 1}
    assert logs.ends(asked) == {tp: end + grown.get(tp, 0) for tp, end in before.items()}
    assert len(connections) == 3, "one for the leaders, and one to each of two brokers"


def test_without_anything_new_the_answer_is_the_same_object(
    logs: DirectLogEnds, produce: Callable[[TopicPartition], None]
) -> None:
    first = logs.ends(MANY)
    copy = dict(first)
    assert logs.ends(MANY) is first
    produce(MANY[0])
    second = logs.ends(MANY)
    assert second is not first
    assert first == copy, "an answer is never changed"
    assert second[MANY[0]] == first[MANY[0]] + 1
    assert logs.ends(MANY) is second


def test_other_partitions_are_another_question(logs: DirectLogEnds, connections: list[BrokerConnection]) -> None:
    assert logs.ends(MANY[:3]).keys() == set(MANY[:3])
    known = len(connections)
    assert logs.ends(MANY[1:4]).keys() == set(MANY[1:4])
    assert len(connections) <= known + 2, "those to the leaders are kept"


def test_a_connection_that_was_closed_meanwhile_is_made_anew(
    logs: DirectLogEnds, connections: list[BrokerConnection]
) -> None:
    before = logs.ends(MANY)
    for connection in connections:
        connection.interrupt()
    assert logs.ends(MANY) == before


def test_a_login_that_ends_is_renewed(logs: DirectLogEnds, connections: list[BrokerConnection]) -> None:
    first = logs.ends(MANY)
    known = len(connections)
    connections[-1].good_until = 0.0
    assert logs.ends(MANY) is first
    assert len(connections) == known + 2, "to ask for the leaders, and to that broker"


def test_leaders_are_looked_for_from_time_to_time(
    logs: DirectLogEnds, connections: list[BrokerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is cut off from the other brokers goes on saying that nothing is new."""
    first = logs.ends(MANY)
    known = len(connections)
    monkeypatch.setattr(direct_log_ends, "_LEADERS_S", 0.0)
    assert logs.ends(MANY) is first, "nothing is new"
    assert len(connections) == known + 1, "to ask for the leaders"


def test_a_connection_is_closed_when_its_broker_is_not_asked_any_more(
    logs: DirectLogEnds, connections: list[BrokerConnection]
) -> None:
    """It would be closed by the broker some time, and then be in the way."""
    logs.ends(MANY)
    logs.ends(MANY[:1])
    assert sum(connection._socket.fileno() >= 0 for connection in connections) == 1
    assert logs.ends(MANY).keys() == set(MANY)


def test_after_closing_nothing_is_known(logs: DirectLogEnds) -> None:
    logs.ends(MANY)
    logs.close()
    assert logs.ends([]) == {}
    assert logs.ends(MANY).keys() == set(MANY)


def test_finding_leaders_is_not_waited_for_for_ever(logs: DirectLogEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolving a name may take a minute."""
    release = threading.Event()
    monkeypatch.setattr(direct_log_ends, "_PREPARE_S", 0.1)
    monkeypatch.setattr(direct_log_ends, "find_leaders", lambda *_: release.wait(20))
    try:
        with pytest.raises(TimeoutError):
            logs.ends(MANY)
    finally:
        release.set()


def test_a_leader_that_cannot_be_reached_while_looking_again_is_an_error(
    logs: DirectLogEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not half of an answer the next time."""
    before = logs.ends(MANY)
    monkeypatch.setattr(direct_log_ends, "find_leaders", lambda *_: dict.fromkeys(MANY, Address("127.0.0.1", 1)))
    logs._prepared_at = 0.0  # long ago
    for _ in range(2):
        with pytest.raises(OSError, match="refused"):
            logs.ends(MANY)
    monkeypatch.undo()
    assert logs.ends(MANY) == before


def test_a_leader_that_has_moved_is_looked_for(kafka: MockKafka, logs: DirectLogEnds) -> None:
    before = logs.ends(MANY)
    kafka.push_errors(LIST_OFFSETS, NOT_LEADER)
    assert logs.ends(MANY) == before


def test_errors_that_stay_are_librdkafkas_to_explain(kafka: MockKafka, logs: DirectLogEnds) -> None:
    logs.ends(MANY)
    kafka.push_errors(LIST_OFFSETS, *[NOT_LEADER] * 4)
    with pytest.raises(ProtocolError, match="error 6"):
        logs.ends(MANY)
    kafka.push_errors(LIST_OFFSETS)
    with pytest.raises(ProtocolError, match="has no leader"):
        logs.ends([TopicPartition("nowhere", 0)])


def test_a_broker_that_cannot_be_reached_is_an_error() -> None:
    logs = open_direct_log_ends({"bootstrap.servers": "127.0.0.1:1"}, client_id="etl", read_committed=True)
    assert logs is not None
    with pytest.raises(OSError, match="refused"):
        logs.ends(MANY)
    logs.close()


def test_a_broker_that_is_silent_is_an_error_at_once(
    kafka: MockKafka, connections: list[BrokerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_log_ends, "_TIMEOUT_S", 0.3)
    impatient = open_direct_log_ends(
        {"bootstrap.servers": kafka.bootstrap_servers}, client_id="etl", read_committed=True
    )
    assert impatient is not None
    before = impatient.ends(MANY)
    kafka.set_round_trip_ms(1, 2000)
    known = len(connections)
    try:
        with pytest.raises(TimeoutError):
            impatient.ends(MANY)
        assert len(connections) == known, "it would hang again"
    finally:
        kafka.set_round_trip_ms(1, 0)
    assert impatient.ends(MANY) == before
    impatient.close()


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"bootstrap.servers": "no port"},
        {"bootstrap.servers": "a:1", "socket.keepalive.enable": "true"},
        {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"},
    ],
    ids=str,
)
def test_what_is_not_understood_is_left_to_librdkafka(properties: dict[str, str]) -> None:
    assert open_direct_log_ends(properties, client_id="etl", read_committed=True) is None


def test_properties_of_the_member_do_not_matter() -> None:
    properties = {"bootstrap.servers": "a:1", "session.timeout.ms": "6000", "group.protocol": "classic"}
    assert open_direct_log_ends(properties, client_id="etl", read_committed=True) is not None


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_GROUP_ACCELERATOR", "librdkafka")
    assert open_direct_log_ends({"bootstrap.servers": "a:1"}, client_id="etl", read_committed=True) is None
