"""What the source process needs around its query: a clean end on SIGTERM, a log, and the Kafka client.

Spark ends a source process with SIGTERM, often twice, and does not call ``stop``.  Python's default would end it
at once; the group would then hold the member's partitions until its session times out.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from importlib.util import find_spec
from types import FrameType

from pyspark_kafka_group.offsets.errors import MissingDependencyError

_LOGGER = "pyspark_kafka_group"


def prepare_source_process() -> None:
    """Prepare the process for a query.  Called on its main thread, by the first method that Spark calls."""
    require_confluent_kafka()
    _log_to_stderr()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _leave)


def require_confluent_kafka() -> None:
    """Raise :class:`MissingDependencyError` if this Python has no Kafka client."""
    if find_spec("confluent_kafka") is None:
        raise MissingDependencyError("confluent-kafka", sys.executable)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """End the process through its ``finally`` blocks, one of which is Spark's call of ``stop``."""
    # Deliberate: first, so that the second SIGTERM cannot interrupt stop().
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)


def _log_to_stderr() -> None:
    """Log to stderr, which is the driver's, unless somebody has configured logging."""
    logger = logging.getLogger(_LOGGER)
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s kafka-group %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
