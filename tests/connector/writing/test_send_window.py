"""Few records wait in a producer, and more only if that raises the throughput."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.writing import send_window
from pyspark_kafka_group.writing.native_producer import NativeProducer
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.record_rows import RecordColumns, record_rows
from pyspark_kafka_group.writing.send_window import SendWindow
from tests.connector.reading.clients import need_native_library

TOPIC, FEWEST, MOST = "t", 10_000, 200_000
BATCH = pa.record_batch({"value": pa.array([b"%d" % n for n in range(1000)])})


def written(window: SendWindow, seconds: float, rate: Callable[[int], float], *, stalled_s: float = 0.0) -> None:
    """Write for some seconds to brokers that first stall, and then take ``rate(window.size)`` records a second."""
    waiting, now, step_s = 0.0, 0.0, 0.001
    while now < seconds:
        was_full = False
        while waiting + window.step > window.size and now < seconds:
            was_full = True
            now += step_s
            waiting = max(0.0, waiting - (rate(window.size) * step_s if now > stalled_s else 0.0))
        window.add(window.step, waiting=int(waiting), was_full=was_full, now=now)
        waiting += window.step


def test_it_stays_small_where_brokers_or_processors_are_the_limit() -> None:
    for rate in (40_000, 100_000, 1_000_000):
        window = SendWindow(MOST)
        written(window, 4.0, lambda _, rate=rate: rate)  # type: ignore[misc]
        assert window.size == FEWEST
        # The period in which a stall ends looks slow, so the next periods look better.
        window = SendWindow(MOST)
        written(window, 4.0, lambda _, rate=rate: rate, stalled_s=0.55)  # type: ignore[misc]
        assert window.size <= 4 * FEWEST


def test_it_grows_where_the_way_is_long() -> None:
    """One window of records leaves with each round trip, until the network is full."""
    window = SendWindow(MOST)
    written(window, 2.0, lambda size: size / 0.05)
    assert window.size == MOST
    window = SendWindow(MOST)
    written(window, 1.0, lambda size: min(size / 0.05, 300_000))
    assert window.size <= 2 * FEWEST


def test_what_was_not_worth_it_is_tried_again_after_a_time() -> None:
    window, fast = SendWindow(MOST), [False]
    written(window, 4.0, lambda size: size / 0.05 if fast[0] else 50_000)
    assert window.size == FEWEST
    fast[0] = True
    window.begin_task()
    written(window, 8.0, lambda size: size / 0.05 if fast[0] else 50_000)
    assert window.size == MOST


def test_who_is_slower_than_the_brokers_tells_nothing() -> None:
    window = SendWindow(MOST)
    for now in range(100):
        window.add(100, waiting=0, was_full=False, now=float(now))
    assert window.size == FEWEST


@pytest.mark.parametrize("most", [0, 1, 2])
def test_there_is_always_room_for_a_record(most: int) -> None:
    window = SendWindow(most)
    written(window, 1.0, lambda size: 100.0 * size)
    assert 1 <= window.step <= window.size == max(1, most)


@pytest.fixture
def mock() -> Iterator[MockKafka]:
    need_native_library()
    with MockKafka() as cluster:
        cluster.create_topic(TOPIC, 2)
        yield cluster


class Watched(NativeProducer):
    """Records how many rows wait when it adds the next ones, and how many may wait."""

    def _make_room(self, rows: int) -> None:
        size = self._window.size
        super()._make_room(rows)
        waiting = self._kafka.rd_kafka_outq_len(self._handle) + rows
        self.seen = [*getattr(self, "seen", ()), (waiting, size)]


def test_no_more_wait_than_the_window_holds(mock: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_window, "_FEWEST", 100)
    producer = Watched(producer_config({"bootstrap.servers": mock.bootstrap_servers, "linger.ms": "0"}))
    producer.send(record_rows(BATCH, RecordColumns(value=0), TOPIC))
    producer.flush()
    producer.close()
    assert all(waiting <= size for waiting, size in producer.seen)
    assert producer.seen[0][1] == 100


def test_where_records_leave_slowly_more_are_sent_at_a_time(mock: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_window, "_FEWEST", 100)
    mock.set_round_trip_ms(1, 150)
    producer = Watched(producer_config({"bootstrap.servers": mock.bootstrap_servers}))
    producer.send(record_rows(BATCH, RecordColumns(value=0), TOPIC))
    producer.flush()
    producer.close()
    assert max(waiting for waiting, _ in producer.seen) > 200


def test_the_users_limit_holds(mock: MockKafka) -> None:
    limits = {"queue.buffering.max.messages": "10", "linger.ms": "0"}
    producer = Watched(producer_config({"bootstrap.servers": mock.bootstrap_servers, **limits}))
    producer.send(record_rows(BATCH.slice(0, 50), RecordColumns(value=0), TOPIC))
    producer.flush()
    producer.close()
    assert max(waiting for waiting, _ in producer.seen) <= 10
