"""What every request has: a number, versions, a header, and fields that depend on the version.

The hot paths (Fetch, ListOffsets) and what comes before them speak one fixed version each, see `messages`.  All others
derive from `Request` and are sent in the highest version that both sides speak, see `BrokerConnection.ask`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Generic, NamedTuple, TypeVar

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.types import TopicPartition, UnsupportedVersionError

T = TypeVar("T")

OfferedVersions = Mapping[int, tuple[int, int]]
"""The oldest and the newest version that a broker speaks of each request, by the request's number."""


class Api(NamedTuple):
    """A kind of request.

    Attributes
    ----------
    key : int
        Its number.
    name : str
        What Kafka calls it.
    oldest, newest : int
        The versions that are spoken here.
    flexible : int
        The first flexible version.
    since : str
        The first Kafka that speaks the oldest one.
    """

    key: int
    name: str
    oldest: int
    newest: int
    flexible: int
    since: str

    def version(self, offered: OfferedVersions) -> int:
        """The highest version that both sides speak.

        Raises
        ------
        UnsupportedVersionError
            There is none.
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
        """Read the fields of the answer; raises `ProtocolError` where it cannot be understood."""


def write_by_topic(out: Writer, values: Mapping[TopicPartition, T], partition: Callable[[int, T], None]) -> None:
    """Write an array of topics, each with an array of partitions; `partition` writes the number and what it is for."""
    by_topic: dict[str, list[tuple[int, T]]] = {}
    for tp, value in values.items():
        by_topic.setdefault(tp.topic, []).append((tp.partition, value))

    def topic(asked: tuple[str, list[tuple[int, T]]]) -> None:
        name, partitions = asked
        out.text(name)
        out.array(partitions, lambda item: partition(*item))
        out.end()

    out.array(by_topic.items(), topic)


def read_by_topic(answer: Reader, partition: Callable[[], tuple[int, T]]) -> dict[TopicPartition, T]:
    """Read an array of topics, each with an array of partitions; `partition` reads the number and what is with it."""
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
