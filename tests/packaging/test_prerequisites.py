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


def refused(script: str, *said: str, **env: str) -> None:
    """Check that a script ends with 1 and one line, which says all this."""
    result = run(script, **env)
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1), result.stderr
    for words in said:
        assert words in result.stderr


@pytest.mark.parametrize(
    ("version_text", "seen"),
    [
        ('java version "1.8.0_392"', "8"),
        ('openjdk version "11.0.2" 2019-01-15', "11"),
        ("something else", "unknown"),
    ],
)
def test_too_old_a_java_gets_one_line_with_the_remedy(tmp_path: Path, version_text: str, seen: str) -> None:
    remedy = "Install a JDK or JRE 17 or newer"
    refused("check-java.sh", f"is version {seen}.", remedy, JAVA_HOME=java_home(tmp_path, version_text))


def test_missing_java_gets_one_line_with_the_remedy(tmp_path: Path) -> None:
    refused("check-java.sh", "Install a JDK or JRE 17 or newer", JAVA_HOME=str(tmp_path))


def test_the_running_python_passes_without_a_word() -> None:
    result = run("check-python.sh", PYTHON=sys.executable)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_python_that_will_not_do_gets_one_line_with_the_remedy(tmp_path: Path) -> None:
    newer = "Python 3.11 or newer is needed, and "
    refused("check-python.sh", f"{newer}no python3 on the PATH is that new.", PYTHON="")
    old = program(tmp_path / "python3.9", "exit 1")
    refused("check-python.sh", f"{newer}'{old}' is older", PYTHON=str(old))
    bare = program(tmp_path / "python3", f'case "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"')
    refused("check-python.sh", "cannot make virtual environments", "python3-venv", PYTHON=str(bare))
