"""Values that all parts of Kafka's protocol use, and errors."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafka_group.wire.error_codes import error_name


class TopicPartition(NamedTuple):
    """One partition of one topic.  Sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Address(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_false(value: str) -> bool:
    """Return whether the value of a property means false in librdkafka."""
    return value.strip().lower() in ("false", "f", "0")


class PropertyError(ValueError):
    """Connections of this package do not support a property of Kafka's clients.

    Attributes
    ----------
    key : str
        The name of the property, without ``kafka.``.
    problem, remedy : str
        The problem and the remedy.
    """

    def __init__(self, key: str, problem: str, remedy: str) -> None:
        super().__init__(f"{key}: {problem} {remedy}")
        self.key = key
        self.problem = problem
        self.remedy = remedy


class ProtocolError(Exception):
    """A broker's answer is invalid, or the broker refuses a request."""


class UnsupportedVersionError(ProtocolError):
    """A broker supports none of this package's versions of a request."""


class UnreachableError(TimeoutError):
    """A broker's system has not accepted a connection in time."""


class RefusedCredentialsError(ProtocolError):
    """A broker refuses the user, the password, or the mechanism."""


class StoppedLoginError(RefusedCredentialsError):
    """A login was stopped on this side.  The text says why, and what to do.

    A task then tries no other client.  But a member or a producer of librdkafka that is open logs in on its own, and
    does not check the number of iterations: see docs/permissions.md.
    """


class LargeResponseError(ProtocolError):
    """A response exceeds the limit.

    Attributes
    ----------
    length : int
        The size of the response, in bytes.
    """

    def __init__(self, length: int) -> None:
        super().__init__(f"a response of {length} bytes")
        self.length = length


class FetchError(ProtocolError):
    """A broker refuses to give records or metadata of a topic.

    Attributes
    ----------
    code : int
        Kafka's error code.
    """

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {error_name(code)}")
        self.code = code
