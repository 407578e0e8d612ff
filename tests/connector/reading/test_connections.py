"""The number of connections that a worker keeps to a cluster of many brokers, counted by the brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from pyspark_kafka_group.offsets.task_ranges import TaskSizes, pack
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading import fetcher
from pyspark_kafka_group.reading.client_cache import open_client
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.reader_client import ReaderEvent, Records
from pyspark_kafka_group.reading.reader_config import reader_config
from tests.connector.columns.batches import batch_of
from tests.connector.columns.test_from_messages import record
from tests.connector.reading.clients import need_native_library
from tests.connector.reading.socket_brokers import SocketBrokers, socket_brokers

BROKERS, RECORDS = 12, 10


@pytest.fixture
def brokers() -> Iterator[SocketBrokers]:
    need_native_library()
    batch = batch_of([record(offset, value=b"%d" % offset) for offset in range(RECORDS)])
    with socket_brokers(BROKERS, "orders", 10 * BROKERS, batch) as made:
        yield made


@pytest.fixture
def client(brokers: SocketBrokers, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectClient]:
    def fall_back(_: DirectClient, reason: object) -> None:
        # These brokers answer only our own requests.  librdkafka aborts the process at their answers.
        raise AssertionError(f"librdkafka should read: {reason!r}")

    monkeypatch.setattr(DirectClient, "_fall_back", fall_back)
    opened = cast(DirectClient, open_client(reader_config({"bootstrap.servers": brokers.bootstrap_servers}, "etl")))
    yield opened
    opened.close()


def read(client: DirectClient, *partitions: int) -> None:
    """Read a batch of each of these partitions."""
    ends = {TopicPartition("orders", n): RECORDS for n in partitions}
    client.assign({tp: OffsetRange.checked(0, RECORDS) for tp in ends}, ("value",))
    while ends:
        found = client.poll(ends, 5.0)
        assert isinstance(found, Records)
        if found.position >= RECORDS:
            del ends[found.tp]
            client.unassign(found.tp)
    client.unassign_all()


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_a_worker_connects_to_those_brokers_only_that_lead_what_it_reads(
    brokers: SocketBrokers, client: DirectClient
) -> None:
    read(client, 3, 3 + BROKERS)
    assert eventually(lambda: brokers.connected == 1)  # without the connection that found the leader
    assert brokers.connections[brokers.leader(3)] == 1
    read(client, 3)
    assert brokers.accepted == 2, "the connection is used again"


def test_an_unused_connection_is_closed_and_comes_back(
    brokers: SocketBrokers, client: DirectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "IDLE_S", 0.05)
    read(client, 3, 4)
    assert eventually(lambda: brokers.connected == 0)
    read(client, 3)
    assert client._fallback is None


def test_of_many_connections_those_used_last_are_kept(brokers: SocketBrokers, client: DirectClient) -> None:
    for number in range(BROKERS):
        read(client, number)
    assert eventually(lambda: brokers.connected == fetcher.MOST_KEPT)
    assert [brokers.connections[brokers.leader(n)] for n in range(BROKERS)] == [0] * 4 + [1] * 8
    read(client, *range(BROKERS))  # a task opens as many as it needs
    assert eventually(lambda: brokers.connected == fetcher.MOST_KEPT)


def test_a_broker_that_stops_costs_only_its_own_connection(brokers: SocketBrokers, client: DirectClient) -> None:
    """Regression: the reader closed all connections each time, and fetched the same from healthy brokers again.

    A healthy broker whose fetches took longer than a second brought nothing for as long as the other one was away.
    """
    ends = {TopicPartition("orders", n): 1_000_000 for n in (0, 1)}
    client.assign({tp: OffsetRange.checked(0, end) for tp, end in ends.items()}, ("offset",))
    assert isinstance(client.poll(ends, 5.0), Records)
    fetcher_of = {**client._fetchers._by_address}
    brokers._brokers[1].close()
    while not isinstance(found := client.poll(ends, 5.0), ReaderEvent):
        assert found is not None
    assert client._fetchers._by_address == {brokers.leader(0): fetcher_of[brokers.leader(0)]}
    assert isinstance(found := client.poll(ends, 5.0), Records)
    assert found.tp.partition == 0


def test_small_ranges_are_handed_out_by_leader(brokers: SocketBrokers) -> None:
    ranges = {TopicPartition("orders", n): OffsetRange.checked(0, RECORDS) for n in range(10 * BROKERS)}
    leaders = {tp: brokers.leader(tp.partition) for tp in ranges}
    sizes = TaskSizes(min_records=15 * RECORDS)
    tasks = pack(ranges, sizes, leaders)
    assert [len(task) for task in tasks] == [len(task) for task in pack(ranges, sizes)]
    assert {tp for task in tasks for tp in task} == ranges.keys()
    assert max(len({leaders[tp] for tp in task}) for task in tasks) == 2
    assert min(len({leaders[tp] for tp in task}) for task in pack(ranges, sizes)) == BROKERS
