"""What a fault is, and a copy of the project to put it into."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

NATIVE = "connector/columns/_native.abi3.so"
NATIVE_SOURCES = (
    "connector/formats/_formats.c",
    "connector/columns/_native.c",
    "connector/columns/_crc32c.c",
    "connector/columns/_record_batches.c",
    "connector/writing/_record_writer.c",
    "connector/writing/_row_digest.c",
)

HANGS_S = 300
"""A fault whose tests take longer makes them hang, and so is noticed."""


class Fault(NamedTuple):
    """Replaces ``old`` by ``new`` in the file ``path``; then one of ``tests``, files or single ones, must fail.

    The text must occur exactly once in the file.  So a fault cannot become a no-op unnoticed when the code changes.
    """

    name: str
    path: str
    old: str
    new: str
    tests: str


class BrokenFaultError(Exception):
    """A fault that cannot be judged: its text is not in its file, or its tests do not run."""


class Copy:
    """A copy of the project, in which faults do no harm.

    Parameters
    ----------
    folder : Path
        An empty folder for it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        # Python takes compiled code for current if the time in seconds and the size of its source are the same.
        self._times = itertools.count(1_000_000_000)
        self._compile()

    def _compile(self) -> None:
        command = [os.environ.get("CC", "cc"), "-std=c11", "-O1", "-fPIC", "-shared", "-o", NATIVE, *NATIVE_SOURCES]
        subprocess.run(command, cwd=self._folder, check=True)

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """Put a fault into the copy, and take it out again."""
        path = self._folder / fault.path
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        if (times := found.count(fault.old)) != 1:
            raise BrokenFaultError(f"{fault.path} contains the text to replace {times} times instead of once")
        try:
            self._write(path, found.replace(fault.old, fault.new))
            yield
        finally:
            self._write(path, found)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        os.utime(path, (time := next(self._times), time))
        if path.suffix in (".c", ".h"):
            self._compile()

    def test(self, tests: Collection[str]) -> str:
        """Run tests until one fails.

        Returns
        -------
        str
            The name of the test that failed; empty if all have passed.
        """
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "--timeout=100", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self._folder / "src")}
        try:
            run = subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=HANGS_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"none in {HANGS_S} s: the tests hang"
        if run.returncode not in (0, 1):  # a syntax error, for example, or a test that does not exist
            raise BrokenFaultError("its tests do not run: " + " ".join(run.stdout.split()[-60:]) + run.stderr)
        failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return "".join(failed[:1]) or ("a test" if run.returncode else "")
