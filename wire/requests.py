"""The base of all requests: a number, versions, a header, and fields that depend on the version.

Fetch, and the requests at the start of a connection, have one fixed version each: see `messages`.  All others derive
from `Request` and are sent in the highest version that both sides support: see `BrokerConnection.ask`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Generic, NamedTuple, TypeVar

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.types import TopicPartition, UnsupportedVersionError

T = TypeVar("T")

OfferedVersions = Mapping[int, tuple[int, int]]
"""The oldest and the newest version that a broker supports of each request, by the request's number."""


class Api(NamedTuple):
    """A kind of request.

    Attributes
    ----------
    key : int
        The number.
    name : str
        The name in Kafka.
    oldest, newest : int
        The versions that this package supports.
    flexible : int
        The first flexible version.
    since : str
        The first Kafka that supports the oldest one.
    """

    key: int
    name: str
    oldest: int
    newest: int
    flexible: int
    since: str

    def version(self, offered: OfferedVersions) -> int:
        """Return the highest version that both sides support.

        Raises
        ------
        UnsupportedVersionError
            If there is none.
        """
        oldest, newest = offered.get(self.key, (0, -1))
        version = min(self.newest, newest)
        if version < max(self.oldest, oldest):
            raise UnsupportedVersionError(
                f"the broker offers versions {oldest} to {newest} of the request {self.name}, not {self.oldest} to "
                f"{self.newest}; Kafka has them from {self.since} on"
            )
        return version


class Request(ABC, Generic[T]):
    """A request whose answer is a `T`."""

    api: ClassVar[Api]

    @abstractmethod
    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""

    @abstractmethod
    def read(self, answer: Reader, version: int) -> T:
        """Read the fields of the answer; raise `ProtocolError` if it is invalid."""


def write_by_topic(out: Writer, values: Mapping[TopicPartition, T], partition: Callable[[int, T], None]) -> None:
    """Write an array of topics, each with an array of partitions; `partition` writes the number and the value."""
    by_topic: dict[str, list[tuple[int, T]]] = {}
    for tp, value in values.items():
        by_topic.setdefault(tp.topic, []).append((tp.partition, value))

    def topic(asked: tuple[str, list[tuple[int, T]]]) -> None:
        name, partitions = asked
        out.text(name)
        out.array(partitions, lambda item: partition(*item))
        out.end()

    out.array(by_topic.items(), topic)


def read_errors(answer: Reader) -> dict[TopicPartition, int]:
    """Read a whole answer that has the throttle time, and an error code for each partition."""

    def partition() -> tuple[int, int]:
        found = answer.int32(), answer.int16()
        answer.end()
        return found

    answer.int32()  # throttle time
    found = read_by_topic(answer, partition)
    answer.end()
    return found


def read_by_topic(answer: Reader, partition: Callable[[], tuple[int, T]]) -> dict[TopicPartition, T]:
    """Read an array of topics, each with an array of partitions; `partition` reads the number and the value."""
    found: dict[TopicPartition, T] = {}

    def one(name: str) -> None:
        number, value = partition()
        found[TopicPartition(name, number)] = value

    def topic() -> None:
        name = answer.text()
        answer.array(lambda: one(name))
        answer.end()

    answer.array(topic)
    return found
