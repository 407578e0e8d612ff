"""A test that takes too long ends with a line that says where it waited."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_summary_names_the_calls_that_a_test_was_in(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.timeouts import pytest_timeout_names_the_calls\n")
    (tmp_path / "test_slow.py").write_text("import threading\n\ndef test():\n    threading.Event().wait(60)\n")
    command = [sys.executable, "-m", "pytest", "--timeout=0.2", f"--rootdir={tmp_path}", str(tmp_path)]
    root, environment = Path(__file__).parents[2], {"CI": "1"}  # lines as long as they are

    shown = subprocess.run(command, check=False, cwd=root, env=environment, capture_output=True, text=True).stdout

    *_, line, _ = shown.splitlines()
    assert "test_slow.py::test - Failed: Timeout" in line, shown
    assert line.endswith(", called by test_slow.py:4 test."), shown
