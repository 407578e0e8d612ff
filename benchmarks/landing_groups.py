"""Applications of one group that copy a topic side by side into one table, for ``benchmarks.landing``.

``python -m benchmarks.landing_groups OPTIONS`` prints one JSON object for each measurement.  Each application is a new
JVM, so its memory is that of one arm.  With one application, all arms run.

The records are in two open transactions, as in `benchmarks.scaling`.  The first one is the warm-up, after each
application has got its partitions.  The time is from the commit of the second one until all its records are in the
table.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.application import Application, rows_of, settled, wait_until
from benchmarks.environment import BenchmarkKafka
from benchmarks.landing_tables import ARMS, BYTES, PARTITIONS, Case, count, landed_figures
from benchmarks.other_spark import tell
from benchmarks.processes import Part, Watch
from benchmarks.queries import PATIENCE_S, rotated
from benchmarks.records import Shape, load
from benchmarks.views import APPEND, APPEND_TUNED, LANDING
from integration.compatibility.lake_writer import FORMAT

_REST_S = 2.0
_KIND = next(iter(BYTES))
_TABLE = "copied"


def main() -> None:
    """Run all measurements."""
    options = json.loads(sys.argv[1])
    # An installed package has byte code.  Without it, each process would compile this package anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with BenchmarkKafka() as kafka:
        for number in options["applications"]:
            cell = f"{FORMAT}, {_KIND}, {number} x local[{options['cores']}]"
            factors = {"format": FORMAT, "kind": _KIND, "applications": number, "cores": options["cores"]}
            for repetition in range(options["repetitions"]):
                for arm in rotated(ARMS if number == 1 else (APPEND, LANDING), repetition):
                    with tempfile.TemporaryDirectory(prefix="landing-") as folder:
                        tell(cell, factors, arm, _run(kafka, Path(folder), arm, number, options))


def _run(
    kafka: BenchmarkKafka, folder: Path, arm: str, number: int, options: Mapping[str, Any]
) -> dict[str, float | None]:
    """Let the applications of one arm copy a topic, and return the figures."""
    topic = f"landing-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, PARTITIONS)
    warm_up, records = options["warm_up"], options["group_records"]
    first, rest = (
        load(
            kafka.bootstrap_servers,
            topic,
            shape=Shape(value_size=BYTES[_KIND]),
            partitions=PARTITIONS,
            records=some,
            transactional_id=f"{topic}-{at}",
        )
        for at, some in enumerate((warm_up, records))
    )
    with contextlib.ExitStack() as stack:
        watch, begin = stack.enter_context(Watch()), time.time()
        case = Case(
            servers=kafka.bootstrap_servers,
            topic=topic,
            kind=_KIND,
            per_batch=options["per_batch"],
            group=topic,
            more={"kafka.isolation.level": "read_committed"},
        )
        settings = {"cores": options["cores"], "arm": arm, "case": asdict(case), "folder": str(folder)}
        running = _started(stack, folder, number, settings)
        deadline = time.monotonic() + PATIENCE_S
        if arm != APPEND_TUNED:
            wait_until(lambda: settled(running, PARTITIONS), deadline, "each application has its share")
        first.commit_transaction(60)
        wait_until(lambda: rows_of(running) >= warm_up, deadline, f"{arm} is warm")
        time.sleep(_REST_S)
        warm, since = [len(one.batches) for one in running], time.time()
        rest.commit_transaction(60)
        every = warm_up + records
        wait_until(lambda: rows_of(running) >= every, deadline + PATIENCE_S, f"{arm} has copied the topic")
        end = max(one.ended_at for one in running)
        time.sleep(_REST_S)  # so that the watch has a sample after the end
        figures = {"records_per_s": records / (end - since), **_costs(watch, begin, since, end, records)}
    if (rows := count(folder, _TABLE)) < every or (arm == LANDING and rows > every):
        raise RuntimeError(f"{number} x {arm} has written {rows} rows of {every} records")
    kafka.delete_topic(topic)
    batches = [batch for one, at in zip(running, warm, strict=True) for batch in one.batches[at:]]
    if arm == LANDING:
        figures["conflicts"] = sum(batch["conflicts"] for batch in batches)
    return {**figures, **landed_figures([batch["commit_s"] for batch in batches if "commit_s" in batch])}


def _started(
    stack: contextlib.ExitStack, folder: Path, number: int, settings: Mapping[str, Any]
) -> Sequence[Application]:
    """Start the applications.  The first one creates the table."""
    running: list[Application] = []
    for group in (range(1), range(1, number)):
        new = [
            Application(f"application-{at}", folder, {**settings, "table": _TABLE}, "benchmarks.landing_application")
            for at in group
        ]
        for one in new:
            stack.callback(one.close)
        deadline = time.monotonic() + PATIENCE_S
        for one in new:
            wait_until(lambda one=one: one.take(1.0), deadline, "an application is up")  # type: ignore[misc]
        running += new
    return running


def _costs(watch: Watch, begin: float, since: float, end: float, records: int) -> dict[str, float | None]:
    """Return the CPU per million records, and the peaks of memory from the start to the end."""
    jvm, workers = watch.peak(Part.JVM, begin, end), watch.peak(Part.WORKER, begin, end)
    return {
        "jvm_cpu_s": watch.cpu_s(Part.JVM, since, end) / records * 1e6,
        "python_cpu_s": watch.cpu_s(Part.WORKER, since, end) / records * 1e6,
        "worker_rss_mb": workers.largest_mb,
        "workers_mb": workers.all_mb,
        "jvm_rss_mb": jvm.largest_mb,
        "jvms_mb": jvm.all_mb,
        "driver_rss_mb": watch.peak(Part.DRIVER, begin, end).largest_mb,
        "source_rss_mb": watch.peak(Part.SOURCE, begin, end).largest_mb,
    }


if __name__ == "__main__":
    main()
