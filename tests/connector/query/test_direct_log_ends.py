"""Log ends asked of the leaders directly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import pytest
from confluent_kafka import Producer

from pyspark_kafka_group.offsets.cluster.daemon_executor import ClosedError
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import LeaderEpoch, TopicPartition
from pyspark_kafka_group.query import direct_log_ends
from pyspark_kafka_group.query.direct_log_ends import (
    NO_LIMIT,
    DirectLogEnds,
    UnknownPartitionsError,
    open_direct_log_ends,
)
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.wire import broker_connection
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.fields import Writer
from pyspark_kafka_group.wire.leaders import Connect, find_leaders
from pyspark_kafka_group.wire.messages import FETCH, LIST_OFFSETS
from pyspark_kafka_group.wire.topic_requests import (
    ClusterMetadata,
    FoundEpoch,
    Metadata,
    OffsetForLeaderEpoch,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_kafka_group.wire.types import Address, ProtocolError, UnsafeLoginError
from tests.wire import answers
from tests.wire.fake_broker import HANG_UP, Answer, FakeBroker

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


def test_it_tells_who_leads_what_it_was_asked_for(logs: DirectLogEnds, connections: list[BrokerConnection]) -> None:
    """Tasks are handed out by leader."""
    assert not logs.leaders
    logs.ends(MANY)
    assert logs.leaders.keys() >= set(MANY)
    assert len(set(logs.leaders.values())) == 2
    logs.close()
    assert not logs.leaders


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
    connections[-1].good_until = Deadline.after(0)
    assert logs.ends(MANY) is first
    assert len(connections) == known + 2, "to ask for the leaders, and to that broker"


def test_leaders_are_looked_for_from_time_to_time(
    logs: DirectLogEnds, connections: list[BrokerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is cut off from the other brokers goes on saying that nothing is new."""
    monkeypatch.setattr(direct_log_ends, "_LEADERS_S", 0.0)
    first = logs.ends(MANY)
    known = len(connections)
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
    assert logs.leader_epochs == {}
    with pytest.raises(ClosedError):
        logs.ends(MANY)


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
    logs._prepared_until = Deadline.after(0)
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


@pytest.mark.parametrize("prepared", [True, False])
def test_partitions_that_the_broker_does_not_know_are_told_by_topic(logs: DirectLogEnds, prepared: bool) -> None:
    before = logs.ends(MANY) if prepared else {}
    nowhere = [TopicPartition("nowhere", 0), TopicPartition("nowhere", 1), TopicPartition("refunds", 9)]
    with pytest.raises(UnknownPartitionsError, match="unknown: nowhere, refunds") as problem:
        logs.ends([*MANY, *nowhere])
    assert problem.value.topics == {"nowhere", "refunds"}
    assert logs.ends(MANY).keys() == set(MANY)
    assert before.items() <= logs.ends(MANY).items()


@pytest.fixture
def leaderless(monkeypatch: pytest.MonkeyPatch) -> set[TopicPartition]:
    """Return a set of partitions that no leader is found for."""
    without: set[TopicPartition] = set()

    def find(
        partitions: Collection[TopicPartition], servers: Iterable[Address], connect: Connect
    ) -> dict[TopicPartition, Address | None]:
        return {**find_leaders(partitions, servers, connect), **dict.fromkeys(without, None)}

    monkeypatch.setattr(direct_log_ends, "find_leaders", find)
    return without


def test_a_partition_without_a_leader_does_not_hold_up_the_others(
    logs: DirectLogEnds,
    produce: Callable[[TopicPartition], None],
    leaderless: set[TopicPartition],
    connections: list[BrokerConnection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaderless |= {MANY[3], MANY[7]}
    first = logs.ends(MANY)
    assert first.keys() == set(MANY) - leaderless
    known = len(connections)
    assert logs.ends(MANY) is first
    assert len(connections) == known, "that nobody leads it is believed for a moment"
    produce(MANY[3])
    assert direct_log_ends._ELECTION_S <= 0.5
    monkeypatch.setattr(direct_log_ends, "_ELECTION_S", 0.0)
    logs._prepared_until = Deadline.after(0)
    assert logs.ends(MANY) is first, "nothing is new"
    assert len(connections) == known + 1, "to ask for the leaders"
    leaderless.remove(MANY[3])
    second = logs.ends(MANY)
    assert second.keys() == set(MANY) - leaderless
    assert second[MANY[3]] > 0
    leaderless.clear()
    third = logs.ends(MANY)
    assert third.keys() == set(MANY)
    known = len(connections)
    assert logs.ends(MANY) is third
    assert len(connections) == known, "all have a leader"


def test_a_partition_that_loses_its_leader_is_left_out_at_once(
    kafka: MockKafka, logs: DirectLogEnds, leaderless: set[TopicPartition]
) -> None:
    before = logs.ends(MANY)
    leaderless.add(MANY[0])
    kafka.push_errors(LIST_OFFSETS, NOT_LEADER)
    assert logs.ends(MANY) == {tp: end for tp, end in before.items() if tp != MANY[0]}


def test_a_topic_without_any_leader_still_exists(
    logs: DirectLogEnds, leaderless: set[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be taken for deleted."""

    def describe(
        _to: BrokerConnection, request: Metadata, _timeout_s: float, _before: object
    ) -> broker_connection.Answer[ClusterMetadata]:
        topics = tuple(TopicMetadata(name, 0, f"id of {name}", ()) for name in request.topics or ())
        return broker_connection.Answer(b"", ClusterMetadata({}, topics))

    monkeypatch.setattr(BrokerConnection, "ask_again", describe)
    refund = TopicPartition("refunds", 0)
    leaderless.add(refund)
    assert logs.ends([*MANY, refund]).keys() == set(MANY)
    assert logs.topic_ids(["orders", "refunds"]) == {"orders": "id of orders", "refunds": "id of refunds"}
    assert logs.ends([refund]) == {}
    with pytest.raises(ProtocolError, match="no leader is connected"):
        logs.topic_ids(["refunds"])


def test_a_login_that_is_broken_off_is_not_left_to_librdkafka(
    logs: DirectLogEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go through with it."""

    def refuse(_address: Address) -> BrokerConnection:
        raise UnsafeLoginError("too few iterations")

    monkeypatch.setattr(logs, "_connect", refuse)
    with pytest.raises(AuthenticationError, match="too few"):
        logs.ends(MANY)


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
        {"bootstrap.servers": "a:1", "client.dns.lookup": "resolve_canonical_bootstrap_servers_only"},
        {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"},
    ],
    ids=str,
)
def test_what_is_not_understood_is_left_to_librdkafka(properties: dict[str, str]) -> None:
    assert open_direct_log_ends(properties, client_id="etl", read_committed=True) is None


def test_properties_of_the_member_do_not_matter() -> None:
    properties = {"bootstrap.servers": "a:1", "session.timeout.ms": "6000", "group.protocol": "classic"}
    logs = open_direct_log_ends({**properties, "client.rack": "a"}, client_id="etl", read_committed=True)
    assert logs is not None
    logs.close()


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_GROUP_ACCELERATOR", "librdkafka")
    assert open_direct_log_ends({"bootstrap.servers": "a:1"}, client_id="etl", read_committed=True) is None


# -- leaders that say what the test tells them

A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)
TOPICS = ["orders", "clicks"]
UNKNOWN, FENCED, LEADER_NOT_AVAILABLE = 3, 74, 5
IDS, EPOCHS = Metadata.api.key, OffsetForLeaderEpoch.api.key
ID, ANOTHER = "QtOXfeWAR9uadceaKEMIPw", "-Jx5a_rTQPGFzS7Y0m9r2A"


def listed(ends: Mapping[TopicPartition, tuple[int, int, int]]) -> Answer:
    """Error, log end and leader epoch of each partition, as a leader tells them in version 4."""
    topics = {tp.topic: [t for t in ends if t.topic == tp.topic] for tp in ends}

    def write(out: Writer, version: int) -> None:
        def partition(tp: TopicPartition) -> None:
            error, end, leader_epoch = ends[tp]
            out.int32(tp.partition)
            out.int16(error)
            out.int64(-1)
            out.int64(end)
            out.int32(leader_epoch)

        def topic(name: str) -> None:
            out.text(name)
            out.array(topics[name], partition)

        assert version == 4
        out.int32(0)
        out.array(topics, topic)

    return write


def has_ids(errors: Mapping[str, int] | None = None, **ids: str | None) -> Answer:
    topics = [TopicMetadata(name, 0, topic_id, (PartitionMetadata(0, 0, 1, 4),)) for name, topic_id in ids.items()]
    refused = [TopicMetadata(name, error, None, ()) for name, error in (errors or {}).items()]
    return answers.metadata(ClusterMetadata({1: Address("there", 9092)}, (*topics, *refused)))


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """The first one leads orders-0, the second one the others."""
    made = [FakeBroker(), FakeBroker()]
    for broker in made:
        broker.offered |= {FETCH: (0, 99), LIST_OFFSETS: (0, 99)}
        broker.answers[IDS] = has_ids(orders=ID, clicks=ANOTHER)
    made[0].answers[LIST_OFFSETS] = listed({A: (0, 10, 4)})
    made[1].answers[LIST_OFFSETS] = listed({B: (0, 20, 5), C: (0, 30, -1)})
    yield made
    for broker in made:
        broker.close()


@pytest.fixture
def told(brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectLogEnds]:
    leaders = {A: brokers[0].address, B: brokers[1].address, C: brokers[1].address}
    monkeypatch.setattr(direct_log_ends, "find_leaders", lambda *_: leaders)
    made = open_direct_log_ends({"bootstrap.servers": str(brokers[0].address)}, client_id="etl", read_committed=True)
    assert made is not None
    yield made
    made.close()


def test_leader_epochs_come_with_the_log_ends(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    assert told.leader_epochs == {}
    assert told.ends([A, B, C]) == {A: 10, B: 20, C: 30}
    assert told.leader_epochs == {A: 4, B: 5}, "what a leader does not know is left out"
    brokers[0].answers[LIST_OFFSETS] = listed({A: (0, 10, 6)})
    assert told.ends([A, B, C]) == {A: 10, B: 20, C: 30}
    assert told.leader_epochs == {A: 6, B: 5}


def test_without_anything_new_the_leader_epochs_are_the_same_object(
    told: DirectLogEnds, brokers: list[FakeBroker]
) -> None:
    ends = told.ends([A, B, C])
    epochs = told.leader_epochs
    assert told.ends([A, B, C]) is ends
    assert told.leader_epochs is epochs
    brokers[0].answers[LIST_OFFSETS] = listed({A: (0, 11, 4)})
    assert told.ends([A, B, C])[A] == 11
    assert told.leader_epochs is epochs


def test_after_closing_no_leader_epochs_are_known(told: DirectLogEnds) -> None:
    told.ends([A, B, C])
    told.close()
    assert told.leader_epochs == {}
    assert told.topic_ids([]) == {}


def test_leaders_are_looked_for_anew_to_ask_them_for_epochs(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    told.ends([A, B, C])
    brokers[0].answers[EPOCHS] = HANG_UP
    with pytest.raises((OSError, ProtocolError)):
        told.epoch_ends({A: LeaderEpoch(3)})
    brokers[0].answers[EPOCHS] = answers.epochs({A: FoundEpoch(0, 3, 7)})
    assert told.epoch_ends({A: LeaderEpoch(3)}) == {A: 7}


def test_topics_that_a_broker_does_not_know_are_named_and_the_others_can_be_asked_for(
    told: DirectLogEnds, brokers: list[FakeBroker]
) -> None:
    """One that was deleted must not hold up the others."""
    brokers[1].answers[LIST_OFFSETS] = [listed({B: (0, 20, 5), C: (UNKNOWN, -1, -1)}), listed({B: (0, 20, 5)})]
    with pytest.raises(UnknownPartitionsError, match="unknown: clicks") as unknown:
        told.ends([A, B, C])
    assert unknown.value.topics == {"clicks"}
    assert told.ends([A, B]) == {A: 10, B: 20}


def test_an_unknown_topic_is_not_asked_about_a_second_time_at_once(
    told: DirectLogEnds, brokers: list[FakeBroker]
) -> None:
    told.ends([A, B, C])
    brokers[1].answers[LIST_OFFSETS] = listed({B: (0, 20, 5), C: (UNKNOWN, -1, -1)})
    brokers[1].asked.clear()
    with pytest.raises(UnknownPartitionsError):
        told.ends([A, B, C])
    assert [asked.api for asked in brokers[1].asked] == [LIST_OFFSETS]


@pytest.mark.parametrize(
    "answer",
    [
        listed({B: (NOT_LEADER, -1, -1), C: (UNKNOWN, -1, -1)}),
        listed({B: (0, -1, 5), C: (0, 30, 5)}),
        listed({B: (0, 20, 5)}),
        listed({B: (0, 20, 5), C: (0, 30, 5), A: (0, 10, 4)}),
        listed({}),
        HANG_UP,
        b"\0" * 3,
    ],
    ids=["not the leader", "no end", "one is missing", "one that was not asked for", "none", "hangs up", "rubbish"],
)
def test_whatever_else_is_wrong_is_an_error_and_not_an_unknown_topic(
    told: DirectLogEnds, brokers: list[FakeBroker], answer: object
) -> None:
    brokers[1].answers[LIST_OFFSETS] = answer
    with pytest.raises((ProtocolError, OSError)) as problem:
        told.ends([A, B, C])
    assert not isinstance(problem.value, UnknownPartitionsError)


def test_topic_ids_are_those_that_the_leaders_know(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    told.ends([A, B, C])
    assert told.topic_ids(TOPICS) == {"orders": ID, "clicks": ANOTHER}
    assert [[asked.api for asked in broker.asked] for broker in brokers] == [[LIST_OFFSETS, IDS]] * 2
    for broker in brokers:
        broker.answers[IDS] = has_ids(orders=ANOTHER, clicks=ANOTHER)
    assert told.topic_ids(TOPICS) == {"orders": ANOTHER, "clicks": ANOTHER}


def test_each_leader_is_asked_only_for_the_topics_that_it_leads(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    told.ends([A, B, C])
    told.topic_ids(TOPICS)
    of_first, of_second = (broker.asked[-1].body for broker in brokers)
    assert (b"orders" in of_first, b"clicks" in of_first) == (True, False)
    assert (b"orders" in of_second, b"clicks" in of_second) == (True, True)


def test_a_topic_that_was_created_again_with_fewer_partitions_is_asked_of_the_leader_of_another_one(
    told: DirectLogEnds, brokers: list[FakeBroker]
) -> None:
    """It is not looked at, because brokers do not know all of its partitions; it must not count as deleted."""
    told.ends([A, B, C])
    brokers[1].answers[LIST_OFFSETS] = [listed({B: (0, 20, 5), C: (UNKNOWN, -1, -1)}), listed({B: (0, 20, 5)})]
    with pytest.raises(UnknownPartitionsError):
        told.ends([A, B, C])
    assert told.ends([A, B]) == {A: 10, B: 20}
    for broker in brokers:
        broker.asked.clear()
    assert told.topic_ids(TOPICS) == {"orders": ID, "clicks": ANOTHER}
    (asked,) = [asked for broker in brokers for asked in broker.asked if b"clicks" in asked.body]
    assert asked.api == IDS, "one leader is enough"
    brokers[0].answers[IDS] = brokers[1].answers[IDS] = has_ids({"clicks": UNKNOWN}, orders=ID)
    assert told.topic_ids(TOPICS) == {"orders": ID}


def test_without_a_connected_leader_no_topic_is_taken_for_deleted(
    told: DirectLogEnds, brokers: list[FakeBroker]
) -> None:
    brokers[0].answers[LIST_OFFSETS] = listed({A: (UNKNOWN, -1, -1)})
    with pytest.raises(UnknownPartitionsError):
        told.ends([A, B, C])
    with pytest.raises(ProtocolError, match="no leader is connected"):
        told.topic_ids(TOPICS)


def test_a_leader_that_could_not_be_reached_is_not_asked(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    told.ends([A, B, C])
    brokers[1].close()
    told._prepared_until = Deadline.after(0)
    told._connections[brokers[1].address].good_until = Deadline.after(0)
    with pytest.raises(OSError, match="refused"):
        told.ends([A, B, C])
    with pytest.raises(ProtocolError, match="not connected"):
        told.topic_ids(TOPICS)


def test_ids_on_which_the_leaders_do_not_agree_are_not_known(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    """One of them has not heard yet that the topic was created again."""
    told.ends([A, B, C])
    brokers[1].answers[IDS] = has_ids(orders=ANOTHER, clicks=ANOTHER)
    with pytest.raises(ProtocolError, match="do not agree"):
        told.topic_ids(TOPICS)
    assert told.ends([A, B, C]) == {A: 10, B: 20, C: 30}, "it begins anew"


def test_a_topic_that_one_leader_does_not_know_does_not_exist(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    told.ends([A, B, C])
    brokers[0].answers[IDS] = has_ids({"orders": UNKNOWN})
    assert told.topic_ids(TOPICS) == {"clicks": ANOTHER}


def test_a_topic_with_another_error_is_not_taken_for_one_that_does_not_exist(
    told: DirectLogEnds, brokers: list[FakeBroker]
) -> None:
    told.ends([A, B, C])
    brokers[0].answers[IDS] = has_ids({"orders": LEADER_NOT_AVAILABLE})
    with pytest.raises(ProtocolError, match="error 5"):
        told.topic_ids(TOPICS)


def test_brokers_without_ids_tell_that_the_topics_exist(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    for broker in brokers:
        broker.offered[IDS] = (0, 9)
    told.ends([A, B, C])
    assert told.topic_ids(TOPICS) == {"orders": None, "clicks": None}


def test_a_leader_that_hangs_up_while_it_is_asked_for_ids_is_an_error(
    told: DirectLogEnds, brokers: list[FakeBroker]
) -> None:
    told.ends([A, B, C])
    brokers[1].answers[IDS] = HANG_UP
    with pytest.raises(OSError, match="closed the connection"):
        told.topic_ids(TOPICS)
    assert told.ends([A, B, C]) == {A: 10, B: 20, C: 30}


def test_ends_of_leader_epochs_are_asked_of_the_leaders(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    told.ends([A, B, C])
    brokers[0].answers[EPOCHS] = answers.epochs({A: FoundEpoch(0, 3, 7)})
    brokers[1].answers[EPOCHS] = answers.epochs({B: FoundEpoch(0, 2, 17), C: FoundEpoch(0, 0, 0)})
    assert told.epoch_ends({A: LeaderEpoch(3), B: LeaderEpoch(3), C: LeaderEpoch(0)}) == {A: 7, B: 17, C: 0}
    assert told.epoch_ends({}) == {}


def test_an_epoch_end_that_a_leader_does_not_tell_is_left_out(told: DirectLogEnds, brokers: list[FakeBroker]) -> None:
    told.ends([A, B, C])
    brokers[1].answers[EPOCHS] = answers.epochs({B: FoundEpoch(FENCED, -1, -1), C: FoundEpoch(0, -1, -1)})
    elsewhere = TopicPartition("nowhere", 0)
    assert told.epoch_ends(dict.fromkeys([B, C, elsewhere], LeaderEpoch(3))) == {C: NO_LIMIT}, "it knows no such epoch"


def test_a_leader_that_hangs_up_while_it_is_asked_for_epochs_is_an_error(
    told: DirectLogEnds, brokers: list[FakeBroker]
) -> None:
    told.ends([A, B, C])
    brokers[1].answers[EPOCHS] = HANG_UP
    with pytest.raises(OSError, match="closed the connection"):
        told.epoch_ends({B: LeaderEpoch(3)})
    assert told.ends([A, B, C]) == {A: 10, B: 20, C: 30}
