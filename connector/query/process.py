"""Prepares the source process for its query: a clean end on SIGTERM, a log, and the Kafka client.

Spark ends a source process with SIGTERM, often twice, and does not call ``stop``.  By default Python would end at once.
The group would then hold the member's partitions until its session times out.  Ctrl-C and a closed terminal have the
same effect if Spark's JVM runs in the foreground of a terminal.
"""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from types import FrameType

from pyspark_kafka_group.offsets.errors import MissingDependencyError

_LOGGER = "pyspark_kafka_group"

# The signals that ask a process to end.
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

ENDED = (
    "A signal, such as SIGTERM, has ended the source process while its query was running. The query has left its "
    "group. Start it again."
)
"""The error of a query whose source process was ended, but not by Spark."""


def prepare_source_process(interrupt: Callable[[], bool], stop: Callable[[], None]) -> None:
    """Prepare the process for a query.  The first method that Spark calls runs this on the main thread.

    Parameters
    ----------
    interrupt : callable
        Handles SIGTERM.  Makes the running call of Spark return soon without an error, and returns True.  Returns
        False if there is no call to end.
    stop : callable
        Ends the query.  May be called again.
    """
    require_confluent_kafka()
    log_to_stderr()
    if threading.current_thread() is not threading.main_thread():
        return

    def leave(_signal: int, _frame: FrameType | None) -> None:
        # Deliberate: this comes first, so that the second SIGTERM cannot interrupt stop().
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        # An exception inside a call would reach Spark as the call's result, and a stopped query would log that it
        # failed.  Between calls it ends the process through Spark's `finally`, which calls stop().
        if not interrupt():
            raise SystemExit(ENDED)  # the query sees this text only if it still runs: its next call fails with it

    # Deliberate: although Spark's `finally` calls stop().  If Spark's requests end just before SIGTERM comes, the
    # exception may be raised on the way into that call of stop(), which then does not happen.
    atexit.register(stop)
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # PySpark ignores SIGINT, and nohup SIGHUP
            signal.signal(number, leave)


@cache
def require_confluent_kafka() -> None:
    """Raise :class:`MissingDependencyError` if this Python has no Kafka client.

    Looks once per process.  A task need not import that client, and each look would go through all files of the path.
    """
    if find_spec("confluent_kafka") is None:
        raise MissingDependencyError("confluent-kafka", sys.executable)


def log_to_stderr() -> None:
    """Log to stderr, which is the driver's, unless logging is configured already."""
    logger = logging.getLogger(_LOGGER)
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s kafka-group %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
