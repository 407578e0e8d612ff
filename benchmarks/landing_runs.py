"""The runs that ``benchmarks.landing`` times, in an environment whose PySpark has the format.

``python -m benchmarks.landing_runs OPTIONS`` prints one JSON object for each measurement.
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.environment import Bench, bench
from benchmarks.formats import AVRO, avro_values, load_values
from benchmarks.landing_tables import (
    ARMS,
    BYTES,
    PARTITIONS,
    TYPED,
    Case,
    Table,
    commit_figures,
    commit_s,
    count,
    data_times,
    landed_figures,
)
from benchmarks.other_spark import tell
from benchmarks.processes import Part, Watch
from benchmarks.queries import batches_of, progress_of, rotated
from benchmarks.records import Shape, load
from benchmarks.views import LANDING
from integration.compatibility.lake_writer import FORMAT, settings

_SMALL_BATCH = 25_000


class _Topic(NamedTuple):
    case: Case
    records: int


def main() -> None:
    """Run all measurements."""
    options = json.loads(sys.argv[1])
    with (
        tempfile.TemporaryDirectory(prefix="landing-") as name,
        bench(lambda _: None, settings=settings(Path(name))) as place,
    ):
        folder = Path(name)
        for kind in options["kinds"]:
            records = options["records"] * 100 // BYTES.get(kind, 100)
            topic = _filled(place, kind, records, options["batches"])
            for repetition in range(options["repetitions"]):
                _measure_arms(place, topic, folder, kind, repetition)
            if kind == next(iter(BYTES)) and options["large"]:
                _measure_large(place, topic, folder, options)
            place.kafka.delete_topic(topic.case.topic)
        if options["commits"]:
            kind, batches = next(iter(BYTES)), options["commits"] + 1  # the first one is not measured
            topic = _filled(place, kind, batches * _SMALL_BATCH, batches)
            _measure_arms(place, topic, folder, f"{kind}, batches of {_SMALL_BATCH:,}", 0)


def _measure_arms(place: Bench, topic: _Topic, folder: Path, name: str, repetition: int) -> None:
    factors = {"format": FORMAT, "kind": topic.case.kind, "per_batch": topic.case.per_batch}
    for arm in rotated(ARMS, repetition):
        tell(f"{FORMAT}, {name}", factors, arm, _run(place, topic, folder, arm, _new_name()))


def _measure_large(place: Bench, topic: _Topic, folder: Path, options: Mapping[str, Any]) -> None:
    """Land into a table with many rows of another topic."""
    rows, kind, name = options["large"], topic.case.kind, _new_name()
    other = _filled(place, kind, rows, options["batches"])
    _run(place, other, folder, LANDING, name)
    place.kafka.delete_topic(other.case.topic)
    factors = {"format": FORMAT, "kind": kind, "rows": rows}
    measured = _run(place, topic, folder, LANDING, name)
    tell(f"{FORMAT}, {kind}, a table of {rows:,} rows", factors, LANDING, measured)


def _new_name() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


def _filled(place: Bench, kind: str, records: int, batches: int) -> _Topic:
    topic = place.topic(PARTITIONS)
    if kind == TYPED:
        load_values(place.servers, topic, avro_values(AVRO), records)
    else:
        load(place.servers, topic, shape=Shape(value_size=BYTES[kind]), partitions=PARTITIONS, records=records)
    return _Topic(Case(servers=place.servers, topic=topic, kind=kind, per_batch=-(-records // batches)), records)


def _run(place: Bench, topic: _Topic, folder: Path, arm: str, name: str) -> dict[str, float | None]:
    """Copy the topic, and return the figures of all batches but the first."""
    case, before = topic.case, count(folder, name)
    table = Table(place.spark, folder, arm, case, name)
    with Watch() as watch:
        query = table.writer(case).option("checkpointLocation", place.checkpoint()).start()
        query.processAllAvailable()  # PySpark 4.1, for Iceberg, has no availableNow for Python sources
        query.stop()
        found = [batch for batch in batches_of(progress_of(query)) if batch.add_batch_s > 0][1:]
        measured = topic.records - case.per_batch
        if (rows := count(folder, name) - before) != topic.records:
            raise RuntimeError(f"{arm} has written {rows} rows of {topic.records} records")
        times = data_times(folder)
        begin, end = found[0].begin, found[-1].end
        return {
            "records_per_s": measured / sum(batch.trigger_s for batch in found),
            "jvm_cpu_s": watch.cpu_s(Part.JVM, begin, end) / measured * 1e6,
            "python_cpu_s": watch.cpu_s(Part.WORKER, begin, end) / measured * 1e6,
            "worker_rss_mb": watch.largest_worker_mb(begin, end),
            **commit_figures("commit", [s for batch in found if (s := commit_s(batch, times)) is not None]),
            **landed_figures([commit.landed.seconds for commit in table.commits[1:]]),
        }


if __name__ == "__main__":
    main()
