"""The figures of a benchmark, from progress events and histograms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import commit, decoding, kafka_to_kafka, throughput
from benchmarks.ceiling import of_partition, ready_made
from benchmarks.latency import Sink
from benchmarks.processes import Watch
from benchmarks.queries import Batch, batches_of, rotated
from benchmarks.records import Shape
from benchmarks.throughput import Variant, records_for, variants
from pyspark_kafka_group.columns.schema import COLUMNS, DEFAULT_COLUMNS, arrow_schema
from pyspark_kafka_group.offsets.notes import read_commit
from pyspark_kafka_group.tools.analysis.group_records import CommitRecord, decode


def _progress(rows: int, begin: str, **durations: int) -> str:
    return json.dumps({"numInputRows": rows, "timestamp": f"2026-11-21T02:00:{begin}Z", "durationMs": durations})


def _batch(begin: float, trigger_s: float, rows: int = 1_000_000) -> Batch:
    return Batch(rows=rows, begin=begin, trigger_s=trigger_s, add_batch_s=trigger_s / 2, durations_ms={})


def test_batches_are_those_progress_events_that_have_records() -> None:
    found = batches_of(
        [
            _progress(0, "00.000", triggerExecution=5),
            _progress(7, "01.500", triggerExecution=200, addBatch=150),
            _progress(0, "02.000", triggerExecution=90, addBatch=50),
        ]
    )
    assert [(batch.rows, batch.trigger_s, batch.add_batch_s) for batch in found] == [(7, 0.2, 0.15)]
    assert found[0].end - found[0].begin == pytest.approx(0.2)


def test_throughput_leaves_out_the_first_batch() -> None:
    batches = [_batch(0, 10.0), _batch(10, 1.0), _batch(11, 3.0)]
    measured = throughput.figures(batches, Shape(value_size=100), Watch(), in_python=False)
    assert measured["records_per_s"] == 500_000
    assert measured["records_per_s_read"] == 1_000_000
    assert measured["mb_per_s"] == 50
    assert measured["worker_rss_mb"] is None


def test_a_run_of_one_batch_has_no_steady_throughput() -> None:
    with pytest.raises(RuntimeError, match="--batches"):
        throughput.figures([_batch(0, 1.0)], Shape(), Watch(), in_python=False)


def test_variants_differ_from_the_base_in_one_factor_each() -> None:
    some: dict[str, list[Any]] = {"value_size": [10, 100], "codec": ["lz4"], "headers": [2], "partitions": [1]}
    found = variants({**some, "sink": ["aggregation"], "columns": ["value"]})
    names = ["base: 100 B, 8 part.", "10 B", "lz4", "headers", "1 partition", "aggregation", "value only"]
    assert [v.name for v in found] == names
    assert found[0] == Variant()


def test_variants_that_read_the_same_records_share_a_topic() -> None:
    assert Variant(sink="aggregation").topic_key == Variant().topic_key
    assert Variant(codec="lz4").topic_key != Variant().topic_key


def test_large_records_make_a_topic_shorter() -> None:
    assert records_for(Shape(value_size=84, key_size=16), 6_000_000, 1_500) == 6_000_000
    assert records_for(Shape(value_size=9_984, key_size=16), 6_000_000, 1_500) == 150_000


def test_each_source_is_first_in_turn() -> None:
    assert [rotated("abc", n)[0] for n in range(4)] == ["a", "b", "c", "a"]
    assert sorted(rotated("abc", 2)) == ["a", "b", "c"]


def test_commits_are_judged_after_the_first_batches() -> None:
    slow = [_batch(n, 0.9) for n in range(2)]
    measured = commit.figures([*slow, _batch(2.0, 0.1), _batch(2.2, 0.1), _batch(2.6, 0.1)])
    assert measured["batch_ms"] == pytest.approx(100)
    assert measured["cycle_ms"] == pytest.approx(300)
    assert measured["batches"] == 3


def test_latencies_from_topic_to_topic_begin_after_the_warm_up() -> None:
    records = [(1000, 1900), (2999, 3000), (3000, 3250), (4999, 5249), (5000, 9000)]
    assert kafka_to_kafka.latencies(records, warm_up_s=2, seconds=2) == {250: 2}
    assert not kafka_to_kafka.latencies([], warm_up_s=2, seconds=2)


def test_a_latency_counts_only_records_of_the_window() -> None:
    sink = Sink()
    sink.take({500: 9}, 1_000.0)
    sink.begin, sink.end = 1_000.0, 2_000.0
    sink.take({999: 1, 1_000: 2, 1_500: 3}, 1_600.0)
    sink.take({1_999: 4, 2_000: 5}, 2_100.0)
    assert sink.latencies == {600.0: 2, 100.0: 3, 101.0: 4}
    assert sink.newest == 2_000


@pytest.mark.parametrize("headers", [0, 2])
def test_ready_made_batches_have_the_columns_of_the_source(headers: int) -> None:
    shape = Shape(value_size=50, headers=headers)
    batch = of_partition(ready_made(shape, 10), 3)
    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(COLUMNS if headers else DEFAULT_COLUMNS))
    assert batch.column("partition").to_pylist() == [3] * 10
    assert {len(value) for value in batch.column("value").to_pylist()} == {50}
    assert batch.column("value").to_pylist() == shape.values()[:10]


@pytest.mark.parametrize("size", [1, 10, 100, 10_000])
def test_values_have_the_size_asked_for_and_differ(size: int) -> None:
    values = Shape(value_size=size).values()
    assert {len(value) for value in values} == {size}
    assert len(set(values)) > (1 if size == 1 else len(values) // 2)


def test_keys_have_the_size_asked_for() -> None:
    assert Shape(key_size=4).key(123_456) == b"3456"
    assert Shape(key_size=4).key(1) == b"0001"
    assert Shape(key_size=0).key(1) is None


def test_the_data_of_a_record_is_its_key_value_and_headers() -> None:
    shape = Shape(value_size=100, key_size=16, headers=2)
    written = sum(len(name) + len(value or b"") for name, value in shape.header_list())
    assert shape.data_bytes == 100 + 16 + written


def test_commits_are_decoded_as_what_they_were_made_of() -> None:
    for arm in decoding.ARMS:
        measured = decoding.run(arm, 3_000)
        assert measured["records_per_s"]
    key, value = decoding.commits(7)[6]
    found = decode(key, value)
    assert isinstance(found, CommitRecord)
    assert (found.tp, found.offset, found.topic_id) == (("orders", 6), 6, decoding.TOPIC_ID)
    assert read_commit(found.metadata) is not None
