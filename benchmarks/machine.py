"""A description of the machine and the commit of a benchmark, without names of hosts, users or folders."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.spark_jars import avro_version, builtin_source_version
from pyspark_kafka_group.testing.java import find_java
from pyspark_kafka_group.testing.pinned_jars import KAFKA_VERSION


def describe() -> dict[str, Any]:
    """Return processor, memory, operating system, the versions of all components, and our commit."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{_memory_gb():.0f} GB",
        "os": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "java": _java_version(),
        "pyspark": version("pyspark"),
        "spark-sql-kafka": builtin_source_version(),
        "spark-avro": avro_version(),
        "pyarrow": version("pyarrow"),
        "confluent-kafka": version("confluent-kafka"),
        "pyspark-kafka-group": version("pyspark-kafka-group"),
        "kafka": KAFKA_VERSION,
        "commit": _commit(),
    }


def _commit() -> str:
    # "dirty" tells of changes that are in no commit.
    command = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _cpu_model() -> str:
    # psutil returns the number and the speed of the processors, but not their model.
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _java_version() -> str:
    said = subprocess.run([str(find_java()), "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "([^"]+)"', said)
    return found.group(1) if found else "unknown"
