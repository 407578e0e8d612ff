"""The stream reader in the source process: how it ends."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from typing import Any, cast

import pytest

from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.query.process import prepare_source_process
from pyspark_kafka_group.reading.task_ranges import Task
from pyspark_kafka_group.stream_reader import KafkaGroupStreamReader, TaskPartition


class LeavingQuery:
    """A query that gets SIGTERM while it leaves the group."""

    def __init__(self) -> None:
        self.left = False

    def interrupt(self) -> bool:
        raise AssertionError("no call is running")

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        self.left = True


@pytest.fixture
def reader() -> Iterator[KafkaGroupStreamReader]:
    before = signal.getsignal(signal.SIGTERM)
    settings = parse({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"})
    reader = KafkaGroupStreamReader(settings)
    prepare_source_process(reader._interrupt)
    yield reader
    signal.signal(signal.SIGTERM, before)


def test_a_signal_that_comes_after_the_end_of_requests_does_not_keep_the_member_from_leaving(
    reader: KafkaGroupStreamReader,
) -> None:
    """Regression: on a busy machine the source process saw its socket end before Spark's SIGTERM arrived; the signal
    then broke off the leaving, and the member kept its partitions until its session timed out."""
    query = LeavingQuery()
    reader._run = cast(Any, query)
    reader.stop()
    assert query.left


def test_a_signal_between_two_calls_ends_the_process_with_the_reason(reader: KafkaGroupStreamReader) -> None:
    with pytest.raises(SystemExit, match="ended by SIGTERM while its query went on"):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    "ranges",
    [{}, {TopicPartition("t", 3): OffsetRange.checked(5, 9), TopicPartition("u", 0): OffsetRange.checked(0, 2**62)}],
)
def test_a_task_survives_its_way_to_an_executor(ranges: Task) -> None:
    assert pickle.loads(pickle.dumps(TaskPartition(ranges))) == TaskPartition(ranges)
