"""Which task of a batch read reads what."""

from __future__ import annotations

from typing import cast

import pytest

from pyspark_kafka_group.batch import planning
from pyspark_kafka_group.batch.planning import plan, ranges_now
from pyspark_kafka_group.batch.tasks import BatchTask
from pyspark_kafka_group.offsets.cluster.range_lookup import RangeLookup
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.batch_settings import BatchSettings, parse_batch
from tests.connector.batch.fake_lookup import FakeLookup, logs


def settings(**options: str) -> BatchSettings:
    return parse_batch({"kafka.bootstrap.servers": "x:1", "subscribe": "t", **options})


def planned(read: BatchSettings, lookup: FakeLookup) -> list[BatchTask]:
    return plan(read, cast(RangeLookup, lookup))


def sizes(
    monkeypatch: pytest.MonkeyPatch, read: BatchSettings, lookup: FakeLookup, tasks: list[BatchTask]
) -> list[int]:
    """Return how many offsets each task reads now."""
    monkeypatch.setattr(planning, "open_lookup", lambda _: lookup)
    return [sum(r.size for r in ranges_now(read, task).values()) for task in tasks]


def test_empty_partitions_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPARK-30656: the others are split as if they were not there; and they are read if they are filled later."""
    lookup, read = FakeLookup(logs(0, 20, 0)), settings(minPartitions="4")
    tasks = planned(read, lookup)
    assert sizes(monkeypatch, read, lookup, tasks) == [5, 5, 5, 5]
    lookup.logs = logs(3, 20, 4)
    assert sizes(monkeypatch, read, lookup, tasks) == [12, 5, 5, 5]


def test_an_empty_partition_has_no_task_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    lookup, read = FakeLookup(logs(2, 0, 3)), settings(minRecordsPerTask="1")
    assert sizes(monkeypatch, read, lookup, planned(read, lookup)) == [2, 3]


def test_a_topic_without_records_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lookup, read = FakeLookup(logs(0, 0)), settings()
    (task,) = planned(read, lookup)
    assert task.slices.keys() == {TopicPartition("t", 0), TopicPartition("t", 1)}
    lookup.logs = logs(1, 2, 5)  # and a partition was added
    assert sizes(monkeypatch, read, lookup, [task]) == [8]


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_json_names_just_what_is_read(option: str) -> None:
    word = "earliest" if option == "startingOffsets" else "latest"
    for text, problem in (
        ('{"t": {"0": 1}}', "it does not name t-1."),
        ('{"t": {"0": 1, "1": 1, "2": 1}}', "it names t-2, which is not read."),
        (f'{{"t": "{word}", "u": "{word}"}}', "it names u, which is not read."),
    ):
        with pytest.raises(OptionError) as raised:
            planned(settings(**{option: text}), FakeLookup(logs(2, 2)))
        assert raised.value.option == option
        assert problem in str(raised.value)
