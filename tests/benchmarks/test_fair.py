"""The benchmark that has all ratios over Spark's own source and sink in one table."""

from __future__ import annotations

import argparse
from datetime import timedelta

from benchmarks.fair import PARTS, arguments, estimate, fair_cells
from benchmarks.results import Cell, Result
from benchmarks.throughput import variants
from benchmarks.views import BUILTIN, EXACTLY_ONCE, OURS, TUNED, tables


def _cell(arms: dict[str, float], **factors: object) -> Cell:
    cell = Cell(name="of the part", factors=factors)
    for arm, records_per_s in arms.items():
        cell.add(arm, {"records_per_s": records_per_s, "seconds": 1.0})
    return cell


def test_one_table_has_all_ratios() -> None:
    reading = _cell({BUILTIN: 1e6, TUNED: 2e6, OURS: 3e6}, codec="zstd")
    writing = _cell({BUILTIN: 1e6, TUNED: 2e6, OURS: 1e6, EXACTLY_ONCE: 5e5}, codec="none", value_size=1000)
    result = Result(benchmark="fair", quick=False, taken="", machine={}, settings={})
    result.cells = fair_cells("stream", [reading]) + fair_cells("sink", [writing])
    (table,) = tables(result)
    assert table.header == ["", "ours / Spark", "ours / tuned", "exactly once / tuned"]
    assert table.rows == [
        ["stream, 100 B, zstd", "3.00", "1.50", "-"],
        ["sink, 1 kB, none", "1.00", "0.500", "0.250"],
    ]


def test_two_rounds_fit_into_a_coffee_break() -> None:
    assert estimate(PARTS, 2) < timedelta(minutes=25)


def test_each_part_has_the_rounds_and_the_records() -> None:
    given = argparse.Namespace(rounds=2, records=600)
    stream, batch, sink = (arguments(name, given) for name in PARTS)
    assert (stream.repetitions, stream.base_repetitions, stream.records) == (2, 2, 600)
    assert (batch.repetitions, batch.records, batch.codecs) == (2, [600], ["none", "zstd"])
    assert (sink.repetitions, sink.records, sink.codecs) == (2, 200, ["none", "lz4", "zstd"])
    assert [one.name for one in variants({"codec": stream.codecs, "partitions": stream.partitions})][1:] == ["zstd"]
