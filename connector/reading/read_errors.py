"""What librdkafka's errors mean to a reader of ranges, by the table of `kafka_errors`.

What is then done is decided in `range_reader`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.kafka_errors import Meaning, row_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


def meaning_of(error: KafkaError) -> Meaning:
    """What a reader has to make of `error`."""
    return Meaning.FINAL if error.fatal() else row_of(error.name()).reader


_WARNED: set[tuple[str, str, object]] = set()
"""What this process has warned of, and why."""


def level_of(reason: Exception, what: str) -> int:
    """How to log that reading goes another way: once per reason so that it is seen, with Python's own defaults, too."""
    kind = what, type(reason).__name__, getattr(reason, "code", None) or getattr(reason, "kind", None)
    if kind in _WARNED:
        return logging.INFO
    _WARNED.add(kind)
    return logging.WARNING


class SilenceError(Exception):
    """Nothing has come, and nobody says why.

    Attributes
    ----------
    patient : bool
        Whether there are records, so that it may pay to wait longer for them.
    """

    def __init__(self, *, patient: bool) -> None:
        super().__init__("nothing has come")
        self.patient = patient
