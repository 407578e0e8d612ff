"""The metadata of an offset that an operator has set with ``kafka-group reset``.

``{"v": 1, "reset": {"by": "alice@laptop", "at": 1767225600000, "from": 100}}``: the operator, the time in
milliseconds since 1970, and the offset that was committed before, or null.  ``"intended": true`` follows if queries
shall accept it without ``onOffsetRewind``.  They do so once, because their next commit replaces the note.

It is not a :class:`~pyspark_kafka_group.offsets.commit_metadata.CommitNote`.  A query treats such an offset like one
without metadata, but can name the operator.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark_kafka_group.offsets.notes import document_of
from pyspark_kafka_group.offsets.types import Offset

_LONGEST_NAME = 200
"""Brokers allow 4096 bytes of metadata, and a character may take six in JSON."""


class ResetNote(NamedTuple):
    """The note of a reset.

    Attributes
    ----------
    by : str
        The operator: a user and a machine.
    time_ms : int
        The time of the reset, in milliseconds since 1970, by that machine's clock.
    previous : Offset or None
        The offset that was committed before; None if there was none.
    intended : bool
        Whether a query shall accept it whatever its ``onOffsetRewind``.
    """

    by: str
    time_ms: int
    previous: Offset | None
    intended: bool = False

    def encode(self) -> str:
        """Return the metadata for one committed offset."""
        found = {"by": self.by[:_LONGEST_NAME], "at": self.time_ms, "from": self.previous}
        if self.intended:
            found["intended"] = True
        return json.dumps({"v": 1, "reset": found}, separators=(",", ":"))

    @classmethod
    def decode(cls, metadata: str | None) -> ResetNote | None:
        """Read the result of :meth:`encode`; None for everything else.  Raises as :func:`document_of` does."""
        document = document_of(metadata, "reset") or {}
        found = document.get("reset")
        if not isinstance(found, dict):
            return None
        by, time_ms, previous = found.get("by"), found.get("at"), found.get("from")
        if not isinstance(by, str) or type(time_ms) is not int:
            return None
        before = Offset(previous) if type(previous) is int and previous >= 0 else None
        return cls(by, time_ms, before, found.get("intended") is True)

    @property
    def time(self) -> str:
        """The time of the reset as a text for people."""
        try:
            return datetime.fromtimestamp(self.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        except (ValueError, OverflowError, OSError):
            return f"{self.time_ms} ms after 1970"

    def __str__(self) -> str:
        before = "there was none before" if self.previous is None else f"it was {self.previous} before"
        by = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in self.by)
        return f"{by} set it with 'kafka-group' at {self.time}; {before}"
