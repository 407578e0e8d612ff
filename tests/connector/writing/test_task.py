"""The order of the steps that a task takes with its transaction, without Spark and Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from pyspark_kafka_group.offsets.errors import DeliveryError, SinkTransactionError
from pyspark_kafka_group.writing import task
from pyspark_kafka_group.writing.commit_decision import Transaction
from pyspark_kafka_group.writing.options import parse_write_options
from pyspark_kafka_group.writing.producer_requests import ProducerId
from pyspark_kafka_group.writing.record_rows import RecordColumns, record_rows
from pyspark_kafka_group.writing.row_digest import digest_of, total
from pyspark_kafka_group.writing.task import write_rows

SETTINGS = parse_write_options({"kafka.bootstrap.servers": "b", "topic": "t", "delivery": "exactly-once"})
OPENED = Transaction(2, 1, 7, 3)


class World:
    """The task, its transactions and its producer.  Records the calls that it gets."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.decided = False
        self.begun: ProducerId | None = None
        self.epoch_before = OPENED.epoch - 1

    def run(self, batches: Iterator[pa.RecordBatch]) -> Any:
        return write_rows(batches, SETTINGS, RecordColumns(value=0), job=None)

    # -- TaskContext

    def partitionId(self) -> int:
        return OPENED.task

    def attemptNumber(self) -> int:
        return 1

    def getLocalProperty(self, key: str) -> str | None:
        return {"sql.streaming.queryId": "q", "streaming.sql.batchId": "5"}.get(key)

    # -- BatchTransactions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def was_decided(self, batch: int) -> bool:
        assert batch == 5
        return self.decided

    def free_slot(self, number: int, attempt: int) -> tuple[int, int]:
        assert (number, attempt) == (OPENED.task, 1)
        return OPENED.slot, self.epoch_before

    def transactional_id(self, number: int, slot: int) -> str:
        return f"q-{number}-{slot}"

    def opened(self, number: int, slot: int) -> Transaction:
        assert (number, slot) == (OPENED.task, OPENED.slot)
        self.done.append("ask")
        return OPENED

    def abort(self, transactions: list[Transaction]) -> None:
        self.done.append(("abort", *transactions))

    # -- SinkProducer

    def begin_transaction(self) -> ProducerId | None:
        self.done.append("begin")
        return self.begun

    def send(self, rows: Any) -> None:
        self.done.append(("send", rows.value.to_pylist()))

    def flush(self) -> None:
        self.done.append("flush")

    def close(self) -> None:
        self.done.append("close")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(task, "_task", lambda: made)
    monkeypatch.setattr(task, "BatchTransactions", lambda _settings, _name: made)
    monkeypatch.setattr(task, "open_producer", lambda _config: made)
    return made


def rows(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.string())})


def test_a_transaction_is_left_open_when_everything_is_written(world: World) -> None:
    message = world.run(iter([rows(), rows("a"), rows("b", "c")]))
    assert world.done == ["begin", "ask", ("send", [b"a"]), ("send", [b"b", b"c"]), "flush", "close"]
    assert (message.rows, message.name, message.topics, message.transaction) == (3, "q", ("t",), OPENED)
    assert message.digest.rows == 3


def test_a_producer_that_tells_its_id_is_not_asked_for_at_the_coordinator(world: World) -> None:
    world.begun = ProducerId(OPENED.producer_id, OPENED.epoch)
    message = world.run(iter([rows("a")]))
    assert world.done == ["begin", ("send", [b"a"]), "flush", "close"]
    assert message.transaction == OPENED


def test_a_task_that_fails_sends_nothing_behind_the_abort(world: World) -> None:
    """Otherwise old brokers would keep the transaction open for ever."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows("a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        world.run(failing())
    assert world.done == ["begin", "ask", ("send", [b"a"]), "close", ("abort", OPENED)]


def test_a_task_that_fails_does_not_abort_the_transaction_of_another_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: another attempt took over the id before the task asked for its producer, and then lost rows."""
    fenced = DeliveryError(topic="t", partition=0, code="_FENCED", text="", remedy="")
    world.epoch_before = OPENED.epoch - 2
    monkeypatch.setattr(World, "send", MagicMock(side_effect=fenced))
    with pytest.raises(DeliveryError):
        world.run(iter([rows("a")]))
    assert world.done == ["begin", "ask", "close"]


def test_a_task_that_spark_has_ended_leaves_nothing_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the task took the end of its connection for the end of its rows, and left its transaction open."""
    monkeypatch.setattr(task, "jvm_is_gone", lambda: True)
    with pytest.raises(SinkTransactionError, match="Spark has ended this task"):
        world.run(iter([rows("a")]))
    assert world.done == ["begin", "ask", ("send", [b"a"]), "flush", "close", ("abort", OPENED)]


def test_a_task_that_cannot_begin_has_nothing_to_abort(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "begin_transaction", MagicMock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        world.run(iter([rows("a")]))
    assert world.done == ["close"]


def test_of_a_batch_that_was_decided_all_rows_are_read_and_none_is_written(world: World) -> None:
    """Spark continues to send them."""
    world.decided = True
    left = iter([rows("a"), rows("b")])
    message = world.run(left)
    assert (message.rows, message.decided, message.transaction) == (0, True, None)
    assert message.digest == total(digest_of(record_rows(row, RecordColumns(value=0), "t")) for row in map(rows, "ab"))
    assert next(left, None) is None
    assert world.done == []


def test_a_task_without_rows_takes_no_transactional_id(world: World) -> None:
    message = world.run(iter([rows()]))
    assert (message.rows, message.decided, message.transaction) == (0, False, None)
    assert world.done == []
