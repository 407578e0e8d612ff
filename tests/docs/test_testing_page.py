"""The first commands of docs/testing.md work as pasted, in the folder that the install lines make."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import ROOT, blocks_of, run_by


def test_pytest_finds_the_test_of_the_page_in_the_clone(tmp_path: Path) -> None:
    """Regression: it took the settings of this project, and ended with 'Unknown config option: timeout'."""
    (shell,) = run_by("tests/docs/test_testing_page.py")
    (program,) = (block.text for block in blocks_of(ROOT / "docs" / "testing.md") if "# test_orders.py" in block.text)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    folder = tmp_path / "try"
    folder.mkdir()
    (folder / "test_orders.py").write_text(program)
    install, *lines = shell.splitlines()
    assert install == "pip install pytest"
    lines = [line.replace("python ", f"{sys.executable} ") for line in lines]
    # without the plugins of this project, which pip has not installed there
    alone = {"PYTEST_ADDOPTS": "--collect-only -q -p no:timeout -p no:cacheprovider", "PYTHONDONTWRITEBYTECODE": "1"}
    pasted = ["bash", "-ec", "\n".join(lines)]
    ran = subprocess.run(pasted, cwd=folder, env={**os.environ, **alone}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "test_orders.py::test_orders_are_shouted" in ran.stdout
