"""Requests for log ends to the leaders, over real sockets to fake brokers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping

import pytest

from pyspark_kafka_group.cluster import log_ends
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.log_ends import NO_LEADER, NO_LIMIT, UNKNOWN_TOPIC, LogEnds
from pyspark_kafka_group.offsets.errors import AuthenticationError, OptionError
from pyspark_kafka_group.offsets.types import LeaderEpoch, TopicPartition
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.fields import Writer
from pyspark_kafka_group.wire.topic_requests import (
    ClusterMetadata,
    FoundEpoch,
    ListedOffset,
    ListOffsets,
    Metadata,
    OffsetForLeaderEpoch,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_kafka_group.wire.types import Address, StoppedLoginError
from tests.wire import answers
from tests.wire.fake_broker import HANG_UP, SILENCE, Answer, FakeBroker

A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)
ALL = [A, B, C]
TOPICS = ["orders", "clicks"]
ENDS, METADATA, EPOCHS = ListOffsets.api.key, Metadata.api.key, OffsetForLeaderEpoch.api.key
UNKNOWN, NOT_LEADER, FENCED, LEADER_NOT_AVAILABLE, FORBIDDEN = 3, 6, 74, 5, 29
ID, ANOTHER = "QtOXfeWAR9uadceaKEMIPw", "-Jx5a_rTQPGFzS7Y0m9r2A"


def listed(ends: Mapping[TopicPartition, tuple[int, int, int]]) -> Answer:
    """Return an answer with the error, log end and leader epoch of each partition."""
    return answers.listed({tp: ListedOffset(error, end, -1, epoch) for tp, (error, end, epoch) in ends.items()})


class World:
    """Two brokers.  By default, the first one leads orders-0 and the second one leads the others."""

    def __init__(self) -> None:
        self.brokers = [FakeBroker(), FakeBroker()]
        self.leaders: dict[TopicPartition, int] = {A: 1, B: 2, C: 2}
        self.ids: dict[str, str | None] = {"orders": ID, "clicks": ANOTHER}
        self.errors: dict[str, int] = {}
        for broker in self.brokers:
            broker.answers[METADATA] = self.metadata
        self.brokers[0].answers[ENDS] = listed({A: (0, 10, 4)})
        self.brokers[1].answers[ENDS] = listed({B: (0, 20, 5), C: (0, 30, -1)})

    def metadata(self, out: Writer, version: int) -> None:
        names = [name for name in TOPICS if any(tp.topic == name for tp in self.leaders) and name not in self.errors]
        topics = [
            TopicMetadata(
                name,
                0,
                self.ids[name],
                tuple(
                    PartitionMetadata(tp.partition, 0, leader, 4)
                    for tp, leader in self.leaders.items()
                    if tp.topic == name
                ),
            )
            for name in names
        ]
        topics += [TopicMetadata(name, error, None, ()) for name, error in self.errors.items()]
        brokers = {n + 1: broker.address for n, broker in enumerate(self.brokers)}
        answers.metadata(ClusterMetadata(brokers, tuple(topics)))(out, version)

    def asked(self, api: int) -> list[int]:
        """Return the number of requests of an API to each broker."""
        return [sum(asked.api == api for asked in broker.asked) for broker in self.brokers]

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(answers, "THROTTLE_MS", 0)
    made = World()
    yield made
    made.close()


@pytest.fixture
def logs(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogEnds]:
    monkeypatch.setattr(log_ends, "_TIMEOUT_S", 0.3)
    made = LogEnds({"bootstrap.servers": str(world.brokers[0].address)}, client_id="etl", read_committed=True)
    yield made
    made.close()


def eventually(
    logs: LogEnds, expected: Mapping[TopicPartition, int], asked: Collection[TopicPartition] = tuple(ALL)
) -> None:
    """Ask until the ends are these.  Connections to silent leaders open in the background."""
    deadline = Deadline.after(10)
    while logs.ends(asked) != expected:
        assert not deadline.passed, (logs.ends(asked), logs.reasons)
        time.sleep(0.02)


def test_each_partition_has_its_own_end_and_leader_epoch(logs: LogEnds, world: World) -> None:
    assert (logs.leader_epochs, logs.leaders) == ({}, {})
    assert logs.ends(ALL) == {A: 10, B: 20, C: 30}
    assert logs.leader_epochs == {A: 4, B: 5}, "what a leader does not know is left out"
    first, second = (broker.address for broker in world.brokers)
    assert logs.leaders == {A: first, B: second, C: second}
    world.brokers[0].answers[ENDS] = listed({A: (0, 10, 6)})
    assert logs.ends(ALL) == {A: 10, B: 20, C: 30}
    assert logs.leader_epochs == {A: 6, B: 5}


def test_without_anything_new_the_answers_are_the_same_objects(logs: LogEnds, world: World) -> None:
    ends = logs.ends(ALL)
    epochs, copy = logs.leader_epochs, dict(ends)
    assert logs.ends(ALL) is ends
    assert logs.leader_epochs is epochs
    world.brokers[0].answers[ENDS] = listed({A: (0, 11, 4)})
    assert logs.ends(ALL)[A] == 11
    assert logs.leader_epochs is epochs
    assert ends == copy, "an answer is never changed"
    assert world.asked(METADATA) == [1, 0], "who leads is believed for a while"


def test_other_partitions_are_another_question(logs: LogEnds, world: World) -> None:
    logs.ends(ALL)
    accepted = [broker.accepted for broker in world.brokers]
    world.brokers[1].answers[ENDS] = listed({B: (0, 20, 5)})
    assert logs.ends([A, B]) == {A: 10, B: 20}
    assert [broker.accepted for broker in world.brokers] == accepted, "those to the leaders are kept"


def test_partitions_that_left_without_a_leader_are_looked_for_no_longer(logs: LogEnds, world: World) -> None:
    world.leaders[B] = -1
    world.brokers[1].answers[ENDS] = listed({C: (0, 30, 5)})
    logs.ends(ALL)
    logs._leaders.want([B])
    looks = sum(world.asked(METADATA))
    for _ in range(3):
        assert logs.ends([A]) == {A: 10}
    assert sum(world.asked(METADATA)) == looks + 1


def test_a_connection_that_was_closed_meanwhile_is_made_again(logs: LogEnds, world: World) -> None:
    before = logs.ends(ALL)
    for broker in world.brokers:
        broker.disconnect()
    assert logs.ends(ALL) == before


def test_a_login_that_ends_is_renewed(logs: LogEnds, world: World) -> None:
    first = logs.ends(ALL)
    known = world.brokers[1].accepted
    (leader,) = [leader for address, leader in logs._by_address.items() if address == world.brokers[1].address]
    assert leader.connection is not None
    leader.connection.good_until = Deadline.after(0)
    assert logs.ends(ALL) == first
    assert world.brokers[1].accepted == known + 1


def test_leaders_are_looked_for_from_time_to_time(logs: LogEnds, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that is cut off from the other brokers keeps answering without new records."""
    monkeypatch.setattr(log_ends, "_LEADERS_S", 0.0)
    first = logs.ends(ALL)
    assert logs.ends(ALL) is first, "nothing is new"
    assert sum(world.asked(METADATA)) == 2


def test_a_connection_is_closed_when_its_broker_leads_nothing_any_more(logs: LogEnds, world: World) -> None:
    logs.ends(ALL)
    assert logs.ends([A]) == {A: 10}
    assert len(logs._by_address) == 1
    assert logs.ends(ALL) == {A: 10, B: 20, C: 30}


def test_finding_leaders_is_not_waited_for_for_ever(logs: LogEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolving a name may take a minute."""
    release = threading.Event()
    monkeypatch.setattr(log_ends, "_PREPARE_S", 0.1)
    monkeypatch.setattr(logs, "_ask_any", lambda _: release.wait(20))
    try:
        with pytest.raises(TryAgainError, match="named the leaders"):
            logs.ends(ALL)
    finally:
        release.set()


def test_a_cluster_that_cannot_be_reached_is_named() -> None:
    logs = LogEnds({"bootstrap.servers": "127.0.0.1:1"}, client_id="etl", read_committed=True)
    with pytest.raises(TryAgainError, match="refused"):
        logs.ends(ALL)
    logs.close()


def test_a_leader_that_moves_is_found_at_once(logs: LogEnds, world: World) -> None:
    logs.ends(ALL)
    world.leaders[A] = 2
    world.brokers[0].answers[ENDS] = listed({A: (NOT_LEADER, -1, -1)})
    world.brokers[1].answers[ENDS] = listed({A: (0, 10, 5), B: (0, 20, 5), C: (0, 30, 5)})
    assert logs.ends(ALL) == {A: 10, B: 20, C: 30}
    assert logs.leaders[A] == world.brokers[1].address


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (listed({B: (NOT_LEADER, -1, -1), C: (0, 30, 5)}), "NOT_LEADER_OR_FOLLOWER"),
        (listed({B: (0, -1, 5), C: (0, 30, 5)}), "NONE"),
        (listed({C: (0, 30, 5)}), "no answer"),
        (listed({B: (UNKNOWN, -1, -1), C: (0, 30, 5)}), UNKNOWN_TOPIC),
    ],
    ids=["not the leader", "no end", "is missing", "unknown"],
)
def test_a_partition_without_an_answer_is_left_out_and_no_other(
    logs: LogEnds, world: World, answer: Answer, reason: str
) -> None:
    world.brokers[1].answers[ENDS] = answer
    assert logs.ends(ALL) == {A: 10, C: 30}
    assert logs.reasons == {B: reason}
    world.brokers[1].answers[ENDS] = listed({B: (0, 21, 5), C: (0, 30, 5)})
    assert logs.ends(ALL) == {A: 10, B: 21, C: 30}
    assert logs.reasons == {}


@pytest.mark.parametrize("answer", [HANG_UP, b"\0" * 3], ids=["hangs up", "rubbish"])
def test_a_leader_that_fails_costs_only_its_own_partitions(logs: LogEnds, world: World, answer: object) -> None:
    logs.ends(ALL)
    world.brokers[1].answers[ENDS] = answer
    assert logs.ends(ALL) == {A: 10}
    assert logs.reasons.keys() == {B, C}
    world.brokers[1].answers[ENDS] = listed({B: (0, 21, 5), C: (0, 30, 5)})
    eventually(logs, {A: 10, B: 21, C: 30})


def test_a_silent_leader_is_waited_for_once_and_then_in_the_background(
    logs: LogEnds, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: one broker that hung delayed the partitions of all others by seconds, with each request."""
    monkeypatch.setattr(log_ends, "_SILENT_PAUSE_S", 0.05)
    logs.ends(ALL)
    world.brokers[1].answers[ENDS] = SILENCE
    connect, release = logs._connect, threading.Event()

    def hang(address: Address, **more: float) -> BrokerConnection:
        if address == world.brokers[1].address and not release.wait(10):
            raise TimeoutError("no answer")
        return connect(address, **more)

    monkeypatch.setattr(logs, "_connect", hang)
    assert logs.ends(ALL) == {A: 10}
    assert "does not answer" in logs.reasons[B]
    begin = time.monotonic()
    for _ in range(5):
        assert logs.ends(ALL) == {A: 10}
    assert time.monotonic() - begin < 5, "it hangs while it is connected to, and nobody waits"
    world.brokers[0].answers[ENDS] = listed({A: (0, 11, 4)})
    assert logs.ends(ALL) == {A: 11}
    world.brokers[1].answers[ENDS] = listed({B: (0, 21, 5), C: (0, 30, 5)})
    release.set()
    eventually(logs, {A: 11, B: 21, C: 30})


def test_a_leader_that_answers_late_is_planned_after_a_few_timeouts(
    logs: LogEnds, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each answer was given up after the same second, so its partitions never had an end."""
    monkeypatch.setattr(log_ends, "_TIMEOUT_S", 0.05)
    monkeypatch.setattr(log_ends, "_SILENT_PAUSE_S", 0.01)
    answer = listed({B: (0, 20, 5), C: (0, 30, -1)})

    def late(out: Writer, version: int) -> None:
        time.sleep(0.15)
        answer(out, version)

    world.brokers[1].answers[ENDS] = late
    eventually(logs, {A: 10, B: 20, C: 30})


def throttle(broker: FakeBroker, for_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a broker read nothing for some time after each answer, as Kafka does."""

    def deliver(client: socket.socket, api: int, answer: bytes) -> None:
        client.sendall(answer)
        time.sleep(for_s if api in (ENDS, METADATA) else 0.0)

    monkeypatch.setattr(answers, "THROTTLE_MS", round(for_s * 1000))
    monkeypatch.setattr(broker, "deliver", deliver)


def test_several_silent_leaders_are_waited_for_as_long_as_one(logs: LogEnds, world: World) -> None:
    """Regression: each had its own time, one after the other.  So a failed zone held up the rest for N times 8 s."""
    partitions = [TopicPartition("orders", number) for number in range(9)]
    world.brokers += [FakeBroker() for _ in partitions[2:]]
    world.leaders = {tp: tp.partition + 1 for tp in partitions}
    for tp, broker in zip(partitions, world.brokers, strict=True):
        broker.answers |= {METADATA: world.metadata, ENDS: listed({tp: (0, 10, 4)})}
    assert logs.ends(partitions).keys() == {*partitions}
    for broker in world.brokers[:-1]:
        broker.answers[ENDS] = SILENCE
    begin = time.monotonic()
    assert logs.ends(partitions) == {partitions[-1]: 10}
    assert time.monotonic() - begin < 1.5, "the timeout is 0.3 s, and eight of them are silent"


def test_a_leader_that_throttles_is_not_asked_meanwhile_and_its_ends_stay(
    logs: LogEnds, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it counted as silent, and was connected to again, so that most calls had no log ends."""
    world.leaders = dict.fromkeys(ALL, 2)
    throttle(world.brokers[1], 0.5, monkeypatch)  # longer than an answer may take
    world.brokers[1].answers[ENDS] = [listed({A: (0, end, 4), B: (0, 20, 5), C: (0, 30, 5)}) for end in (10, 11)]
    assert logs.ends(ALL) == {A: 10, B: 20, C: 30}
    for _ in range(3):
        assert logs.ends(ALL) == {A: 10, B: 20, C: 30}
    assert world.asked(ENDS) == [0, 1]
    assert logs.ends([B, A]) == {A: 11, B: 20}, "another question is waited for"
    assert logs.topic_ids(TOPICS) == {"orders": ID, "clicks": ANOTHER}, "it is waited for"
    assert world.brokers[1].accepted == 1, "no connection was lost"


def test_nobody_waits_for_a_leader_that_throttles_if_another_one_does_not(
    logs: LogEnds, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the questions before a batch waited until it read again, up to a minute, for all partitions."""
    logs.ends(ALL)
    connection = logs._by_address[world.brokers[1].address].connection
    assert connection is not None
    connection.free_at = Deadline.after(8)
    world.brokers[1].answers |= dict.fromkeys((METADATA, ENDS, EPOCHS), SILENCE)
    begin = time.monotonic()
    assert logs.topic_ids(TOPICS) == {"orders": ID, "clicks": ANOTHER}
    assert B not in logs.log_starts(ALL)
    assert logs.epoch_ends({B: LeaderEpoch(5)}) == {}
    assert logs.epoch_errors == {B: "its leader throttles this client"}
    assert time.monotonic() - begin < 5


def test_a_leader_that_hangs_while_it_is_connected_to_does_not_hold_up_the_others(
    logs: LogEnds, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: one thread connected to all leaders.  A name that no server knew took 10 s of it each time."""
    connect, release = logs._connect, threading.Event()

    def hang(address: Address, **more: float) -> BrokerConnection:
        if address == world.brokers[1].address:
            release.wait(10)
        return connect(address, **more)

    monkeypatch.setattr(logs, "_connect", hang)
    monkeypatch.setattr(log_ends, "_PREPARE_S", 0.5)
    assert logs.ends([B, C, A]) == {A: 10}
    assert logs.reasons[B] == "its leader does not answer: it is not connected yet"
    world.brokers[0].disconnect()
    assert logs.ends([B, C, A]) == {A: 10}
    release.set()
    eventually(logs, {A: 10, B: 20, C: 30}, [B, C, A])


def test_a_leader_that_cannot_be_connected_to_costs_only_its_own_partitions(logs: LogEnds, world: World) -> None:
    world.brokers[1].close()
    assert logs.ends(ALL) == {A: 10}
    assert "refused" in logs.reasons[B]


def test_a_partition_without_a_leader_does_not_hold_up_the_others(logs: LogEnds, world: World) -> None:
    world.leaders[B] = -1
    world.brokers[1].answers[ENDS] = listed({C: (0, 30, 5)})
    first = logs.ends(ALL)
    assert first == {A: 10, C: 30}
    assert logs.reasons == {B: NO_LEADER}
    assert logs.ends(ALL) is first
    assert sum(world.asked(METADATA)) == 1, "that it has none is believed for a moment"
    assert log_ends._ELECTION_S <= 0.5
    logs._leaders.want([B])  # the moment is over
    world.leaders[B] = 2
    world.brokers[1].answers[ENDS] = listed({B: (0, 20, 5), C: (0, 30, 5)})
    assert logs.ends(ALL) == {A: 10, B: 20, C: 30}


def test_a_topic_that_no_broker_knows_does_not_hold_up_the_others(logs: LogEnds, world: World) -> None:
    world.errors["clicks"] = UNKNOWN
    world.leaders = {A: 1, B: 2}
    world.brokers[1].answers[ENDS] = listed({B: (0, 20, 5)})
    assert logs.ends([*ALL, TopicPartition("orders", 9)]) == {A: 10, B: 20}
    assert logs.reasons == {C: UNKNOWN_TOPIC, TopicPartition("orders", 9): NO_LEADER}


@pytest.mark.parametrize("where", ["metadata", "log ends"])
def test_a_right_that_is_missing_is_an_explained_error(logs: LogEnds, world: World, where: str) -> None:
    if where == "metadata":
        world.errors["clicks"] = FORBIDDEN
    else:
        world.brokers[1].answers[ENDS] = listed({B: (0, 20, 5), C: (FORBIDDEN, -1, -1)})
    with pytest.raises(AuthenticationError, match="clicks"):
        logs.ends(ALL)


def test_a_login_that_is_broken_off_ends_the_query(logs: LogEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise another client would complete the login, and reveal the password."""

    def refuse(_address: Address, **_: float) -> BrokerConnection:
        raise StoppedLoginError("too few iterations")

    monkeypatch.setattr(logs, "_connect", refuse)
    with pytest.raises(AuthenticationError, match="too few"):
        logs.ends(ALL)


def test_a_property_that_cannot_be_served_is_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        LogEnds({"bootstrap.servers": "a:b"}, client_id="etl", read_committed=True)


def test_after_closing_nothing_is_asked(logs: LogEnds, world: World) -> None:
    logs.ends(ALL)
    logs.close()
    logs.close()
    assert logs.topic_ids(TOPICS) is None


# -- topic ids


def test_topic_ids_are_those_that_the_leaders_know(logs: LogEnds, world: World) -> None:
    logs.ends(ALL)
    for broker in world.brokers:
        broker.asked.clear()
    assert logs.topic_ids(TOPICS) == {"orders": ID, "clicks": ANOTHER}
    assert world.asked(METADATA) == [1, 1]
    of_first, of_second = (broker.asked[-1].body for broker in world.brokers)
    assert (b"orders" in of_first, b"clicks" in of_first) == (True, False), "each for the topics that it leads"
    assert (b"orders" in of_second, b"clicks" in of_second) == (True, True)
    world.ids["orders"] = ANOTHER
    assert logs.topic_ids(TOPICS) == {"orders": ANOTHER, "clicks": ANOTHER}


def test_a_topic_whose_leader_is_silent_is_asked_of_another_one(logs: LogEnds, world: World) -> None:
    world.brokers[1].close()
    assert logs.ends(ALL) == {A: 10}
    assert logs.topic_ids(TOPICS) == {"orders": ID, "clicks": ANOTHER}


def test_a_topic_without_any_leader_still_exists(logs: LogEnds, world: World) -> None:
    """Otherwise the topic would count as deleted."""
    world.leaders[C] = -1
    world.brokers[1].answers[ENDS] = listed({B: (0, 20, 5)})
    assert logs.ends(ALL) == {A: 10, B: 20}
    assert logs.topic_ids(TOPICS) == {"orders": ID, "clicks": ANOTHER}
    assert logs.ends([C]) == {}
    assert logs.topic_ids(["clicks"]) is None, "no leader is connected"


def test_ids_on_which_the_leaders_do_not_agree_are_not_known(logs: LogEnds, world: World) -> None:
    """One leader does not know yet that the topic was created again."""
    logs.ends(ALL)
    topics = tuple(TopicMetadata(name, 0, ANOTHER, (PartitionMetadata(0, 0, 1, 4),)) for name in TOPICS)
    world.brokers[1].answers[METADATA] = answers.metadata(ClusterMetadata({}, topics))
    assert logs.topic_ids(TOPICS) is None


@pytest.mark.parametrize(("error", "found"), [(UNKNOWN, {"clicks": ANOTHER}), (LEADER_NOT_AVAILABLE, None)])
def test_only_a_topic_that_a_leader_does_not_know_does_not_exist(
    logs: LogEnds, world: World, error: int, found: object
) -> None:
    logs.ends(ALL)
    world.errors["orders"] = error
    assert logs.topic_ids(TOPICS) == found


def test_brokers_without_ids_tell_that_the_topics_exist(logs: LogEnds, world: World) -> None:
    for broker in world.brokers:
        broker.offered[METADATA] = (0, 9)
    logs.ends(ALL)
    assert logs.topic_ids(TOPICS) == {"orders": None, "clicks": None}


def test_a_leader_that_hangs_up_while_it_is_asked_for_ids_is_connected_to_again(logs: LogEnds, world: World) -> None:
    logs.ends(ALL)
    world.brokers[1].answers[METADATA] = HANG_UP
    assert logs.topic_ids(TOPICS) is None
    assert logs._leaders.next_at.is_set, "it may lead no longer"
    eventually(logs, {A: 10, B: 20, C: 30})


# -- where logs start


def test_log_starts_are_asked_of_the_leaders_and_a_leader_that_fails_is_left_out(logs: LogEnds, world: World) -> None:
    logs.ends(ALL)
    world.brokers[0].answers[ENDS] = listed({A: (0, 4, 4)})
    world.brokers[1].answers[ENDS] = listed({B: (0, 7, 5), C: (NOT_LEADER, -1, -1)})
    elsewhere = TopicPartition("nowhere", 0)
    assert logs.log_starts([*ALL, elsewhere]) == {A: 4, B: 7}
    world.brokers[1].answers[ENDS] = HANG_UP
    assert logs.log_starts(ALL) == {A: 4}


# -- where leader epochs end


def test_ends_of_leader_epochs_are_asked_of_the_leaders(logs: LogEnds, world: World) -> None:
    logs.ends(ALL)
    world.brokers[0].answers[EPOCHS] = answers.epochs({A: FoundEpoch(0, 3, 7)})
    world.brokers[1].answers[EPOCHS] = answers.epochs({B: FoundEpoch(0, 2, 17), C: FoundEpoch(0, 0, 0)})
    assert logs.epoch_ends({A: LeaderEpoch(3), B: LeaderEpoch(3), C: LeaderEpoch(0)}) == {A: 7, B: 17, C: 0}
    assert (logs.epoch_ends({}), logs.epoch_errors) == ({}, {})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(answers.epochs({B: FoundEpoch(FENCED, -1, -1)}), "FENCED_LEADER_EPOCH"), (HANG_UP, "closed")],
    ids=["refused", "hangs up"],
)
def test_an_epoch_end_that_a_leader_does_not_tell_is_left_out_with_its_reason(
    logs: LogEnds, world: World, answer: object, reason: str
) -> None:
    logs.ends(ALL)
    world.brokers[1].answers[EPOCHS] = answer
    world.brokers[0].answers[EPOCHS] = answers.epochs({A: FoundEpoch(0, -1, -1)})
    elsewhere = TopicPartition("nowhere", 0)
    found = logs.epoch_ends(dict.fromkeys([A, B, elsewhere], LeaderEpoch(3)))
    assert found == {A: NO_LIMIT}, "it knows no such epoch"
    assert logs.epoch_errors.keys() == {B, elsewhere}
    assert reason in logs.epoch_errors[B]
    assert logs._leaders.next_at.is_set, "another broker may lead"
    eventually(logs, {A: 10, B: 20, C: 30})
