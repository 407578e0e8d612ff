"""Flame graphs of this project's Python processes: ``python -m benchmarks profile NAME``.

py-spy samples the processes from their first moment; workers with the C code that they run.  It leaves out the time in
which a thread waits.  A profile is for reading, not for comparing times: py-spy takes a part of the processor.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import set_executable
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import kafka_to_kafka, planning, sink, start
from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import Reading, noop, run_to_the_end, stream
from benchmarks.records import BASE_SHAPE, load
from benchmarks.views import OURS

_WORKERS, _SOURCE, _SPAWNED = "daemon", "python_streaming_source_runner", "multiprocessing.spawn"
_SAMPLES_PER_S = 100
_PARTITIONS = 8
_RECORDS = 6_000_000
_ROWS = 1_000_000
_RATE = 10_000
_SECONDS = 30
_STARTS = 5
_MANY_PARTITIONS = 10_000
_BATCHES = 40
_PATIENCE_S = 60.0


class Profile(NamedTuple):
    """What to run, and the name of the module whose processes are sampled."""

    run: Callable[[Bench], None]
    module: str


def _read(place: Bench) -> None:
    topic = place.topic(_PARTITIONS)
    load(place.servers, topic, shape=BASE_SHAPE, partitions=_PARTITIONS, records=_RECORDS)
    reading = Reading(topics=topic, partitions=_PARTITIONS, records=_RECORDS)
    for _ in range(3):
        run_to_the_end(noop(stream(place, OURS, reading), place, availableNow=True))


def _sink(place: Bench) -> None:
    rows = next(rows for rows in sink.ROWS if rows.headers)
    made = sink.cached(place.spark, rows, _ROWS)
    for _ in range(4):
        sink.write_s(place, OURS, made, "none")


def _small_tasks(place: Bench) -> None:
    kafka_to_kafka.run(place, OURS, kafka_to_kafka.STATELESS, rate=_RATE, warm_up_s=0, seconds=_SECONDS)


def _start(place: Bench) -> None:
    topic = place.topic(_PARTITIONS)
    load(place.servers, topic, shape=BASE_SHAPE, partitions=_PARTITIONS, records=_PARTITIONS * 1_000)
    for _ in range(_STARTS):
        start.first_row_s(place, f"{OURS}, consumer", topic)


def _planning(place: Bench) -> None:
    topics = planning.filled(place, _MANY_PARTITIONS, per_partition=_BATCHES + 2)
    planning.driven(place, topics, _MANY_PARTITIONS, _BATCHES, 0.2)


PROFILES = {
    "read": Profile(_read, _WORKERS),
    "sink": Profile(_sink, _WORKERS),
    "small-tasks": Profile(_small_tasks, _WORKERS),
    "start": Profile(_start, _SOURCE),
    "planning": Profile(_planning, _SPAWNED),
}


def record(name: str, output: Path, say: Say) -> Path:
    """Run what a profile needs, and return the file with the flame graph of the process with the most samples.

    Raises
    ------
    SystemExit
        If py-spy is missing, or has sampled nothing.
    """
    program = Path(sys.executable).with_name("py-spy")
    if not program.exists():
        raise SystemExit("py-spy is missing: install it with .venv/bin/pip install '.[bench]'")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        python = _sampling_python(Path(folder), program, PROFILES[name].module)
        set_executable(str(python))
        with bench(say, python=str(python), message_max_bytes="10485880") as place:
            say(f"running {name}")
            PROFILES[name].run(place)
        graphs = _written(Path(folder))
        if not graphs:
            raise SystemExit("py-spy has sampled nothing: may this user trace processes?")
        graph = max(graphs, key=lambda file: file.stat().st_size).read_text()
        for parent in (Path(folder), program.parent):  # paths of this machine
            graph = graph.replace(f"{parent}/", "")
        file = output / f"profile-{name}.svg"
        file.write_text(graph)
        return file


def _sampling_python(folder: Path, program: Path, module: str) -> Path:
    """Return a program that runs Python, and samples it if it runs this module."""
    made = folder / "python"
    native = "--native" if module == _WORKERS else ""  # the C code is in the workers
    sampled = f"{program} record --pid $$ --subprocesses {native} --function --rate {_SAMPLES_PER_S}"
    made.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *{module}*) {sampled} --output {folder}/$$.svg >/dev/null 2>>{folder}/log </dev/null & ;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    made.chmod(0o755)
    return made


def _written(folder: Path) -> list[Path]:
    """Wait until py-spy has written its files, and return them."""
    deadline = time.monotonic() + _PATIENCE_S
    while _is_running(folder) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [*folder.glob("*.svg")]


def _is_running(folder: Path) -> bool:
    return any(str(folder) in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
