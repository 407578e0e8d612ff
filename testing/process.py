"""A process under guard, a broker say: started, signalled and waited for, with its output in a file."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark_kafka_group.testing import _guard


class GuardedProcess:
    """A process that dies with the process that started it, whatever ends that one.

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
        """The session that it runs in, with its guard and with what it starts."""
        return self._guard.pid

    def exit_status(self) -> int | None:
        """The exit status, 128 + N after signal N; None while it runs."""
        status = self._guard.poll()
        if status is not None:
            self._close()
        return status

    def wait(self) -> int:
        """Wait until it has ended by itself; its exit status."""
        status = self._guard.wait()
        self._close()
        return status

    def send(self, number: signal.Signals) -> None:
        """Send a signal; one that has ended by itself does not mind."""
        # ValueError: `exit_status` found it ended and closed the pipe.
        with contextlib.suppress(BrokenPipeError, ValueError):
            assert self._guard.stdin is not None
            self._guard.stdin.write(bytes([number]))

    def end(self, grace_s: float) -> bool:
        """Ask it to end, kill it if it has not ended in time; whether it ended by itself."""
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
