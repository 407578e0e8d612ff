"""A Python for Spark that records how each source process ends.  Linux, standard library only.

``python -I -S watched_python.py PYTHON NOTES ARGUMENT ...`` becomes ``PYTHON ARGUMENT ...``, except for a source
process.  It starts a source process as a child, waits for it, and writes its wait status into the file ``NOTES``.  Only
a parent gets the wait status.  Normally the parent of a source process is Spark's JVM, which does not publish it.

For the source process, this parent must behave like the JVM.  So it passes on SIGTERM, with which Spark ends a source
process.  It also ends when the JVM is gone, because a source process leaves its group when its parent changes.  The
process that runs the application then adopts the source process, and gets its wait status: see ``source_ends``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_PARENT_CHECK_S = 0.1


def main() -> None:
    python, notes, *arguments = sys.argv[1:]
    command = [python, *arguments]
    if RUNNER not in arguments:
        os.execv(python, command)
    parent = os.getppid()
    awaited = {signal.SIGCHLD, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.posix_spawn(python, command, os.environ, setsigmask=before)
    note(notes, pid=child, began=True)
    while True:
        # Deliberate: SIGTERM before waitpid.  Until waitpid, an ended child still exists and can get a signal.
        received = signal.sigtimedwait(awaited, _PARENT_CHECK_S)
        if received is not None and received.si_signo == signal.SIGTERM:
            note(notes, pid=child, passed_on=int(signal.SIGTERM))
            os.kill(child, signal.SIGTERM)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            note(notes, pid=child, ended=code)
            sys.exit(code if code >= 0 else 128 - code)
        if os.getppid() != parent:
            return


def note(file: str | os.PathLike[str], **content: Any) -> None:
    """Append a line in one write, so that lines of several processes do not mix."""
    line = json.dumps({"time": time.time(), **content}) + "\n"
    with open(file, "ab", buffering=0) as notes:
        notes.write(line.encode())


if __name__ == "__main__":
    main()
