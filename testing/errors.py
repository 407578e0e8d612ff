"""The errors of this package."""

from __future__ import annotations


class KafkaTestingError(RuntimeError):
    """A broker could not be started, reached or used; the text says what to do about it."""


class UnsupportedFaultError(KafkaTestingError):
    """A broker of this kind does not have this fault.  The text names one that has it."""

    def __init__(self, broker: object, what: str, instead: str) -> None:
        super().__init__(f"{type(broker).__name__} cannot {what}; {instead}")
