"""What a row of the table of options says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Use(Enum):
    """What becomes of an option in one way of reading."""

    YES = "yes"
    IGNORED = "ignored"  # with a warning, as in Spark's own source
    NO = "refused"  # because silence would mislead


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes
    ----------
    name : str
        As users write it.
    kind : str
        Type and unit, for the docs.
    default : str or None
        As text, for the docs and for parsing; None if the option is required or off.
    parse : callable
        Turns the text into the value; raises :class:`~pyspark_kafka_group.options.parsers.MalformedError`.
    doc : str
        What it means.
    required : bool
        Whether the query cannot start without it.
    stream, batch : Use
        What becomes of it in ``readStream``, and in ``read``.
    batch_default : str or None
        The default in ``read``, where that is another one.
    """

    name: str
    kind: str
    default: str | None
    parse: Callable[[str], Any]
    doc: str
    required: bool = False
    stream: Use = Use.YES
    batch: Use = Use.YES
    batch_default: str | None = None

    @property
    def reads(self) -> str:
        """Where it holds, for the docs."""
        if self.stream is self.batch:
            return "both"
        return "stream" if self.stream is Use.YES else "batch"
