"""Time from ``start()`` to the first row in the sink, in a warm session and in a new application.

Each start is a new query in a new group, on a topic with records.  The sink is ``foreachBatch`` with one small
aggregation, the same for all arms.  It reads the whole batch: a query that takes only some rows, like ``take(1)``, ends
its Python workers, and each start would wait for new ones.

In a new application, the query is the first one of its session, so Spark starts a Python process for each task.  The
time is from ``start()`` to the end of the first batch with records.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.application import Application
from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import PATIENCE_S, Reading, rotated, running, stream, wait_for
from benchmarks.records import Shape, load
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, CEILING, OURS

PARTITIONS = 8
_RECORDS = 8_000

ARMS: dict[str, tuple[str, dict[str, str]]] = {
    BUILTIN: (BUILTIN, {}),
    f"{OURS}, classic": (OURS, {"kafka.group.protocol": "classic"}),
    f"{OURS}, consumer": (OURS, {"kafka.group.protocol": "consumer"}),
    CEILING: (CEILING, {}),
}
"""The source and the options of each arm.  ``consumer`` is the protocol of KIP-848."""

QUICK: dict[str, Any] = {"repetitions": 1, "applications": 1, "delays": [0]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--repetitions", type=int, default=7, help="(default: %(default)s)")
    text = "new applications of each source, without a rebalance delay (default: %(default)s)"
    parser.add_argument("--applications", type=int, default=3, help=text)
    text = "group.initial.rebalance.delay.ms of the broker (default: 0, and Kafka's own default 3000)"
    parser.add_argument("--delays", type=int, nargs="*", default=[0, 3000], help=text)


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    for delay in args.delays:
        cell = Cell(name=f"rebalance delay {delay} ms", factors={"delay_ms": delay})
        result.cells.append(cell)
        with bench(say, group_initial_rebalance_delay_ms=str(delay)) as place:
            topic = place.topic(PARTITIONS)
            load(place.servers, topic, shape=Shape(), partitions=PARTITIONS, records=_RECORDS)
            for arm in ARMS:
                first_row_s(place, arm, topic)  # warm-up
            for repetition in range(args.repetitions):
                _add(cell, {arm: first_row_s(place, arm, topic) for arm in rotated(tuple(ARMS), repetition)}, say)
            if delay == 0 and args.applications:
                cell = Cell(name="new application, rebalance delay 0 ms", factors={"delay_ms": delay})
                result.cells.append(cell)
                arms = tuple(arm for arm in ARMS if arm != CEILING)
                for repetition in range(args.applications):
                    _add(cell, {arm: _first_batch_s(place, arm, topic) for arm in rotated(arms, repetition)}, say)


def _add(cell: Cell, taken: dict[str, float], say: Say) -> None:
    for arm, seconds in taken.items():
        over = None if arm == BUILTIN else seconds - taken[BUILTIN]
        cell.add(arm, {"first_row_s": seconds, "over_builtin_s": over})
    say(f"{cell.name}: " + ", ".join(f"{arm} {seconds:.2f} s" for arm, seconds in taken.items()))


def first_row_s(place: Bench, arm: str, topic: str) -> float:
    source, options = ARMS[arm]
    seen: list[float] = []

    def take(batch: DataFrame, _batch_id: int) -> None:
        if not seen and batch.agg({"offset": "count"}).collect()[0][0]:
            seen.append(time.monotonic())

    reading = Reading(topics=topic, partitions=PARTITIONS, records=_RECORDS)
    records = stream(place, source, reading, **options)
    writer = records.writeStream.foreachBatch(take).option("checkpointLocation", place.checkpoint())
    begin = time.monotonic()
    with running(writer) as query:
        wait_for(query, lambda: seen, "the first row")
    return seen[0] - begin


def _first_batch_s(place: Bench, arm: str, topic: str) -> float:
    source, options = ARMS[arm]
    given = {"kafka.bootstrap.servers": place.servers, "subscribe": topic, "startingOffsets": "earliest", **options}
    if source == OURS:
        given["kafka.group.id"] = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, contextlib.ExitStack() as stack:
        application = Application("start", Path(folder), {"source": source, "cores": 2, "options": given})
        stack.callback(application.close)
        deadline = time.monotonic() + PATIENCE_S
        while not application.first_at:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{arm} has not read within {PATIENCE_S:g} s")
            application.take(1.0)
        return application.first_at - application.started_at
