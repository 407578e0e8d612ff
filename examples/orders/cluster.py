"""A small standalone Spark cluster on this machine, from PySpark's own package: a master, and workers to kill."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pyspark
from apps import Program, signals_held

PATIENCE_S = 120.0
SPARK_HOME = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
# Each application uses one core, so one worker can run all three.
CORES = 3


class ClusterError(Exception):
    """The cluster did not start. The text explains why."""


class Cluster:
    """A master and its workers. `close` ends them in any state."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._master: Program | None = None
        self.workers: dict[str, Program] = {}
        self.url = ""

    def start(self, workers: int) -> None:
        """Start the master and the workers."""
        arguments = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        self._master = self._daemon("master", "org.apache.spark.deploy.master.Master", arguments)
        self.url = self._line(self._master, r"Starting Spark master at (spark://\S+)")
        for number in range(1, workers + 1):
            name = f"worker-{number}"
            arguments = ["--host", HOST, "--webui-port", "0", "--cores", str(CORES), "--memory", "4g"]
            arguments += ["--work-dir", str(self._directory / name), self.url]
            self.workers[name] = self._daemon(name, "org.apache.spark.deploy.worker.Worker", arguments)
        for worker in self.workers.values():
            self._line(worker, "(Successfully registered with master)")

    def executors(self, worker: str) -> int:
        """Return the number of executors that run on a worker."""
        return sum(EXECUTOR in command for command in self.workers[worker].commands())

    def kill(self, worker: str) -> None:
        """End a worker and its executors at once, like a power cut."""
        self.workers[worker].kill()

    def close(self) -> None:
        """End all processes."""
        for program in [*self.workers.values(), *([self._master] if self._master else [])]:
            program.end(5.0)

    def _daemon(self, name: str, kind: str, arguments: list[str]) -> Program:
        environment = {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self._directory),
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": os.fspath(self._directory),
        }
        command = [str(SPARK_HOME / "bin" / "spark-class"), kind, *arguments]
        with signals_held():
            return Program(name, command, self._directory, environment)

    @staticmethod
    def _line(program: Program, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if found := re.search(pattern, program.log.read_text(encoding="utf-8", errors="replace")):
                return found.group(1)
            if program.returncode is not None:
                break
            time.sleep(0.1)
        raise ClusterError(f"{program.name} did not come up:\n{program.log_tail()}")
