"""How long readers wait for brokers that answer late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading import range_reader
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.reader_client import ReaderEvent, Records
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.leaders import LeaderTimings
from pyspark_kafka_group.wire.types import Address
from tests.connector.reading.clients import need_native_library
from tests.connector.reading.scripted_broker import LEADER, SERVER, Cluster, client_of, log_of

TP = TopicPartition("orders", 0)
FAST = LeaderTimings(pause_s=0.001, longest_pause_s=0.01)


class LateBrokers:
    """Brokers of which some answer late: a client that does not wait for long enough gets no answer.

    Attributes
    ----------
    after_s : dict of Address to float
        How long an answer takes.
    waits_s : dict of Address to list of float
        How long the clients of each connection wait.
    """

    def __init__(self, cluster: Cluster, after_s: dict[Address, float]) -> None:
        self.after_s = after_s
        self.waits_s: dict[Address, list[float]] = {}
        self._connect = cluster.connect

    def connect(self, address: Address, *, timeout_s: float, **more: object) -> BrokerConnection:
        self.waits_s.setdefault(address, []).append(timeout_s)
        if timeout_s < self.after_s.get(address, 0):
            raise TimeoutError("no answer")
        return self._connect(address, **more)


@pytest.fixture
def brokers() -> LateBrokers:
    return LateBrokers(log_of(2), {})


@pytest.fixture
def client(brokers: LateBrokers, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectClient]:
    need_native_library()
    monkeypatch.setattr(range_reader, "_WARNED", set())
    made = client_of(log_of(2), FAST, **{"socket.timeout.ms": "5000"})
    made._fetchers._connect = made._questions.connect = brokers.connect
    yield made
    made.close()


def read(client: DirectClient) -> list[str]:
    """Read the log, and return the events on the way."""
    events, position = [], 0
    client.assign({TP: OffsetRange(Offset(0), Offset(20))}, ("offset",))
    while position < 20:
        found = client.poll({TP: 20}, 0.05)
        if isinstance(found, ReaderEvent):
            events.append(found.error.name())
        elif isinstance(found, Records):
            position = found.position
    client.unassign_all()
    return events


@pytest.mark.parametrize("late", [SERVER, LEADER])
def test_a_broker_that_answers_late_is_waited_for(client: DirectClient, brokers: LateBrokers, late: Address) -> None:
    """Regression: no answer could take longer than 1 s, or 5 s for a fetch.  The request was sent again for ever."""
    brokers.after_s[late] = 3
    assert read(client) == ["_TIMED_OUT"] * 2
    assert brokers.waits_s[late][:3] == [1, 2, 4]


def test_the_log_of_a_leader_that_answers_late_is_known(client: DirectClient, brokers: LateBrokers) -> None:
    brokers.after_s[LEADER] = 3
    for _ in range(2):
        with pytest.raises(KafkaException, match="no answer"):
            client.watermarks(TP, 5)
    assert client.watermarks(TP, 5) == (0, 20)


def test_no_answer_is_waited_for_longer_than_the_user_says(client: DirectClient, brokers: LateBrokers) -> None:
    brokers.after_s[LEADER] = 4.5
    read(client)
    assert brokers.waits_s[LEADER] == [1, 2, 4, 5]


def test_after_an_answer_a_broker_that_stops_is_left_soon(client: DirectClient, brokers: LateBrokers) -> None:
    brokers.after_s[SERVER] = 3
    read(client)
    assert brokers.waits_s[SERVER] == [1, 2, 4]
    with pytest.raises(KafkaException, match="no answer"):
        client.watermarks(TP, 5)
    assert brokers.waits_s[SERVER][3:] == [1]
