"""What the source process needs around its query: a clean end on SIGTERM, a log, and the Kafka client.

Spark ends a source process with SIGTERM, often twice, and does not call ``stop``.  Python's default would end it
at once; the group would then hold the member's partitions until its session times out.  The same goes for Ctrl-C and a
terminal that is closed, which reach the process where Spark's JVM was started in the foreground of one.
"""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType

from pyspark_kafka_group.offsets.errors import MissingDependencyError

_LOGGER = "pyspark_kafka_group"

# What asks a process to end.
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

ENDED = "The source process was ended by SIGTERM while its query went on. It has left the group; restart the query."
"""What the query fails with, if somebody else than Spark ends the source process."""


def prepare_source_process(interrupt: Callable[[], bool], stop: Callable[[], None]) -> None:
    """Prepare the process for a query.  Called on its main thread, by the first method that Spark calls.

    Parameters
    ----------
    interrupt : callable
        Called on SIGTERM.  It makes the running call of Spark end soon and well, and returns True; or returns
        False if no call is running that it could end.
    stop : callable
        Ends the query; may be called again when it has.
    """
    require_confluent_kafka()
    log_to_stderr()
    if threading.current_thread() is not threading.main_thread():
        return

    def leave(_signal: int, _frame: FrameType | None) -> None:
        # Deliberate: first, so that the second SIGTERM cannot interrupt stop().
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        # An exception inside a call would reach Spark as the call's result, and a stopped query would log that it
        # failed.  Between calls it ends the process through its `finally`, which is Spark's call of stop().
        if not interrupt():
            raise SystemExit(ENDED)  # read by nobody, unless the query goes on: then it is why its next call fails

    # Deliberate: besides Spark's `finally`.  Where its requests end just before SIGTERM comes, the exception is raised
    # on the way into that very call of stop(), which then is not made.
    atexit.register(stop)
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as PySpark has SIGINT, and nohup SIGHUP
            signal.signal(number, leave)


def require_confluent_kafka() -> None:
    """Raise :class:`MissingDependencyError` if this Python has no Kafka client."""
    if find_spec("confluent_kafka") is None:
        raise MissingDependencyError("confluent-kafka", sys.executable)


def log_to_stderr() -> None:
    """Log to stderr, which is the driver's, unless somebody has configured logging."""
    logger = logging.getLogger(_LOGGER)
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s kafka-group %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
