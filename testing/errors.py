"""The errors of this package."""

from __future__ import annotations

from pyspark_kafka_group.testing.ports import HOST


class KafkaTestingError(RuntimeError):
    """A broker could not be started, reached or used; the text says what to do about it."""


class PortInUseError(KafkaTestingError):
    """Another program listens on a port that a broker or a proxy needs."""

    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} is in use on {HOST}: choose another one")


class UnsupportedFaultError(KafkaTestingError):
    """A broker of this kind does not have this fault.  The text names one that has it."""

    def __init__(self, broker: object, what: str, instead: str) -> None:
        super().__init__(f"{type(broker).__name__} cannot {what}; {instead}")
