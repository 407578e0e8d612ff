"""Processes under guard, such as brokers, with their output in a file."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark_kafka_group.testing import _guard


class GuardedProcess:
    """A process that ends with the process that started it, even if that is killed.

    Parameters
    ----------
    command
        Program (an absolute path) and arguments.
    log
        File to which output and errors are appended.
    env
        Its environment; None is ours.
    """

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_guard.__file__), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                bufsize=0,
                cwd=log.parent,
                env=env,
                # Ctrl-C in a terminal goes to the whole foreground group: it is for us, not for the brokers.
                start_new_session=True,
            )

    @property
    def session(self) -> int:
        """The session of the process, of its guard and of its children."""
        return self._guard.pid

    def exit_status(self) -> int | None:
        """Return the exit status, 128 + N after signal N; None while it runs."""
        status = self._guard.poll()
        if status is not None:
            self._close()
        return status

    def wait(self) -> int:
        """Wait for its end and return the exit status."""
        status = self._guard.wait()
        self._close()
        return status

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        # ValueError: `exit_status` found it ended and closed the pipe.
        with contextlib.suppress(BrokenPipeError, ValueError):
            assert self._guard.stdin is not None
            self._guard.stdin.write(bytes([number]))

    def end(self, grace_s: float) -> bool:
        """Ask it to end and kill it if that takes too long; return whether it ended in time."""
        self.send(signal.SIGTERM)
        try:
            self._guard.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._close()
        return True

    def kill(self) -> None:
        """Kill it and wait until it is gone."""
        self.send(signal.SIGKILL)
        self._guard.wait()
        self._close()

    def _close(self) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.close()
