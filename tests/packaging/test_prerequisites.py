"""On a machine without the right Java or Python, `make` prints one line at once, with the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return subprocess.run(
        ["/bin/sh", str(SCRIPTS / script)],
        env=inherited | env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def java_home(tmp_path: Path, version_text: str) -> str:
    program(tmp_path / "bin" / "java", f"cat >&2 <<'END'\n{version_text}\nEND")
    return str(tmp_path)


@pytest.mark.parametrize(
    "version_text",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'java version "21" 2023-09-19 LTS',
        'openjdk version "25-ea" 2025-09-16',
        'Picked up JAVA_TOOL_OPTIONS: -Da="b"\nopenjdk version "17.0.1" 2021-10-19',
    ],
)
def test_java_17_or_newer_passes_without_a_word(tmp_path: Path, version_text: str) -> None:
    result = run("check-java.sh", JAVA_HOME=java_home(tmp_path, version_text))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("version_text", "seen"),
    [
        ('java version "1.8.0_392"', "8"),
        ('openjdk version "11.0.2" 2019-01-15', "11"),
        ("something else", "unknown"),
    ],
)
def test_too_old_a_java_gets_one_line_with_the_remedy(tmp_path: Path, version_text: str, seen: str) -> None:
    result = run("check-java.sh", JAVA_HOME=java_home(tmp_path, version_text))
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert f"is version {seen}." in result.stderr
    assert "Install a JDK or JRE 17 or newer" in result.stderr


def test_missing_java_gets_one_line_with_the_remedy(tmp_path: Path) -> None:
    result = run("check-java.sh", JAVA_HOME=str(tmp_path))
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "Install a JDK or JRE 17 or newer" in result.stderr


def test_the_running_python_passes_without_a_word() -> None:
    result = run("check-python.sh", PYTHON=sys.executable)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_new_enough_python_gets_one_line_with_the_remedy() -> None:
    result = run("check-python.sh", PYTHON="")
    assert result.returncode == 1
    assert result.stderr.startswith("Python 3.11 or newer is needed, and no python3 on the PATH is that new.")
    assert len(result.stderr.splitlines()) == 1


def test_too_old_a_python_gets_one_line_with_the_remedy(tmp_path: Path) -> None:
    old = program(tmp_path / "python3.9", "exit 1")
    result = run("check-python.sh", PYTHON=str(old))
    assert result.returncode == 1
    assert result.stderr.startswith(f"Python 3.11 or newer is needed, and '{old}' is older")
    assert len(result.stderr.splitlines()) == 1


def test_a_python_without_venv_gets_one_line_with_the_remedy(tmp_path: Path) -> None:
    bare = program(tmp_path / "python3", f'case "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"')
    result = run("check-python.sh", PYTHON=str(bare))
    assert result.returncode == 1
    assert "cannot make virtual environments" in result.stderr
    assert "python3-venv" in result.stderr
    assert len(result.stderr.splitlines()) == 1
