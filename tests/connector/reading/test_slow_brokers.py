"""How long readers wait for brokers that answer late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException

from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading import range_reader
from pyspark_kafka_group.reading.answer_time import AnswerTime
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.reader_client import ReaderEvent, Records
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.leaders import LeaderTimings
from pyspark_kafka_group.wire.types import Address, UnreachableError
from tests.connector.reading import scripted_broker
from tests.connector.reading.clients import need_native_library
from tests.connector.reading.scripted_broker import LEADER, OTHER, SERVER, Cluster, client_of, log_of

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

    def __init__(self, cluster: Cluster) -> None:
        self.after_s: dict[Address, float] = {}
        self.waits_s: dict[Address, list[float]] = {}
        self._connect = cluster.connect

    def connect(self, address: Address, *, timeout_s: float, **more: object) -> BrokerConnection:
        self.waits_s.setdefault(address, []).append(timeout_s)
        if timeout_s < self.after_s.get(address, 0):
            raise TimeoutError("no answer")
        return self._connect(address, **more)


class Reader(NamedTuple):
    """A reader, and the brokers as its questions and its fetches reach them."""

    client: DirectClient
    asked: LateBrokers
    fetched: LateBrokers

    def read(self) -> list[str]:
        """Read the log, and return the events on the way."""
        events, position = [], 0
        self.client.assign({TP: OffsetRange(Offset(0), Offset(20))}, ("offset",))
        while position < 20:
            found = self.client.poll({TP: 20}, 0.05)
            if isinstance(found, ReaderEvent):
                events.append(found.error.name())
            elif isinstance(found, Records):
                position = found.position
        self.client.unassign_all()
        return events


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    need_native_library()
    monkeypatch.setattr(range_reader, "_WARNED", set())
    cluster = log_of(2)
    client = client_of(cluster, FAST, **{"socket.timeout.ms": "5000"})
    made = Reader(client, LateBrokers(cluster), LateBrokers(cluster))
    client._questions.connect, client._fetchers._connect = made.asked.connect, made.fetched.connect
    yield made
    client.close()


def test_a_leader_that_answers_late_is_waited_for(reader: Reader) -> None:
    """Regression: no fetch could take longer than 5 s.  It was sent again for ever."""
    reader.fetched.after_s[LEADER] = 3
    assert reader.read() == ["_TIMED_OUT"] * 2
    assert reader.fetched.waits_s[LEADER] == [1, 2, 4]


def test_a_connection_that_is_kept_soon_notices_when_its_broker_stops(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after one outage, it waited up to a minute at the next one."""
    times: list[float] = []
    monkeypatch.setattr(scripted_broker._Connection, "set_timeout", lambda _, timeout_s: times.append(timeout_s))
    reader.fetched.after_s[LEADER] = 3
    reader.read()
    reader.read()
    assert (times[0], times[-1]) == (4, 1)


def test_a_broker_that_cannot_be_connected_to_is_not_waited_for_longer() -> None:
    """Regression: after seconds without a network, each answer was waited for up to a minute."""
    times = AnswerTime(60)
    for problem, expected in ((UnreachableError("timed out"), 1), (TimeoutError("no answer"), 2)):
        with pytest.raises(TimeoutError), times.wait():
            raise problem
        assert times._next_s == expected


def test_a_server_that_answers_late_is_waited_for_until_it_is_in_time_again(reader: Reader) -> None:
    """Regression: no other answer could take longer than 1 s."""
    reader.asked.after_s = dict.fromkeys([SERVER, LEADER, OTHER], 3)
    assert reader.read() == ["_TIMED_OUT"] * 2
    with pytest.raises(KafkaException, match="no answer"):
        reader.client.watermarks(TP, 5)
    assert reader.asked.waits_s == {SERVER: [1, 2, 4, 1], LEADER: [1], OTHER: [1]}


def test_the_log_of_a_leader_that_answers_late_is_known(reader: Reader) -> None:
    reader.asked.after_s[LEADER] = 3
    for _ in range(2):
        with pytest.raises(KafkaException, match="no answer"):
            reader.client.watermarks(TP, 5)
    assert reader.client.watermarks(TP, 5) == (0, 20)


def test_no_answer_is_waited_for_longer_than_the_user_says(reader: Reader) -> None:
    reader.fetched.after_s[LEADER] = 4.5
    reader.read()
    assert reader.fetched.waits_s[LEADER] == [1, 2, 4, 5]
