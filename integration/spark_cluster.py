"""A standalone Spark cluster on this machine: master and workers as processes of their own, on loopback.

PySpark's package contains all programs.  Each process leads a session of its own.  Tests find the executors and Python
workers of a Spark worker by its session.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import pyspark

from integration.pipelines import Application, wait_for
from integration.processes import Process, send, session

SPARK_HOME = Path(pyspark.__file__).parent

_HOST = "127.0.0.1"

# With these options, a JVM starts sooner and needs less than with Java's defaults.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_ANY_WEB_PORT = ("--webui-port", "0")
_REGISTERED = r"(Successfully registered with master)"

_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_APPLICATION = re.compile(r"--app-id (\S+)")
_DAEMON = "pyspark.daemon"


def spark_environment(folder: Path, python: str = sys.executable) -> dict[str, str]:
    """Return the environment for all processes of Spark: loopback only, and the Spark of this PySpark."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        # By default, the master ends an application whose executors fail to start ten times in a row.
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


class Executor(NamedTuple):
    """A running executor: its JVM, the daemons that fork its Python workers, these workers, and its application."""

    jvm: int
    daemons: list[int]
    workers: list[int]
    application: str = ""


class Running(NamedTuple):
    """A process as the operating system shows it."""

    pid: int
    parent: int
    command: str


def executors_of(processes: Sequence[Running]) -> list[Executor]:
    """Return the executors among these processes, each with its Python processes, oldest first."""
    found = []
    for jvm in sorted(one for one in processes if _EXECUTOR in one.command):
        daemons = [one.pid for one in processes if one.parent == jvm.pid and _DAEMON in one.command]
        workers = [one.pid for one in processes if one.parent in daemons]
        named = _APPLICATION.search(jvm.command)
        found.append(Executor(jvm.pid, daemons, workers, named.group(1) if named else ""))
    return found


class Daemon:
    """A process of Spark that serves others: a master, a worker, or a server of Spark Connect.

    Parameters
    ----------
    name : str
        The name of its log.
    command : sequence of str
        A program of Spark, and its arguments.
    folder : Path
        The folder for its log and its files.
    memory : str
        The size of its heap.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path, memory: str = "192m") -> None:
        self.name = name
        self._made_of = (command, folder, memory)
        lives = len(list(folder.glob(f"{name}.*log")))
        self.log = folder / (f"{name}.{lives + 1}.log" if lives else f"{name}.log")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / command[0]), *command[1:]],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**spark_environment(folder), "SPARK_DAEMON_MEMORY": memory},
            )

    def wait_for_line(self, pattern: str) -> str:
        """Wait until the log contains a line with ``pattern``, and return the text that its group matches."""

        def found() -> str | None:
            text = self.log.read_text(errors="replace")
            assert self._process.poll() is None, f"{self.name} has ended:\n{text[-3000:]}"
            match = re.search(pattern, text)
            return match and match.group(1)

        return str(wait_for(found, f"{pattern} in the log of {self.name}"))

    def processes(self) -> list[Process]:
        """Return the living processes of its session."""
        return session(self._process.pid)

    def executors(self) -> list[Executor]:
        """Return the executors that it has started, oldest first."""
        found = []
        for pid, _ in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                found.append(Running(pid, process.ppid(), " ".join(process.cmdline())))
        return executors_of(found)

    def kill(self) -> None:
        """Kill the daemon alone, like a crash.  The processes that it has started must notice that without help."""
        self._process.kill()
        self._process.wait()

    def again(self) -> Daemon:
        """Start the daemon again, with a new log."""
        return Daemon(self.name, *self._made_of)

    def destroy(self) -> None:
        """Kill the daemon and all processes that it has started, like a power cut."""
        wait_for(lambda: not self._kill_all(), f"the processes of {self.name} are gone")
        self._process.wait()

    def close(self) -> None:
        """Stop the daemon and all remaining processes of its session."""
        for number in (signal.SIGCONT, signal.SIGTERM):
            send(number, self.processes())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self.destroy()

    def _kill_all(self) -> list[Process]:
        left = self.processes()
        send(signal.SIGKILL, left)
        return left


class SparkCluster:
    """A master, and workers that come and go.

    Parameters
    ----------
    folder : Path
        The folder for logs, and for the files that workers unpack.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[Daemon] = []
        self._closed = False
        self._lock = threading.Lock()  # held while a worker restarts, so that none outlives close()
        self._master = Daemon(
            "master",
            ["spark-class", "org.apache.spark.deploy.master.Master", "--host", _HOST, "--port", "0", *_ANY_WEB_PORT],
            folder,
        )
        try:
            self.url = self._master.wait_for_line(r"Starting Spark master at (spark://\S+)")
        except BaseException:
            self.close()
            raise

    def add_worker(self, cores: int = 1, memory: str = "2g") -> Daemon:
        """Start one more worker, and wait until it is registered.

        Its executors share ``cores`` and ``memory``.  Each worker has a loopback address of its own, because Spark
        never runs a copy of a slow task on the same host.
        """
        number = len(self.workers) + 1
        name = f"worker-{number}"
        home = self.folder / name
        home.mkdir()
        command = ["spark-class", "org.apache.spark.deploy.worker.Worker", "--host", f"127.0.0.{number + 1}"]
        command += [*_ANY_WEB_PORT, "--cores", str(cores), "--memory", memory, "--work-dir", str(home), self.url]
        worker = Daemon(name, command, self.folder)
        self.workers.append(worker)
        worker.wait_for_line(_REGISTERED)
        return worker

    def restart(self, worker: Daemon) -> Daemon:
        """Start a dead worker again at its address, with a new log."""
        with self._lock:
            if self._closed:
                return worker
            self.workers[self.workers.index(worker)] = again = worker.again()
        again.wait_for_line(_REGISTERED)
        return again

    def executors(self) -> list[Executor]:
        """Return the executors of all workers."""
        return [executor for worker in self.workers for executor in worker.executors()]

    def worker_logs(self) -> list[str]:
        """Return the logs of all workers, one for each start of a worker."""
        return [log.read_text(errors="replace") for log in self.folder.glob("worker-*.log")]

    def close(self) -> None:
        """Stop all daemons, and restart no worker after that."""
        with self._lock:
            self._closed = True
        for daemon in [*self.workers, self._master]:
            daemon.close()


def connect_server(folder: Path, *settings: str) -> Daemon:
    """Start a server of Spark Connect with two cores of its own, like ``start-connect-server.sh``."""
    chosen = [
        *("spark.connect.grpc.binding.address=127.0.0.1", "spark.connect.grpc.binding.port=0"),
        *("spark.driver.host=127.0.0.1", "spark.ui.enabled=false", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"),
        *settings,
    ]
    command = ["spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--master", "local[2]", *(word for setting in chosen for word in ("--conf", setting))]
    return Daemon("connect", command, folder, memory="768m")  # spark-submit also treats it as a daemon


class SubmittedApplication(Application):
    """The application of the tests, started with ``spark-submit`` in client mode.

    Parameters
    ----------
    cluster : SparkCluster
        The cluster that runs its executors.
    folder, name, options
        See :class:`Application`.
    submit : sequence of str
        Arguments of ``spark-submit``: settings, and how to ship the package.
    python : str
        The program with which Spark starts its Python processes, on the driver's machine and on the workers.
    path : sequence of Path
        The folders in ``PYTHONPATH`` on the driver's machine, besides the tests.
    """

    def __init__(
        self,
        cluster: SparkCluster,
        folder: Path,
        name: str,
        options: Mapping[str, str],
        *,
        submit: Sequence[str],
        python: str = sys.executable,
        path: Sequence[Path] = (),
    ) -> None:
        super().__init__(folder, name, options)
        self._folder = folder
        self._python = python
        self._path = path
        self._stop_file = folder / f"{name}.stop"
        self.configure(submitted=True, stop_file=str(self._stop_file))
        self._submit = [
            *("--master", cluster.url, "--name", name, "--driver-memory", "512m", "--executor-memory", "512m"),
            *("--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"),
            *("--conf", f"spark.executor.extraJavaOptions={JAVA_OPTIONS}"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
            *submit,
        ]

    def command(self) -> list[str]:
        program = Path(__file__).with_name("application.py")
        return [str(SPARK_HOME / "bin" / "spark-submit"), *self._submit, str(program), str(self.config)]

    def environment(self) -> dict[str, str]:
        # Only the driver's Python gets PYTHONPATH.  The executors have no files of the tests.
        path = os.pathsep.join(map(str, [*self._path, Path(__file__).parents[1]]))
        return spark_environment(self._folder, self._python) | {"PYTHONPATH": path}

    @property
    def home(self) -> Path:
        return self._folder

    def begin_stop(self) -> None:
        """Ask the application to stop, with a file: under spark-submit it has no standard input."""
        self._stop_file.touch()
