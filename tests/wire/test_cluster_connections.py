"""Connections to a cluster are kept, and opened again when necessary."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.cluster_connections import ClusterConnections
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.group_requests import Coordinator, FindCoordinator
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.types import Address, RefusedCredentialsError, UnsupportedVersionError
from tests.wire import answers
from tests.wire.fake_broker import HANG_UP, SILENCE, FakeBroker

ASK = FindCoordinator("etl")
KEY = ASK.api.key
FOUND = Coordinator(0, "", Address("there", 9092))


class Connections(ClusterConnections):
    """Cluster connections that note each new connection."""

    def __init__(self, *servers: Address) -> None:
        self.made: list[tuple[Address, BrokerConnection]] = []
        super().__init__(servers, self._make)

    def _make(self, address: Address, timeout_s: float) -> BrokerConnection:
        connection = BrokerConnection(address, "me", timeout_s, Security(), needed=(), begin_s=timeout_s)
        self.made.append((address, connection))
        return connection

    def ask_now(self) -> Coordinator:
        return self.ask_any(ASK, Deadline.after(1))


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    made = [FakeBroker({KEY: answers.coordinator(FOUND)}) for _ in range(3)]
    yield made
    for broker in made:
        broker.close()


def test_a_connection_is_kept(brokers: list[FakeBroker]) -> None:
    connections = Connections(brokers[0].address)
    for _ in range(3):
        assert connections.ask_now() == FOUND
    assert len(connections.made) == 1
    connections.close()
    assert connections.ask_now() == FOUND
    assert len(connections.made) == 2


def test_a_login_that_ends_is_renewed(brokers: list[FakeBroker]) -> None:
    connections = Connections(brokers[0].address)
    connections.ask_now()
    connections.made[0][1].good_until = Deadline.after(0)
    assert connections.ask_now() == FOUND
    assert len(connections.made) == 2


def test_after_trouble_a_connection_is_not_used_again(brokers: list[FakeBroker]) -> None:
    """A late answer could count as the answer to another request."""
    connections = Connections(brokers[0].address)
    brokers[0].answers[KEY] = [SILENCE, HANG_UP, answers.coordinator(FOUND)]
    for _ in range(2):
        with pytest.raises(OSError, match=r"no answer|closed"):
            connections.ask_any(ASK, Deadline.after(0.2))
    assert connections.ask_now() == FOUND
    assert len(connections.made) == 3


def test_the_broker_that_answered_is_asked_first(brokers: list[FakeBroker]) -> None:
    connections = Connections(*(broker.address for broker in brokers))
    brokers[0].close()
    for _ in range(3):
        assert connections.ask_now() == FOUND
    assert [address for address, _ in connections.made] == [brokers[1].address]


def test_brokers_that_have_gone_are_forgotten(brokers: list[FakeBroker]) -> None:
    first, second, third = (broker.address for broker in brokers)
    connections = Connections(first)
    connections.ask_now()
    connections.learn([first, second])
    connections.ask(second, ASK, Deadline.after(1))
    connections.learn([third])
    brokers[0].close()
    assert connections.ask_now() == FOUND
    assert [address for address, _ in connections.made] == [first, second, third]


def test_the_last_problem_is_told_if_nobody_answers(brokers: list[FakeBroker]) -> None:
    brokers[0].answers[KEY] = HANG_UP
    with pytest.raises(ConnectionError, match="closed the connection"):
        Connections(brokers[0].address).ask_now()
    with pytest.raises(ConnectionError, match="no broker is known"):
        Connections().ask_now()


def test_what_any_broker_would_refuse_is_not_asked_of_the_next(brokers: list[FakeBroker]) -> None:
    brokers[0].offered = {}
    connections = Connections(*(broker.address for broker in brokers))
    with pytest.raises(UnsupportedVersionError):
        connections.ask_now()
    assert len(connections.made) == 1

    def refuse(*_: object) -> BrokerConnection:
        tried.append(1)
        raise RefusedCredentialsError("wrong")

    tried: list[int] = []
    with pytest.raises(RefusedCredentialsError):
        ClusterConnections([broker.address for broker in brokers], refuse).ask_any(ASK, Deadline.after(1))
    assert len(tried) == 1


def test_with_many_brokers_each_still_has_time_for_a_login() -> None:
    """Regression: each of 30 brokers got a thirtieth of the time.  No login was finished, in any round."""

    class Slow(ClusterConnections):
        def __init__(self) -> None:
            super().__init__([Address(f"b{n}", 9092) for n in range(30)], self._connect_slowly)

        def _connect_slowly(self, address: Address, timeout_s: float) -> BrokerConnection:
            del address
            if timeout_s < 0.25:
                raise TimeoutError
            return cast(BrokerConnection, SimpleNamespace(ask=lambda *_: FOUND))

    assert Slow().ask_any(ASK, Deadline.after(1)) == FOUND
