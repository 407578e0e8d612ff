"""Child processes: started apart from the terminal, watched, and ended with everything they started.

Each child leads a session of its own. So Ctrl-C reaches only the demo, which then stops the children in order, and what
a child started (a JVM, Python workers, the source process) can be found by its session wherever it hides.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HERE = Path(__file__).resolve().parent


class Program:
    """A running child process, its output in a log file."""

    def __init__(self, name: str, command: Sequence[str], directory: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the child alone; its own children are its business."""
        if self.returncode is None:
            self._process.terminate()

    def end(self, grace_s: float) -> None:
        """Ask, wait, then kill whatever is left of the child's session."""
        self.ask_to_stop()
        deadline = time.monotonic() + grace_s
        while (left := self._session()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def log_tail(self, lines: int = 20) -> str:
        """The end of its output, without what hides the reason in it."""
        return "\n".join(readable(self.log.read_text(encoding="utf-8", errors="replace"))[-lines:])

    def _session(self) -> list[int]:
        """Living processes of the child's session, itself included."""
        self._process.poll()  # collects the child, so that it does not count as a zombie
        found = []
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == self._process.pid:
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


def spark_application(name: str, arguments: Sequence[str], options: Mapping[str, str], directory: Path) -> Program:
    """Start `pipeline.py` as a Spark application of its own: one core, a small heap, all files in `directory`."""
    conf = {
        "spark.master": "local[1]",
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
            # The source runs in the Python that Spark starts: it must be the one that has this package.
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
    """Let no signal interrupt the block; one that came meanwhile raises KeyboardInterrupt at its end, or is dropped."""
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
    """Make SIGTERM and a closed terminal end the demo the way Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for signum in SIGNALS:
        signal.signal(signum, interrupt)
