"""The same stream from each source, and the figures of its batches."""

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
from benchmarks.views import BUILTIN, CEILING, TUNED

PATIENCE_S = 300.0
"""The default timeout of a wait."""


TUNING = {
    "kafka.max.poll.records": "50000",
    "kafka.max.partition.fetch.bytes": str(10 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(2 * 1024 * 1024),
    "kafka.fetch.min.bytes": "100000",
}
"""What makes Spark's own source read fastest here, found by trials."""


ONE_SETTING = {f"{BUILTIN}, {name.removeprefix('kafka.')}": {name: value} for name, value in TUNING.items()}
"""Spark's own source with one of these settings."""


def named(arm: str) -> tuple[str, dict[str, str]]:
    """Return the format of a source in the tables, and the options that belong to it."""
    tuned = {TUNED: TUNING, **ONE_SETTING}
    return (BUILTIN, tuned[arm]) if arm in tuned else (arm, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch, from a query's progress.

    Attributes
    ----------
    rows : int
        Number of records.
    begin : float
        Start of the trigger, in seconds since 1970.
    trigger_s : float
        Time of the whole batch, with planning and logs.
    add_batch_s : float
        Time of the reading and the sink.
    durations_ms : dict of str to int
        Times of all steps that Spark measures.
    """

    rows: int
    begin: float
    trigger_s: float
    add_batch_s: float
    durations_ms: dict[str, int]

    @property
    def end(self) -> float:
        """End of the batch, in seconds since 1970."""
        return self.begin + self.trigger_s

    @property
    def written(self) -> float:
        """End of the sink's work, before Spark's own commit, in seconds since 1970."""
        return self.end - self.durations_ms.get("commitOffsets", 0) / 1000


def batches_of(progress: Sequence[str]) -> list[Batch]:
    """Return the batches with records from progress events in JSON, in order."""
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
    """Return whether the query has finished a batch, even an empty one.  A member then has its partitions."""
    return any("addBatch" in json.loads(event)["durationMs"] for event in progress_of(query))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The input of a query, for any source.

    Attributes
    ----------
    topics : str
        Topics, separated by commas.
    partitions : int
        Number of all partitions.
    shape : Shape
        Shape of the records.
    records : int
        Number of records.  Only the ceiling run needs it.
    per_batch : int or None
        Approximate number of records in a batch.
    latest : bool
        Whether to read only the records after the start.
    """

    topics: str
    partitions: int
    shape: Shape = BASE_SHAPE
    records: int = 0
    per_batch: int | None = None
    latest: bool = False


def stream(bench: Bench, source: str, reading: Reading, **options: str) -> DataFrame:
    """Return a stream of a source, with a new group."""
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
    kind, tuning = named(source)
    if kind != BUILTIN:
        given["kafka.group.id"] = f"bench-{uuid.uuid4().hex[:8]}"
    return bench.spark.readStream.format(kind).options(**{**given, **tuning, **options}).load()


def aggregated(records: DataFrame) -> DataFrame:
    """Return count and size of the values by partition.  Spark must read every value for it."""
    counts = (f.count("*").alias("records"), f.sum(f.length("value")).alias("bytes"))
    return records.groupBy("partition").agg(*counts)


def noop(records: DataFrame, bench: Bench, **trigger: Any) -> DataStreamWriter:
    """Return a writer to the ``noop`` sink, with a new checkpoint."""
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
    """Wait until ``condition()`` is true.  Raise the error of the query if it fails."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        problem = query.exception()
        if problem is not None:
            raise problem
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.05)


def rotated(arms: Sequence[str], repetition: int) -> list[str]:
    """Return the order of the sources in a repetition.  Each source is first in turn."""
    at = repetition % len(arms)
    return [*arms[at:], *arms[:at]]
