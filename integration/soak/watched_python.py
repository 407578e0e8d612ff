"""A Python for Spark that tells how each source process ends.  Linux, standard library only.

``python -I -S watched_python.py PYTHON NOTES ARGUMENT ...`` becomes ``PYTHON ARGUMENT ...``, unless that is to be a
source process: it starts that one as a child, waits for it, and writes its wait status into the file ``NOTES``.  Only a
parent is told the wait status, and the parent of a source process is Spark's JVM, which tells nobody.

To the source process it must look as if its parent were the JVM.  So SIGTERM, with which Spark ends it, is passed on;
and when the JVM is gone this process ends, too, for a source process leaves its group when its parent changes.  Whoever
runs the application adopts the source process then, and takes its wait status: see ``source_ends``.
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
        # Deliberate: SIGTERM before the look at the child.  What has ended is still there to be sent a signal.
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
    """Append a line; one write, so that lines of several processes do not mix."""
    line = json.dumps({"time": time.time(), **content}) + "\n"
    with open(file, "ab", buffering=0) as notes:
        notes.write(line.encode())


if __name__ == "__main__":
    main()
