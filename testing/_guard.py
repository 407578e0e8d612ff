"""A small process between us and a broker, so that no broker outlives the Python process that started it.

Run as a script with the standard library only: ``python -I -S _guard.py COMMAND ...``.  It starts the command
and exits with its exit status.  Each byte on standard input is the number of a signal to send.  When standard input
ends, or the parent is gone, it kills the command.  (A parent that was killed with -9 may have a fork that still holds
the pipe open.)  If the guard itself is killed, Linux kills the command.

The kernel's parent-death signal alone is not enough.  It fires when the *thread* that started the child ends, and it
needs code between fork and exec in a process with many threads.  This process has one thread.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
# How long a broker may live on when our parent died without closing the pipe.
_PARENT_CHECK_S = 0.5


def main(command: list[str]) -> int:
    parent = os.getppid()
    # A byte in this pipe means that the command has ended.
    ended, on_end = os.pipe()
    os.set_blocking(on_end, False)
    signal.set_wakeup_fd(on_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, guard)
    while True:
        readable, _, _ = select.select([0, ended], [], [], _PARENT_CHECK_S)
        if ended in readable:
            os.read(ended, 1)
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        requested = os.read(0, 1) if 0 in readable else None
        if requested == b"" or os.getppid() != parent:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 128 + signal.SIGKILL
        if requested:
            os.kill(child, requested[0])


def _become(command: list[str], guard: int) -> None:
    """Become the command, in the child process."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != guard:  # the guard died before the request above was in force
                os._exit(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.execv(command[0], command)
    except BaseException as error:
        os.write(2, f"cannot run {command[0]}: {error}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
