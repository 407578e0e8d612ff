"""How the stream reader in the source process ends."""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import signal
from collections.abc import Iterator
from typing import Any, ClassVar, cast
from unittest.mock import MagicMock

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_kafka_group import stream_reader
from pyspark_kafka_group.offsets.errors import TriggerError
from pyspark_kafka_group.offsets.task_ranges import Task
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.query import query as query_module
from pyspark_kafka_group.query.process import prepare_source_process
from pyspark_kafka_group.reading import task_reader
from pyspark_kafka_group.reading.client_cache import ConsumerCache, open_client
from pyspark_kafka_group.stream_reader import StreamReader, TaskPartition
from pyspark_kafka_group.stream_reader_40 import OlderStreamReader
from pyspark_kafka_group.stream_reader_42 import KafkaGroupStreamReader
from pyspark_kafka_group.wire.types import Address

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"}


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
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    reader = KafkaGroupStreamReader(parse(OPTIONS))
    prepare_source_process(reader._interrupt, reader.stop)
    yield reader
    atexit.unregister(reader.stop)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_comes_after_the_end_of_requests_does_not_keep_the_member_from_leaving(
    reader: KafkaGroupStreamReader,
) -> None:
    """Regression: on a busy machine, the source process saw its socket end before Spark's SIGTERM arrived.

    The signal then kept the member from leaving, and the member kept its partitions until its session timed out.
    """
    query = LeavingQuery()
    reader._query = cast(Any, query)
    reader.stop()
    assert query.left


def test_a_signal_between_two_calls_ends_the_process_with_the_reason(reader: KafkaGroupStreamReader) -> None:
    with pytest.raises(SystemExit, match="has ended the source process while its query was running"):
        os.kill(os.getpid(), signal.SIGTERM)


class WarmingQuery:
    """A query that warms up with this many tasks, or does not warm up."""

    leaders: ClassVar[dict[TopicPartition, Address]] = {}

    def __init__(self, tasks: int) -> None:
        self.warming_tasks = tasks
        self.calls: list[str] = []

    def check_running(self) -> None:
        pass

    def running_ranges(self, _start: object, _end: object) -> Task:
        return {}

    def read_all(self) -> None:
        self.calls.append("all")

    def latest_offset(self, start: dict[str, Any], max_rows: int | None) -> dict[str, Any]:
        self.calls.append(str(max_rows))
        return start


@pytest.mark.parametrize("tasks", [0, 3])
def test_the_batch_that_warms_up_has_tasks_without_ranges(reader: KafkaGroupStreamReader, tasks: int) -> None:
    reader._query = cast(Any, WarmingQuery(tasks))
    assert reader.partitions({}, {}) == [TaskPartition({})] * tasks


def test_a_task_without_ranges_leaves_a_client_in_the_cache(
    reader: KafkaGroupStreamReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = MagicMock(side_effect=open_client)
    cache = ConsumerCache(opened)
    monkeypatch.setattr(task_reader, "CONSUMERS", cache)
    for _ in range(2):
        assert list(reader.read(TaskPartition({}))) == []
    assert opened.call_count == 1
    cache.close_idle()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, "None"),
        ({"maxOffsetsPerTrigger": "5"}, "5"),
        ({"minOffsetsPerTrigger": "5"}, "None"),
        ({"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "5"}, "5"),
    ],
)
def test_the_limit_of_a_batch_is_that_of_the_options(
    reader: KafkaGroupStreamReader, options: dict[str, str], limit: str
) -> None:
    query = WarmingQuery(0)
    reader._settings, reader._query = parse(OPTIONS | options), cast(Any, query)
    reader.latestOffset({}, reader.getDefaultReadLimit())
    assert query.calls == [limit]


def test_a_trigger_that_runs_once_is_an_error_and_plans_no_batch(reader: KafkaGroupStreamReader) -> None:
    query = WarmingQuery(0)
    reader._query = cast(Any, query)
    with pytest.raises(TriggerError, match="Use trigger\\(availableNow=True\\)"):
        reader.latestOffset({}, ReadAllAvailable())
    assert query.calls == []


@pytest.mark.parametrize("version", [KafkaGroupStreamReader, OlderStreamReader])
def test_only_with_old_versions_the_first_batch_waits_for_partitions_of_other_members(
    version: type[StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = MagicMock()
    monkeypatch.setattr(stream_reader, "prepare_source_process", lambda *_: None)
    monkeypatch.setattr(query_module, "Query", query)
    version(parse(OPTIONS)).initialOffset()
    assert [call.kwargs for call in query.call_args_list] == [{"patient": version is OlderStreamReader}]


def test_neither_imports_nor_plans_set_off_the_search_for_cyclic_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Python would search the plan for 10,000 partitions a hundred times while the query makes it."""
    thresholds = gc.get_threshold()
    monkeypatch.setattr(stream_reader, "prepare_source_process", lambda *_: None)
    monkeypatch.setattr(query_module, "Query", lambda *_, **__: WarmingQuery(0))
    try:
        KafkaGroupStreamReader(parse(OPTIONS)).initialOffset()
        gc.collect()
        before = gc.get_stats()
        kept = [[] for _ in range(20_000)]  # type: ignore[var-annotated]  # the elements do not matter
        assert gc.get_stats() == before
        assert len(kept) == 20_000
    finally:
        gc.set_threshold(*thresholds)


@pytest.mark.parametrize(
    "ranges",
    [{}, {TopicPartition("t", 3): OffsetRange.checked(5, 9), TopicPartition("u", 0): OffsetRange.checked(0, 2**62)}],
)
def test_a_task_survives_its_way_to_an_executor(ranges: Task) -> None:
    assert pickle.loads(pickle.dumps(TaskPartition(ranges))) == TaskPartition(ranges)


def test_small_ranges_are_handed_out_by_leader(reader: KafkaGroupStreamReader) -> None:
    """The poll of the log ends finds the leaders, and the reader passes them on."""
    partitions = [TopicPartition("t", n) for n in range(4)]
    query: Any = WarmingQuery(0)
    query.leaders = {tp: Address("broker", tp.partition % 2) for tp in partitions}
    query.running_ranges = lambda *_: {tp: OffsetRange.checked(0, 5000) for tp in partitions}
    reader._query = query
    tasks = [cast(TaskPartition, task).ranges for task in reader.partitions({}, {})]
    assert [[tp.partition for tp in task] for task in tasks] == [[0, 2], [1, 3]]
