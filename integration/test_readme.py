"""The commands of README.md work as pasted, in a copy of the repository and a new environment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from integration.pipelines import wait_for
from integration.processes import kill
from integration.test_quick_start import data_left, processes_left, shares
from pyspark_kafka_group.testing.ports import free_ports
from tests.docs.blocks import BLOCKS, ROOT, run_by

TEST = "integration/test_readme.py"
LINES = [block.text for block in BLOCKS if block.page == "README.md" and block.fragment == f"run by {TEST}"]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "artifacts", "try", "__pycache__", "*.so", "*.egg-info")


def test_other_pages_have_these_lines() -> None:
    install, demo = LINES
    assert install.startswith("python3 -m venv ")
    assert demo == "kafka-group demo --applications 2\n"
    assert set(run_by(TEST)) == {install, demo}


@pytest.fixture
def pasted(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run all lines in one shell, with a free port."""
    shutil.copytree(ROOT, tmp_path / "clone", symlinks=True, ignore=LEFT_OUT)
    script = f"set -e\n{''.join(LINES).rstrip()} --port {free_ports(1)[0]}\n"
    output = tmp_path / "output"
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    with output.open("wb") as stream:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path / "clone",
            env={**environment, "COLUMNS": "80", "TMPDIR": str(tmp_path)},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        yield shell, output
    finally:
        children = psutil.Process(shell.pid).children(recursive=True) if shell.poll() is None else []
        kill(signal.SIGKILL, [shell.pid, *(child.pid for child in children)])
        shell.wait()


@pytest.mark.timeout(600)  # downloads and builds what pip has not cached
def test_the_lines_of_the_readme_end_in_two_applications_that_share_a_topic(
    pasted: tuple[subprocess.Popen[bytes], Path], tmp_path: Path
) -> None:
    """The demo fits a terminal of 80 columns, and leaves no process and no data behind."""
    shell, output = pasted

    def shared() -> bool:
        shown = output.read_text(errors="replace")
        assert shell.poll() is None, shown[-4000:]
        return shares(shown.rpartition("orders-etl: ")[2]) == {"etl-1": 3, "etl-2": 3}

    wait_for(shared, "two applications share the topic", timeout_s=480)
    os.killpg(shell.pid, signal.SIGINT)
    code, shown = shell.wait(60), output.read_text(errors="replace")
    assert code == 0, shown[-4000:]
    assert max(map(len, shown.partition("orders-etl: ")[2].splitlines())) <= 80
    wait_for(lambda: not processes_left(tmp_path), "all processes have ended", timeout_s=30)
    assert data_left(tmp_path) == []
