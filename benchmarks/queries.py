"""The sources side by side: the same stream by each of them, and the figures of its batches."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.environment import Bench
from benchmarks.records import BASE_SHAPE, Shape
from benchmarks.views import BUILTIN, CEILING

PATIENCE_S = 300.0
"""How long anything that must happen may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch, from a query's progress.

    Attributes
    ----------
    rows : int
        How many records it had.
    begin : float
        When its trigger began, in seconds since 1970.
    trigger_s : float
        How long all of it took, with planning and logs.
    add_batch_s : float
        How long reading and the sink took.
    durations_ms : dict of str to int
        All steps that Spark measures.
    """

    rows: int
    begin: float
    trigger_s: float
    add_batch_s: float
    durations_ms: dict[str, int]

    @property
    def end(self) -> float:
        """When it ended."""
        return self.begin + self.trigger_s


def batches_of(progress: Sequence[str]) -> list[Batch]:
    """Return the batches with records that progress events, as JSON, tell of; in order."""
    found: list[Batch] = []
    for event in map(json.loads, progress):
        durations = event.get("durationMs", {})
        if event["numInputRows"] and "addBatch" in durations:
            found.append(
                Batch(
                    rows=event["numInputRows"],
                    begin=datetime.fromisoformat(event["timestamp"]).timestamp(),
                    trigger_s=durations["triggerExecution"] / 1000,
                    add_batch_s=durations["addBatch"] / 1000,
                    durations_ms=durations,
                )
            )
    return found


def progress_of(query: StreamingQuery) -> list[str]:
    """Return the progress events of a query, as JSON."""
    return [event.json for event in query.recentProgress]


def has_run_a_batch(query: StreamingQuery) -> bool:
    """Tell whether a batch is over, be it empty: a member of a group has its partitions then."""
    return any("addBatch" in json.loads(event)["durationMs"] for event in progress_of(query))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The input of a query, for any source.

    Attributes
    ----------
    topics : str
        Separated by commas.
    partitions : int
        How many they have in all.
    shape : Shape
        Of their records.
    records : int
        How many they hold; only the ceiling run needs to know.
    per_batch : int or None
        About how many a batch has.
    latest : bool
        Whether to read only what comes after the start.
    """

    topics: str
    partitions: int
    shape: Shape = BASE_SHAPE
    records: int = 0
    per_batch: int | None = None
    latest: bool = False


def stream(bench: Bench, source: str, reading: Reading, **options: str) -> DataFrame:
    """Return a stream of a source, under a group of its own."""
    if source == CEILING:
        given = {
            "rows": str(reading.records),
            "maxRows": str(reading.per_batch or reading.records),
            "partitions": str(reading.partitions),
            "valueSize": str(reading.shape.value_size),
            "keySize": str(reading.shape.key_size),
            "headers": str(reading.shape.headers),
        }
        return bench.spark.readStream.format(source).options(**given).load()
    given = {
        "kafka.bootstrap.servers": bench.servers,
        "subscribe": reading.topics,
        "startingOffsets": "latest" if reading.latest else "earliest",
        "includeHeaders": str(reading.shape.headers > 0).lower(),
    }
    if reading.per_batch is not None:
        given["maxOffsetsPerTrigger"] = str(reading.per_batch)
    if source != BUILTIN:
        given["kafka.group.id"] = f"bench-{uuid.uuid4().hex[:8]}"
    return bench.spark.readStream.format(source).options(**{**given, **options}).load()


def aggregated(records: DataFrame) -> DataFrame:
    """Return count and size of the values by partition: it reads every value."""
    counts = (f.count("*").alias("records"), f.sum(f.length("value")).alias("bytes"))
    return records.groupBy("partition").agg(*counts)


def noop(records: DataFrame, bench: Bench, **trigger: Any) -> DataStreamWriter:
    """Return a writer into nothing, with a checkpoint of its own."""
    writer = records.writeStream.format("noop").option("checkpointLocation", bench.checkpoint())
    return writer.trigger(**trigger) if trigger else writer


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """Start a query, and stop it in any case."""
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def run_to_the_end(writer: DataStreamWriter) -> list[Batch]:
    """Run a query with ``availableNow`` and return its batches."""
    with running(writer) as query:
        if not query.awaitTermination(int(PATIENCE_S)):
            raise TimeoutError(f"a query did not end within {PATIENCE_S:g} s")
        return batches_of(progress_of(query))


def wait_for(
    query: StreamingQuery, condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S
) -> None:
    """Wait until ``condition()`` is true; raise what the query fails with."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        problem = query.exception()
        if problem is not None:
            raise problem
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.05)


def rotated(arms: Sequence[str], repetition: int) -> list[str]:
    """Return the order of the sources in a repetition: each is first in turn."""
    at = repetition % len(arms)
    return [*arms[at:], *arms[:at]]
