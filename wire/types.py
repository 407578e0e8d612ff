"""The values that Kafka's protocol speaks of everywhere, and the errors of speaking it."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic.  Sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_false(value: str) -> bool:
    """Tell whether librdkafka takes the value of a property for false."""
    return value.strip().lower() in ("false", "f", "0")


class PropertyError(ValueError):
    """A property of Kafka's clients says what connections of this package cannot do.

    Attributes
    ----------
    key : str
        Its name, without ``kafka.``.
    problem, remedy : str
        What is wrong, and what to do.
    """

    def __init__(self, key: str, problem: str, remedy: str) -> None:
        super().__init__(f"{key}: {problem} {remedy}")
        self.key = key
        self.problem = problem
        self.remedy = remedy


class ProtocolError(Exception):
    """A broker answers what cannot be understood, or refuses."""


class UnsupportedVersionError(ProtocolError):
    """A broker does not speak a version of a request that this package speaks."""


class RefusedCredentialsError(ProtocolError):
    """A broker refuses the user, the password, or the way to show them."""


class UnsafeLoginError(RefusedCredentialsError):
    """A login was broken off because it would give the password away; no other client may go through with it."""


class LargeResponseError(ProtocolError):
    """A response is larger than it may be.

    Attributes
    ----------
    length : int
        Its size in bytes.
    """

    def __init__(self, length: int) -> None:
        super().__init__(f"a response of {length} bytes")
        self.length = length


class FetchError(ProtocolError):
    """A leader, or who was believed to be one, refuses to be fetched from.

    Attributes
    ----------
    code : int
        Kafka's error code.
    """

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code
