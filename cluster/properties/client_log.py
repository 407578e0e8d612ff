"""librdkafka's log lines on their way into Python's logging: without secrets, and without repetition.

librdkafka 2.16 tries an unreachable broker 20 times a second and writes an error line each time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping

from pyspark_kafka_group.cluster.properties.client_login import client_text

QUIET_S = 10.0
"""How long after a warning or error the log only counts others of the same facility, in seconds.

Short enough to show that the trouble lasts.  Long enough that the log of a task which waits two minutes fits on one
screen.
"""


class ClientLog:
    """The ``logger`` of a confluent-kafka client.  Called by the thread that polls the client.

    Parameters
    ----------
    logger
        Takes the lines.
    properties
        The client's configuration.  Its secret values are not shown.
    """

    def __init__(self, logger: logging.Logger, properties: Mapping[str, str]) -> None:
        self._logger = logger
        self._properties = properties
        self._quiet_until: dict[str, float] = {}
        self._suppressed: Counter[str] = Counter()

    def log(self, level: int, template: str, facility: str, client_name: str, text: str) -> None:
        """Pass on one line of librdkafka, or count it."""
        if level >= logging.WARNING:
            now = time.monotonic()
            if now < self._quiet_until.get(facility, now):
                self._suppressed[facility] += 1
                return
            self._quiet_until[facility] = now + QUIET_S
            suppressed = self._suppressed.pop(facility, 0)
            if suppressed:
                text = f"{text} [and {suppressed} like it before]"
        self._logger.log(level, template, facility, client_name, client_text(text, self._properties))
