"""How a batch read distributes its offsets among tasks."""

from __future__ import annotations

from typing import cast
from unittest.mock import patch

import pytest

from pyspark_kafka_group.batch.planning import plan
from pyspark_kafka_group.cluster.range_lookup import RangeLookup
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.task_ranges import Task
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.options.batch_settings import BatchSettings, parse_batch
from tests.connector.batch.fake_lookup import FakeLookup, logs


def settings(**options: str) -> BatchSettings:
    return parse_batch({"kafka.bootstrap.servers": "x:1", "subscribe": "t", **options})


def planned(read: BatchSettings, lookup: FakeLookup) -> list[Task]:
    return plan(read, cast(RangeLookup, lookup))


def sizes(tasks: list[Task]) -> list[int]:
    """Return the number of offsets of each task."""
    return [sum(r.size for r in task.values()) for task in tasks]


def test_empty_partitions_count_for_nothing() -> None:
    """SPARK-30656: the plan splits the other partitions as if the empty ones did not exist."""
    assert sizes(planned(settings(minPartitions="4"), FakeLookup(logs(0, 20, 0)))) == [5, 5, 5, 5]


def test_an_empty_partition_has_no_task() -> None:
    assert sizes(planned(settings(minRecordsPerTask="1"), FakeLookup(logs(2, 0, 3)))) == [2, 3]


def test_there_is_one_task_at_least() -> None:
    """If the plan has no task, Spark adds one."""
    assert planned(settings(), FakeLookup(logs(0, 0))) == [{}]


def test_a_plan_does_not_change_with_the_log() -> None:
    lookup = FakeLookup(logs(20))
    tasks = planned(settings(maxRecordsPerPartition="10"), lookup)
    lookup.logs = logs(50, 70)
    tp = TopicPartition("t", 0)
    assert tasks == [{tp: OffsetRange(Offset(0), Offset(10))}, {tp: OffsetRange(Offset(10), Offset(20))}]


def test_a_missing_topic_is_a_mistake_in_the_option_that_names_it() -> None:
    lookup = FakeLookup(logs(1))
    with patch.object(lookup, "topics", wraps=lookup.topics) as topics:
        planned(settings(), lookup)
        planned(parse_batch({"kafka.bootstrap.servers": "x:1", "assign": '{"t": [0]}'}), lookup)
    assert [call.kwargs.get("option", "subscribe") for call in topics.call_args_list] == ["subscribe", "assign"]


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
