"""The first steps of a new user: the quick start step by step, and a first test.  `test_readme` runs the demo."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from integration.pipelines import PATIENCE_S, SMALL, wait_for
from integration.processes import kill
from pyspark_kafka_group.testing.ports import free_ports
from pyspark_kafka_group.tools.demo import PROGRAM

ROOT = Path(__file__).parents[1]
README, QUICK_START, TESTING = ROOT / "README.md", ROOT / "docs" / "quick-start.md", ROOT / "docs" / "testing.md"
_STEP = re.compile(
    rf"^<!-- fragment: a step of integration/{Path(__file__).name} -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_ADDRESS = "localhost:9092"

KAFKA_GROUP = [sys.executable, "-m", "pyspark_kafka_group.tools"]


def programs(text: str) -> list[str]:
    """Return the programs of a page that are marked as steps of this test."""
    return [block for language, block in _STEP.findall(text) if language == "python"]


def commands(text: str) -> list[str]:
    """Return the shell commands of the marked blocks, without comments."""
    lines = [line for language, block in _STEP.findall(text) if language == "sh" for line in block.splitlines()]
    return [" ".join(shlex.split(line, comments=True)) for line in lines]


class Terminals:
    """Runs each command in a separate session, like a terminal: Ctrl-C reaches all its processes."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._address = address
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = {
            **os.environ,
            "COLUMNS": "80",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": SMALL,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(folder),
        }

    def _arguments(self, command: str) -> list[str]:
        program, *arguments = command.replace(_ADDRESS, self._address).split()
        return [*{"kafka-group": KAFKA_GROUP, "python": [sys.executable]}[program], *arguments]

    def start(self, command: str) -> None:
        """Start a command that runs until Ctrl-C."""
        output = self._output(command).open("ab")
        with output:
            self._started[command] = subprocess.Popen(
                self._arguments(command),
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def run(self, command: str) -> str:
        """Run a command until it ends, and return its output."""
        return subprocess.run(
            self._arguments(command),
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        ).stdout

    def wait_for_output(self, command: str, pattern: str) -> None:
        """Wait until the output of a running command has a line that matches the pattern."""

        def there() -> bool:
            assert self._started[command].poll() is None, self.output(command)
            return re.search(pattern, self.output(command), re.MULTILINE) is not None

        wait_for(there, f"{command} shows {pattern}")

    def press_ctrl_c(self, command: str) -> int:
        """Interrupt a running command, and return its exit code."""
        os.killpg(self._started[command].pid, signal.SIGINT)
        return self._started[command].wait(PATIENCE_S)

    def output(self, command: str) -> str:
        """Return the output of a command so far."""
        return self._output(command).read_text(errors="replace")

    def _output(self, command: str) -> Path:
        return self._folder / f"{re.sub(r'[^a-z]+', '-', command)}.log"

    def close(self) -> None:
        """Kill all processes that still run."""
        kill(signal.SIGKILL, processes_left(self._folder))
        for process in self._started.values():
            process.wait()


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def terminals(tmp_path: Path, port: int) -> Iterator[Terminals]:
    found = Terminals(tmp_path, f"localhost:{port}")
    yield found
    found.close()


def shares(described: str) -> dict[str, int]:
    """Return how many partitions each client has, from the last column of ``describe`` or ``watch``."""
    return dict(Counter(re.findall(r"^orders .* (\S+)-[0-9a-f]{8}$", described, re.MULTILINE)))


def processes_left(folder: Path) -> list[int]:
    """Return the processes that still run and have the folder as ``TMPDIR``."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get("TMPDIR") == str(folder):
                found.append(process.pid)
    return found


def data_left(folder: Path) -> list[str]:
    """Return the remaining folders of Kafka and of the demo.  The folders of the control sockets may remain."""
    names = [path.name for path in folder.glob("kafka-*") if path.is_dir()]
    return [name for name in names if not name.startswith(("kafka-group-queries-", "kafka-group-sources-"))]


@pytest.mark.timeout(400)  # starts Spark twice
def test_the_quick_start_step_by_step(terminals: Terminals, port: int, tmp_path: Path) -> None:
    demo, one, two, describe = (
        "kafka-group demo",
        "python first.py one",
        "python first.py two",
        f"kafka-group describe -b {_ADDRESS} orders-etl",
    )
    demo_here = f"{demo} --port {port}"
    page = QUICK_START.read_text(encoding="utf-8")
    assert commands(page) == [demo, one, two, describe, describe], "the steps below"
    assert programs(page) == [PROGRAM]

    terminals.start(demo_here)
    terminals.wait_for_output(demo_here, "^Kafka listens at")
    shown = terminals.output(demo_here)
    (tmp_path / "first.py").write_text(PROGRAM.replace(_ADDRESS, f"localhost:{port}"))
    for command in (one, two):
        terminals.start(command)
        terminals.wait_for_output(command, r"^\|\d +\|\d+ +\|\{")
    wait_for(lambda: shares(terminals.run(describe)) == {"one": 3, "two": 3}, "each has three partitions")
    assert terminals.press_ctrl_c(one) == 0, terminals.output(one)
    assert "Traceback" not in terminals.output(one)
    wait_for(lambda: shares(terminals.run(describe)) == {"two": 6}, "the other one has all partitions")
    assert terminals.press_ctrl_c(two) == 0, terminals.output(two)
    assert terminals.press_ctrl_c(demo_here) == 0
    assert PROGRAM.replace(_ADDRESS, f"localhost:{port}") in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert terminals.output(demo_here).endswith("\nStopping, and deleting Kafka's data ...\n")
    wait_for(lambda: not processes_left(tmp_path), "all processes have ended", timeout_s=30)
    assert data_left(tmp_path) == []


def test_the_readme_has_the_program_of_the_quick_start() -> None:
    assert programs(README.read_text(encoding="utf-8")) == [PROGRAM]


def test_a_port_that_is_in_use_is_named(terminals: Terminals, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        shown = terminals.run(f"kafka-group demo --port {port}")
    assert shown.endswith(f"kafka-group: port {port} is in use on 127.0.0.1: choose another one, with --port\n")


@pytest.mark.timeout(400)
def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    written = programs(TESTING.read_text(encoding="utf-8"))
    for program in written:
        name = program.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(program)
    spark = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **spark}, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(written)} passed" in ran.stdout
