"""What /proc tells of processes."""

from __future__ import annotations

import os
import time

import pytest

from benchmarks.processes import Part, Watch, cpu_seconds, descendants, forget_peaks, parent_of, part_of, peak_mb

_TICKS = os.sysconf("SC_CLK_TCK")
_STAT = f"42 (a) b (c)) S 7 42 42 0 -1 0 0 0 0 0 {_TICKS} {2 * _TICKS} {4 * _TICKS} {8 * _TICKS} 20 0"


@pytest.mark.parametrize(("with_children", "seconds"), [(False, 3.0), (True, 15.0)])
def test_cpu_seconds_count_ended_children_only_if_asked(with_children: bool, seconds: float) -> None:
    assert cpu_seconds(_STAT, with_children=with_children) == seconds


def test_the_parent_is_found_behind_any_name() -> None:
    assert parent_of(_STAT) == 7


def test_descendants_are_found_over_generations_and_others_are_not() -> None:
    assert sorted(descendants({2: 1, 3: 2, 4: 3, 5: 9, 9: 0}, 2)) == [3, 4]


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("java\0-cp\0x\0org.apache.spark.deploy.SparkSubmit\0pyspark-shell", Part.JVM),
        ("python3\0-m\0pyspark.daemon\0pyspark.worker", Part.WORKER),
        ("python3\0pyspark/sql/streaming/python_streaming_source_runner.py", Part.SOURCE),
        ("java\0-Xmx1g\0-cp\0a.jar\0kafka.Kafka\0server.properties", Part.BROKER),
        ("python3\0-m\0benchmarks\0throughput", None),
    ],
)
def test_a_process_is_known_by_its_command_line(command: str, part: Part | None) -> None:
    assert part_of(command) is part


def test_a_watch_without_processes_counts_nothing() -> None:
    begin = time.time()
    with Watch(pause_s=0.01) as watch:
        pass
    assert watch.cpu_s(Part.JVM, begin, time.time()) == 0.0
    assert watch.largest_worker_mb(begin, time.time()) == 0.0


def test_a_peak_of_memory_can_begin_anew() -> None:
    own = os.getpid()
    block = bytearray(64_000_000)
    block[::4096] = b"x" * len(block[::4096])
    with_block = peak_mb(own)
    del block
    forget_peaks([own])
    assert 0 < peak_mb(own) < with_block


def test_a_process_that_has_ended_has_no_peak() -> None:
    assert peak_mb(2**22 + 1) == 0.0
