"""Steady throughput: queries read full topics in equal batches.  The figures exclude the start."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.environment import Bench, Say, bench
from benchmarks.processes import Part, Watch
from benchmarks.queries import Batch, Reading, aggregated, noop, rotated, run_to_the_end, stream
from benchmarks.records import Shape, load
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, CEILING, OURS, TUNED

ARMS = (BUILTIN, TUNED, OURS, CEILING)
SINKS = ("noop", "aggregation")
HEADERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One row of the table."""

    value_size: int = 100
    codec: str = "none"
    headers: int = 0
    partitions: int = 8
    sink: str = "noop"
    columns: str = ""

    @property
    def shape(self) -> Shape:
        """The shape of the records."""
        return Shape(value_size=self.value_size, headers=self.headers)

    @property
    def topic_key(self) -> tuple[object, ...]:
        """The fields that determine the topic."""
        return self.value_size, self.codec, self.headers, self.partitions

    @property
    def name(self) -> str:
        """The differences from the base, as a name."""
        base, parts = Variant(), []
        if self.value_size != base.value_size:
            parts.append(f"{self.value_size // 1000} kB" if self.value_size >= 1000 else f"{self.value_size} B")
        if self.codec != base.codec:
            parts.append(self.codec)
        if self.headers:
            parts.append("headers")
        if self.partitions != base.partitions:
            parts.append(f"{self.partitions} partitions" if self.partitions > 1 else "1 partition")
        if self.sink != base.sink:
            parts.append(self.sink)
        if self.columns:
            parts.append(f"{self.columns} only")
        return ", ".join(parts) or "base: 100 B, 8 part."


def variants(factors: Mapping[str, Sequence[Any]]) -> list[Variant]:
    """Return the base, and the variants that differ from it in one factor.

    ``factors`` contains fields of :class:`Variant` and their values.
    """
    base = Variant()
    others = (replace(base, **{name: value}) for name, values in factors.items() for value in values)
    return list(dict.fromkeys([base, *others]))


def records_for(shape: Shape, records: int, megabytes: int) -> int:
    """Return the number of records of a topic: ``records``, but at most ``megabytes`` of data."""
    return max(1000, min(records, megabytes * 1_000_000 // shape.data_bytes))


def figures(batches: list[Batch], shape: Shape, watch: Watch, *, in_python: bool) -> dict[str, float | None]:
    """Return the figures of the batches after the first one, which starts Python processes and connections."""
    steady = batches[1:]
    if not steady:
        raise RuntimeError("a run had a single batch: raise --batches")
    rows = sum(batch.rows for batch in steady)
    whole_s, read_s = sum(b.trigger_s for b in steady), sum(b.add_batch_s for b in steady)
    begin, end = steady[0].begin, steady[-1].end

    def cpu(part: Part) -> float:
        return watch.cpu_s(part, begin, end) / (rows / 1e6)

    return {
        "records_per_s": rows / whole_s,
        "records_per_s_read": rows / read_s,
        "mb_per_s": rows * shape.value_size / whole_s / 1e6,
        "jvm_cpu_s": cpu(Part.JVM),
        "python_cpu_s": cpu(Part.WORKER),
        "source_cpu_s": cpu(Part.SOURCE),
        "broker_cpu_s": cpu(Part.BROKER),
        "worker_rss_mb": watch.largest_worker_mb(begin, end) if in_python else None,
        "first_batch_s": batches[0].trigger_s,
        "batches": len(steady),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--records", type=int, default=6_000_000, help="in a topic, at most (default: %(default)s)")
    parser.add_argument("--megabytes", type=int, default=1_500, help="in a topic, at most (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=4, help="of a run, the first one not counted (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--base-repetitions", type=int, default=7, help="of the first row (default: %(default)s)")
    parser.add_argument("--warm-ups", type=int, default=3, help="runs of each source before (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 1_000, 10_000], help="of values, in bytes")
    parser.add_argument("--codecs", nargs="*", default=["lz4", "zstd"])
    parser.add_argument("--headers", type=int, nargs="*", default=[HEADERS], help="per record")
    parser.add_argument("--partitions", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--sinks", nargs="*", choices=SINKS, default=["aggregation"])
    parser.add_argument("--columns", nargs="*", default=["value"], help="that a query uses (default: all, and value)")
    parser.add_argument("--sources", nargs="*", choices=ARMS, default=list(ARMS))


QUICK: dict[str, Any] = {
    "records": 60_000,
    "megabytes": 20,
    "batches": 2,
    "repetitions": 1,
    "base_repetitions": 1,
    "warm_ups": 1,
    "sizes": [],
    "codecs": [],
    "headers": [],
    "partitions": [],
    "sinks": ["aggregation"],
    "columns": [],
}


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    todo = variants(
        {
            "value_size": args.sizes,
            "codec": args.codecs,
            "headers": args.headers,
            "partitions": args.partitions,
            "sink": args.sinks,
            "columns": args.columns,
        }
    )
    with bench(say) as place:
        topics: dict[tuple[object, ...], Reading] = {}
        for at, variant in enumerate(todo):
            if variant.topic_key not in topics:
                topics[variant.topic_key] = filled(place, variant, args)
            reading = topics[variant.topic_key]
            if at == 0:
                for arm in args.sources * args.warm_ups:
                    say(f"warming up {arm}")
                    run_to_the_end(writer(place, arm, variant, reading))
            cell = Cell(name=variant.name, factors={"records": reading.records} | _factors(variant))
            result.cells.append(cell)
            for repetition in range(args.base_repetitions if at == 0 else args.repetitions):
                for arm in rotated(args.sources, repetition):
                    with Watch() as watch:
                        batches = run_to_the_end(writer(place, arm, variant, reading))
                    measured = figures(batches, variant.shape, watch, in_python=arm not in (BUILTIN, TUNED))
                    cell.add(arm, measured)
                    say(f"{variant.name}, {arm}: {measured['records_per_s']:,.0f} records/s")
            if not any(other.topic_key == variant.topic_key for other in todo[at + 1 :]):
                place.kafka.delete_topic(topics.pop(variant.topic_key).topics)


def filled(place: Bench, variant: Variant, args: argparse.Namespace) -> Reading:
    """Fill a topic, and return how to read it in equal batches."""
    records = records_for(variant.shape, args.records, args.megabytes)
    place.say(f"{variant.name}: filling a topic with {records:,} records")
    topic = place.topic(variant.partitions)
    load(
        place.servers,
        topic,
        shape=variant.shape,
        partitions=variant.partitions,
        records=records,
        codec=variant.codec,
    )
    per_batch = -(-records // args.batches)
    return Reading(
        topics=topic,
        partitions=variant.partitions,
        shape=variant.shape,
        records=records,
        per_batch=per_batch + variant.partitions,  # a query rounds shares down: otherwise a small batch would remain
    )


def writer(place: Bench, arm: str, variant: Variant, reading: Reading) -> Any:
    """Return the writer of the query that reads the topic to its end."""
    records = stream(place, arm, reading, **({"columns": variant.columns} if variant.columns and arm == OURS else {}))
    if variant.columns:
        records = records.select(*variant.columns.split(","))  # for Spark's own source
    if variant.sink == "noop":
        return noop(records, place, availableNow=True)
    return noop(aggregated(records), place, availableNow=True).outputMode("update")


def _factors(variant: Variant) -> dict[str, Any]:
    return asdict(variant)
