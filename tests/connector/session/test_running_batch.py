"""Find out what a batch of ``foreachBatch`` reads.  Spark names its end, and the source process adds the rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.session import running_batch as module
from pyspark_kafka_group.session.running_batch import RunningBatch, running_batch

BATCH = cast(DataFrame, SimpleNamespace(sparkSession=SimpleNamespace()))
READ = {"orders": {"0": [5, 9, 5, True, "id"]}}
RANGES = {TopicPartition("orders", 0): ReadRange(Offset(5), Offset(9), Offset(5), True, "id")}


def end(query: str = "q", topic: str = "orders") -> dict[str, Any]:
    return {"version": 2, "query": query, "topics": {topic: {}}}


OURS, OTHER = module._End(end(), True), module._End(17, True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the answer of each source process, by the id of its query."""
    answers: dict[str, Any] = {}
    monkeypatch.setattr(module, "ask_for_batch", lambda query, _end: answers.get(query))
    return answers


def found(monkeypatch: pytest.MonkeyPatch, *ends: module._End) -> RunningBatch | None:
    monkeypatch.setattr(module, "_ends", lambda _batch: iter(ends))
    return running_batch(BATCH, 7, None)


@pytest.mark.parametrize("uses", [1, 2])
def test_the_source_process_says_what_is_read_also_if_a_load_is_used_twice(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], uses: int
) -> None:
    asked["q"] = READ
    expected = RunningBatch(RANGES, foreign=False, topics=frozenset({"orders"}))
    assert found(monkeypatch, *[OURS] * uses) == expected


def test_a_batch_for_watermarks_reads_nothing(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> None:
    """After a restart, there may be no source process to ask."""
    del asked
    assert found(monkeypatch, module._End(end(), False)) == RunningBatch({}, topics=frozenset({"orders"}))


def test_a_source_process_that_does_not_answer_ends_the_batch(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    del asked
    with pytest.raises(ConfigurationError, match="Batch 7: the source process of this query does not say"):
        found(monkeypatch, OURS)


def test_one_partition_of_two_sources_is_refused(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> None:
    asked.update(q=READ, p=READ)
    with pytest.raises(ConfigurationError, match="Two sources of this query read orders-0"):
        found(monkeypatch, module._End(end("q"), True), module._End(end("p"), True))


def test_other_sources_may_be_beside_it(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> None:
    asked["q"] = READ
    batch = found(monkeypatch, OURS, OTHER)
    assert batch is not None
    assert batch.may_be_of_others(TopicPartition("payments", 0))
    assert not batch.may_be_of_others(TopicPartition("orders", 1))
    assert found(monkeypatch, OTHER, module._End({"orders": {"0": 5}}, True)) is None


def test_spark_connect_needs_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_remote", lambda _session: True)
    with pytest.raises(ConfigurationError, match=r"Give the table checkpoint=\.\.\."):
        running_batch(BATCH, 7, None)
