"""The cost of commits to the group for a micro-batch: the same query with commits, and with commits that are not sent.

``without_commits`` switches the commits off.  The query reads a full topic in equal batches.  A commit has the largest
effect on small batches.
"""

from __future__ import annotations

import argparse
import uuid
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import Batch, Reading, noop, rotated, run_to_the_end, stream
from benchmarks.records import Shape, load
from benchmarks.results import Cell, Result
from benchmarks.samples import spread
from benchmarks.views import OURS

ARMS = {
    "transaction": (OURS, {"commitMode": "transaction"}),
    "plain": (OURS, {"commitMode": "plain"}),
    "no commit": ("kafka-group-without-commits", {"commitMode": "transaction"}),
}
"""The source and the options of each arm."""

_WARM_UP_BATCHES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    name: str
    partitions: int
    per_batch: int
    batches: int


LOADS = (
    _Load(name="1,000 records, 8 part.", partitions=8, per_batch=1_000, batches=30),
    _Load(name="400,000 records, 8 part.", partitions=8, per_batch=400_000, batches=12),
    _Load(name="6,400 records, 64 part.", partitions=64, per_batch=6_400, batches=30),
)

QUICK: dict[str, Any] = {"repetitions": 1, "loads": 1, "batches": 4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--repetitions", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--batches", type=int, default=1_000, help="of a run at most (default: what each row has)")
    parser.add_argument("--loads", type=int, default=len(LOADS), help="how many of the rows (default: all)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place:
        for at, load_of_cell in enumerate(LOADS[: args.loads]):
            cell = Cell(name=load_of_cell.name, factors={"records_per_batch": load_of_cell.per_batch})
            result.cells.append(cell)
            reading = _filled(place, load_of_cell, min(args.batches, load_of_cell.batches))
            _run(place, "transaction", reading)  # warm-up
            if at == 0:
                _check_arms(place, reading)
            for repetition in range(args.repetitions):
                for arm in rotated(tuple(ARMS), repetition):
                    measured = figures(_run(place, arm, reading))
                    cell.add(arm, measured)
                    say(f"{cell.name}, {arm}: {measured['batch_ms']:.0f} ms")
            place.kafka.delete_topic(reading.topics)


def _check_arms(place: Bench, reading: Reading) -> None:
    """Check that only the arms with commits commit.  Otherwise the comparison is void."""
    for arm in ARMS:
        group = f"bench-{uuid.uuid4().hex[:8]}"
        _run(place, arm, reading, **{"kafka.group.id": group})
        offsets = _committed(place.servers, group, reading)
        if any(offset >= 0 for offset in offsets) == (arm == "no commit"):
            raise RuntimeError(f"{arm}: committed {offsets}")


def _committed(servers: str, group: str, reading: Reading) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        asked = [TopicPartition(reading.topics, partition) for partition in range(reading.partitions)]
        return [found.offset for found in consumer.committed(asked, timeout=10)]
    finally:
        consumer.close()


def figures(batches: list[Batch]) -> dict[str, float | None]:
    """Return the figures of the batches after the warm-up."""
    steady = batches[_WARM_UP_BATCHES:]
    durations = spread([batch.trigger_s * 1000 for batch in steady])
    cycles = [(after.begin - before.begin) * 1000 for before, after in pairwise(steady)]
    return {
        "batch_ms": durations.median if durations else None,
        "cycle_ms": sum(cycles) / len(cycles) if cycles else None,
        "batches": len(steady),
    }


def _filled(place: Bench, wanted: _Load, batches: int) -> Reading:
    topic = place.topic(wanted.partitions)
    records = wanted.per_batch * (batches + _WARM_UP_BATCHES)
    load(place.servers, topic, shape=Shape(), partitions=wanted.partitions, records=records)
    return Reading(topics=topic, partitions=wanted.partitions, records=records, per_batch=wanted.per_batch)


def _run(place: Bench, arm: str, reading: Reading, **more: str) -> list[Batch]:
    source, options = ARMS[arm]
    return run_to_the_end(noop(stream(place, source, reading, **options, **more), place, availableNow=True))
