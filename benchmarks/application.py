"""A Spark application that reads into the ``noop`` sink: ``python -m benchmarks.application SETTINGS``.

The settings are a JSON object with ``name``, ``cores``, ``source``, ``options``, ``eventLog`` and ``checkpoint``.
When the query runs, the application prints a JSON object with ``started``, the time just before ``start()``.  Then it
prints one for each batch with rows, with ``end`` and ``rows``.  Times are in seconds since 1970.  It stops at the end
of its input.

`Application` is the other side: it runs such an application, or one of another module that does the same, and reads
what it prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_kafka_group
from benchmarks.queries import batches_of, progress_of
from benchmarks.spark_jars import builtin_source_jars
from benchmarks.views import OURS
from integration.pipelines import owned_after, read_events


class Application:
    """An application with one query, in separate processes.

    Parameters
    ----------
    name : str
        Its name.
    folder : Path
        Where its checkpoint and its event log are.
    settings : mapping
        The other settings of the module.
    module : str
        The module that it runs.
    """

    def __init__(
        self, name: str, folder: Path, settings: Mapping[str, Any], module: str = "benchmarks.application"
    ) -> None:
        self.event_log = folder / f"{name}.jsonl"
        self.rows = 0
        self.batches: list[dict[str, Any]] = []
        self.started_at = self.first_at = self.ended_at = 0.0
        places = {"eventLog": str(self.event_log), "checkpoint": str(folder / f"{name}.checkpoint")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps({**settings, "name": name, **places})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._lines.put(json.loads(line))
        self._lines.put(None)

    def take(self, timeout_s: float) -> bool:
        """Process one line of output, and return whether a line arrived within the timeout."""
        try:
            said = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return False
        if said is None:
            raise RuntimeError("an application has ended; see the log")
        if "rows" in said:
            self.batches.append(said)
            self.rows += said["rows"]
            self.first_at = self.first_at or said["end"]
            self.ended_at = max(self.ended_at, said["end"])
        else:
            self.started_at = said["started"]
        return True

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes of the application."""
        driver = psutil.Process(self._process.pid)
        total = 0.0
        for process in [driver, *driver.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
        return total

    def close(self) -> None:
        """Stop the application, and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def wait_until(condition: Callable[[], object], deadline: float, what: str) -> None:
    """Wait until ``condition()`` is true, or raise an error after the deadline (``time.monotonic()``)."""
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in time: {what}")
        time.sleep(0.05)


def rows_of(applications: Sequence[Application]) -> int:
    """Return the rows of all applications until now."""
    for one in applications:
        while one.take(0):
            pass
    return sum(one.rows for one in applications)


def settled(applications: Sequence[Application], partitions: int) -> bool:
    """Return whether the applications of a group have equal shares of a topic."""
    shares = [len(owned_after(read_events(one.event_log))) for one in applications]
    return sum(shares) == partitions and max(shares) - min(shares) <= 1


def main(given: str) -> None:
    """Read until standard input ends."""
    settings = json.loads(given)
    jars = ",".join(map(str, builtin_source_jars()))
    spark = (
        SparkSession.builder.master(f"local[{settings['cores']}]")
        .appName(settings["name"])
        .config("spark.jars", jars)
        .config("spark.driver.extraClassPath", jars.replace(",", ":"))
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    ours = settings["source"] == OURS
    options = {**settings["options"], **({"eventLog": settings["eventLog"]} if ours else {})}
    stream = spark.readStream.format(settings["source"]).options(**options).load()
    started = time.time()
    query = stream.writeStream.format("noop").option("checkpointLocation", settings["checkpoint"]).start()
    follow(query, started, lambda: [{"end": batch.end, "rows": batch.rows} for batch in batches_of(progress_of(query))])
    if ours:
        pyspark_kafka_group.stop(query)
    else:
        query.stop()
    spark.stop()


def follow(query: StreamingQuery, started: float, batches: Callable[[], Sequence[Mapping[str, float]]]) -> None:
    """Print the batches of a query until standard input ends.

    Parameters
    ----------
    query : StreamingQuery
        The query.
    started : float
        When it was started.
    batches : callable
        Returns the batches until now, in order.
    """
    print(json.dumps({"started": started}), flush=True)
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    told = 0
    while not over.wait(0.1):
        problem = query.exception()
        if problem is not None:
            raise problem
        found = batches()
        for batch in found[told:]:
            print(json.dumps(batch), flush=True)
        told = len(found)


if __name__ == "__main__":
    main(sys.argv[1])
