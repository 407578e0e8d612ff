"""Removes three costs of Spark's Python workers that are as high for a small task as for a large one."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import socket
import sys
from typing import Any
from zipimport import zipimporter

_LOOPBACK = ("127.", "::1", "::ffff:127.")


def acknowledge() -> None:
    """Acknowledge at once all data received over loopback connections.  Called while Python unpickles a task.

    Spark's JVM (4.3.0) sends a task to a Python worker in two writes: first the task, then its input.  By Nagle's
    algorithm the second write waits until the first one is acknowledged.  The kernel delays the acknowledgement by
    40 ms, because it hopes to send it with an answer.  So half of all tasks would begin 40 ms late.

    Spark gives Python neither the socket nor a setting for it.  But it unpickles the first write before it reads the
    second one.  This works on Linux only.  With ``spark.python.unix.domain.socket.enabled`` there is nothing to do.
    """
    # A socket object with a default timeout would change the open file for its owner.
    if not hasattr(socket, "TCP_QUICKACK") or socket.getdefaulttimeout() is not None:
        return
    with contextlib.suppress(OSError):  # no such folder
        for name in os.listdir("/proc/self/fd"):
            _acknowledge(int(name))


def _acknowledge(file: int) -> None:
    try:
        found = socket.socket(fileno=file)
    except OSError:
        return  # not a socket, or closed meanwhile
    try:
        peer = found.getpeername()
        if found.type == socket.SOCK_STREAM and isinstance(peer, tuple) and str(peer[0]).startswith(_LOOPBACK):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    except OSError:
        return  # not connected
    finally:
        found.detach()  # its owner closes it


_FREEZE_AT = (2, 8, 32)
_uses = itertools.count(1)


def spare_modules() -> None:
    """Let the garbage collector skip what this worker has imported.  Called at each use of the worker.

    After each task, a worker that Spark reuses collects its garbage, and so visits each object of the imported modules.
    With some hundred records in a task, this was half of the worker's CPU time.

    Frozen objects are not visited, but never collected either.  So freeze rarely, and not at the first use: at the
    second one most modules are imported, and the garbage of the first one is gone.  Later, a worker may have had
    another kind of task, with other modules.
    """
    if next(_uses) in _FREEZE_AT and os.environ.get("SPARK_REUSE_WORKER"):
        gc.freeze()


_SPARKS_ZIPS = ("pyspark.zip", "py4j-", "spark-core_")


def spare_zips() -> None:
    """Let Python forget which modules it looks for in Spark's own zip files.  Called while Python unpickles a task.

    PySpark 4.0 and 4.1 call `importlib.invalidate_caches` before each task.  For each package that was imported from a
    zip, Python then reads the directory of that zip again: for some fifty packages in `pyspark.zip`, this takes longer
    than a small task.  Spark also puts its own jar on Python's path, which has thousands of files and no module.  What
    is forgotten is found again when a module is imported, without reading the directory.

    Zips of users stay as they are, because they may change while a worker runs.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and os.path.basename(finder.archive).startswith(_SPARKS_ZIPS):
            sys.path_importer_cache.pop(path, None)


class SentToWorkers:
    """A base class of the readers and writers that Spark sends to tasks.  Unpickling one prepares the worker."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()
        spare_modules()
        spare_zips()
