"""Spark's requests to the two writers, without Kafka."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_kafka_group.offsets.errors import ColumnError, ConfigurationError, OptionError
from pyspark_kafka_group.source import KafkaGroupDataSource
from pyspark_kafka_group.writers import KafkaGroupStreamWriter, KafkaGroupWriter
from pyspark_kafka_group.writing.batch_transactions import BatchTransactions
from pyspark_kafka_group.writing.commit_decision import TaskMessage, Transaction

SCHEMA = StructType([StructField("value", StringType())])
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
EXACTLY_ONCE = {**OPTIONS, "delivery": "exactly-once"}
OPEN = Transaction(0, 0, 7, 1)
DONE = TaskMessage(1, "q", ("t",), OPEN)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return the writers' calls to the transactions."""
    found: list[tuple[Any, ...]] = []
    for name in ("commit", "abort_all"):
        monkeypatch.setattr(
            BatchTransactions,
            name,
            lambda self, *given, name=name, **more: found.append((name, *given, *more.values())),
        )
    return found


def test_the_data_source_hands_out_writers_that_travel() -> None:
    source = KafkaGroupDataSource(dict(EXACTLY_ONCE))
    batch, stream = source.writer(SCHEMA, False), source.streamWriter(SCHEMA, True)
    assert isinstance(pickle.loads(pickle.dumps(batch)), KafkaGroupWriter)
    assert isinstance(pickle.loads(pickle.dumps(stream)), KafkaGroupStreamWriter)


def test_options_of_a_source_are_checked_where_spark_asks_for_its_schema() -> None:
    source = KafkaGroupDataSource(dict(OPTIONS))
    with pytest.raises(OptionError):
        source.schema()


def test_overwriting_is_refused_for_a_batch_only() -> None:
    with pytest.raises(ConfigurationError, match="Save mode Overwrite not allowed for Kafka"):
        KafkaGroupDataSource(dict(OPTIONS)).writer(SCHEMA, True)
    KafkaGroupDataSource(dict(OPTIONS)).streamWriter(SCHEMA, True)  # output mode complete


def test_columns_are_checked_before_any_task() -> None:
    with pytest.raises(ColumnError):
        KafkaGroupDataSource(dict(OPTIONS)).streamWriter(StructType([]), False)


def test_exactly_once_is_refused_where_own_connections_cannot_connect() -> None:
    options = {**EXACTLY_ONCE, "kafka.ssl.curves.list": "x"}
    with pytest.raises(OptionError, match=r"ssl\.curves\.list.*own connections"):
        KafkaGroupStreamWriter(options, SCHEMA)


def test_at_least_once_needs_no_commit(calls: list[tuple[Any, ...]]) -> None:
    KafkaGroupStreamWriter(OPTIONS, SCHEMA).commit([TaskMessage(1)], 3)
    KafkaGroupWriter(OPTIONS, SCHEMA, overwrite=False).abort([TaskMessage(1), None])
    assert calls == []


def test_exactly_once_commits_what_tasks_have_written(calls: list[tuple[Any, ...]]) -> None:
    KafkaGroupStreamWriter(EXACTLY_ONCE, SCHEMA).commit([DONE], 3)
    KafkaGroupWriter(EXACTLY_ONCE, SCHEMA, overwrite=False).commit([DONE])
    assert calls == [("commit", [DONE], 3), ("commit", [DONE], None)]


@pytest.mark.parametrize(
    ("messages", "of_stream", "of_batch"),
    [
        ([DONE, None], [("abort_all", True)], [("abort_all", False)]),
        ([None, None], [], [("abort_all", False)]),  # without any task, the name of the stream is unknown
        ([DONE], [], []),  # the commit has aborted what it may abort, and Kafka may have stored its decision
    ],
    ids=["failed tasks", "no task has ended", "a failed commit"],
)
def test_after_failed_tasks_all_open_transactions_are_aborted(
    calls: list[tuple[Any, ...]], messages: list[Any], of_stream: list[Any], of_batch: list[Any]
) -> None:
    KafkaGroupStreamWriter(EXACTLY_ONCE, SCHEMA).abort(messages, 3)
    KafkaGroupWriter(EXACTLY_ONCE, SCHEMA, overwrite=False).abort(messages)
    assert calls == [*of_stream, *of_batch]


@pytest.mark.parametrize("options", [OPTIONS, EXACTLY_ONCE])
def test_an_epoch_of_continuous_processing_is_not_committed(options: dict[str, str]) -> None:
    """In this mode, Spark sends no rows to a Python sink, and messages that are None."""
    with pytest.raises(ConfigurationError, match="does not support continuous processing"):
        KafkaGroupStreamWriter(options, SCHEMA).commit([None, None], 0)
