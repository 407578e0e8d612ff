"""The processes that a benchmark measures, and their use of CPU and memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import pytest

from benchmarks.processes import Part, Watch, forget_peaks, part_of, peak_mb, processes, resident_mb

# Starts a child that uses more than half a second of CPU (the system counts ticks) and ends.  Then starts another one,
# which the test finds two generations below itself, and waits.
_FAMILY = """
import subprocess, sys
burn = "import time\\nwhile time.process_time() < 0.6: pass"
subprocess.run([sys.executable, "-S", "-c", burn], check=True)
wait = [sys.executable, "-S", "-c", "print(flush=True); input()", "kafka.Kafka", "-cp"]
subprocess.run(wait, check=False)
"""


@pytest.mark.parametrize(
    ("command", "part", "with_children"),
    [("pyspark.daemon", Part.WORKER, True), ("python_streaming_source_runner", Part.SOURCE, False)],
)
def test_descendants_are_found_and_ended_children_of_workers_count(
    command: str, part: Part, with_children: bool
) -> None:
    arguments = [sys.executable, "-S", "-c", _FAMILY, command]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = {process.part: process for process in processes()}
        assert processes(child.pid) == [found[Part.BROKER]], "others' children are not found"
        child.communicate("\n", timeout=30)
    assert set(found) == {part, Part.BROKER}
    assert found[part].pid == child.pid
    assert (found[part].cpu_s >= 0.5) is with_children


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("java -cp x org.apache.spark.deploy.SparkSubmit pyspark-shell", Part.JVM),
        ("python3 -m pyspark.daemon pyspark.worker", Part.WORKER),
        ("python3 pyspark/sql/streaming/python_streaming_source_runner.py", Part.SOURCE),
        ("java -Xmx1g -cp a.jar kafka.Kafka server.properties", Part.BROKER),
        ("python3 -m benchmarks.landing_application {}", Part.DRIVER),
        ("python3 -m benchmarks throughput", None),
    ],
)
def test_a_process_is_known_by_its_command_line(command: str, part: Part | None) -> None:
    assert part_of(command.split()) is part


def test_a_watch_without_processes_counts_nothing() -> None:
    begin = time.time()
    with Watch(pause_s=0.01) as watch:
        pass
    assert watch.cpu_s(Part.JVM, begin, time.time()) == 0.0
    assert watch.largest_worker_mb(begin, time.time()) == 0.0


def test_a_watch_knows_the_memory_of_all_processes_of_a_role_and_of_the_largest() -> None:
    arguments = [
        sys.executable,
        "-S",
        "-c",
        "print(flush=True); block = b'x' * int(input()); input()",
        "pyspark.daemon",
    ]
    with contextlib.ExitStack() as stack:
        sizes = [1, 64_000_000]
        children = [
            stack.enter_context(subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in sizes
        ]
        for child, size in zip(children, sizes, strict=True):
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdout.readline()
            child.stdin.write(f"{size}\n")
            child.stdin.flush()
        begin = time.time()
        with Watch(pause_s=0.01) as watch:
            _until_large(children[1].pid)
        found = watch.peak(Part.WORKER, begin, time.time())
        for child in children:
            child.communicate("\n", timeout=30)
    assert found.largest_mb >= 64
    assert found.all_mb > found.largest_mb
    assert watch.largest_worker_mb(begin, time.time()) == found.largest_mb
    assert watch.peak(Part.JVM, begin, time.time()) == (0.0, 0.0)


def _until_large(pid: int) -> None:
    deadline = time.monotonic() + 30
    while resident_mb(pid) < 64 and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_peak_of_memory_can_begin_anew() -> None:
    own = os.getpid()
    block = bytearray(64_000_000)
    block[::4096] = b"x" * len(block[::4096])
    with_block = peak_mb(own)
    del block
    forget_peaks([own])
    assert 0 < peak_mb(own) < with_block


def test_a_process_that_has_ended_has_no_memory() -> None:
    assert peak_mb(2**22 + 1) == resident_mb(2**22 + 1) == 0.0


def test_resident_memory_is_at_most_its_peak() -> None:
    assert 0 < resident_mb(os.getpid()) <= peak_mb(os.getpid()) * 1.01
