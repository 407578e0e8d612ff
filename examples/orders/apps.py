"""Start child processes apart from the terminal, watch them, and end them with everything that they have started.

Each child has its own session. So Ctrl-C reaches only the demo, which then stops the children in order. The session
also identifies every process that a child has started: a JVM, Python workers, the source process. If the demo itself
is killed, a guard kills the child. The processes that Spark has started then end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from pyspark_kafka_group.testing.process import GuardedProcess

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HERE = Path(__file__).resolve().parent


class Program:
    """A running child process, with its output in a log file."""

    def __init__(self, name: str, command: Sequence[str], directory: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.log.write_bytes(b"")
        self._process = GuardedProcess(command, self.log, {**os.environ, **env})

    @property
    def returncode(self) -> int | None:
        """The exit status: None while it runs, 128 + N after signal N."""
        return self._process.exit_status()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the child only. The child stops its own children."""
        if self.returncode is None:
            self._process.send(signal.SIGTERM)

    def end(self, grace_s: float) -> None:
        """Ask the child to stop, wait, then kill the rest of its session."""
        self.ask_to_stop()
        deadline = time.monotonic() + grace_s
        while (left := self._session()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill(self) -> int:
        """Kill it with everything that it has started, like a power cut. Return the number of killed processes."""
        killed = self._session()
        for pid in killed:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        return len(killed)

    def commands(self) -> list[str]:
        """Return the command lines of the processes in its session."""
        found = []
        for pid in self._session():
            with suppress(psutil.NoSuchProcess):
                found.append(" ".join(psutil.Process(pid).cmdline()))
        return found

    def log_tail(self, lines: int = 20) -> str:
        """Return the end of its output, without lines that hide the reason of a failure."""
        return "\n".join(readable(self.log.read_text(encoding="utf-8", errors="replace"))[-lines:])

    def _session(self) -> list[int]:
        """Return the running processes of the child's session: the child, its guard, and what it has started."""
        self._process.exit_status()  # collects the guard, which would otherwise count as a zombie
        found = []
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == self._process.session:
                    found.append(pid)
        return found


def readable(log: str) -> list[str]:
    """Drop from a Spark log Java's stack frames and the query plans that Spark puts at the end of its errors."""
    lines, in_plan = [], False
    for line in log.splitlines():
        if line.startswith("=== Streaming Query ==="):
            in_plan = True
        elif line.startswith(("Traceback", "Exception", "Caused by:")) or line[:1].isdigit():
            in_plan = False
        if not in_plan and line.strip() and not line.startswith(("\tat ", "\t... ")):
            lines.append(line)
    return lines


def spark_application(
    name: str, arguments: Sequence[str], options: Mapping[str, str], directory: Path, master: str = "local[1]"
) -> Program:
    """Start `pipeline.py` as a separate Spark application: one core, a small heap, all files in `directory`.

    On a cluster, an executor uses the core.
    """
    conf = {
        "spark.master": master,
        "spark.cores.max": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    return Program(
        name,
        [
            sys.executable,
            str(HERE / "pipeline.py"),
            f"--name={name}",
            *arguments,
            *(f"--option={key}={value}" for key, value in options.items()),
        ],
        directory,
        {
            "PYSPARK_SUBMIT_ARGS": " ".join(f'--conf "{k}={v}"' for k, v in conf.items()) + " pyspark-shell",
            # The source runs in the Python that Spark starts, so that Python must have this package.
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(directory),
            "TMPDIR": str(directory),
        },
    )


def python_program(name: str, script: str, arguments: Sequence[str], directory: Path) -> Program:
    """Start a script of this directory."""
    return Program(name, [sys.executable, str(HERE / script), *arguments], directory, {})


@contextmanager
def signals_held(*, drop: bool = False) -> Iterator[None]:
    """Let no signal interrupt the block. Raise KeyboardInterrupt for a held signal at its end, or drop the signal."""
    pending: list[int] = []

    def note(signum: int, _: FrameType | None) -> None:
        pending.append(signum)

    before = {signum: signal.signal(signum, note) for signum in SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    if pending and not drop:
        raise KeyboardInterrupt


def interrupt_on_signals() -> None:
    """Make SIGTERM and a closed terminal end the demo like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for signum in SIGNALS:
        signal.signal(signum, interrupt)
