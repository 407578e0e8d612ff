"""Writes and reads the records of a topic, for tests: few records, and every error at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_group.testing.errors import KafkaTestingError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

Data = str | bytes | None
"""A key or a value.  A text is written as UTF-8, and None as a null."""

# For all of it: ample for a loaded machine, and short enough for a test to show the reason.
_TIMEOUT_S = 30.0
_BY_KEY = -1  # librdkafka's RD_KAFKA_PARTITION_UA
# A producer takes 100,000 records that are not sent yet.
_RECORDS_PER_FLUSH = 10_000


class Record(NamedTuple):
    """A record as a consumer reads it.

    Attributes
    ----------
    partition : int
        The partition.
    offset : int
        Its offset.
    key, value : bytes or None
        The key and the value.
    headers : list of (str, bytes or None)
        The headers, in their order.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def produce(servers: str, topic: str, values: Iterable[Data | tuple[Data, Data]], partition: int | None) -> None:
    """Write records as :meth:`.kafka.Kafka.produce` does."""
    from confluent_kafka import KafkaException, Producer

    settings = {"enable.idempotence": True, "linger.ms": 5, "log_level": 2, "partitioner": "murmur2_random"}  # Java's
    producer = Producer({"bootstrap.servers": servers, **settings})
    _check_topic(topic, producer)
    problems: list[KafkaError] = []

    def delivered(problem: KafkaError | None, _: Message) -> None:
        if problem is not None:
            problems.append(problem)

    chosen = _BY_KEY if partition is None else partition
    number = 0
    for number, one in enumerate(values, 1):
        key, value = one if isinstance(one, tuple) else (None, one)
        try:
            producer.produce(topic, key=key, value=value, partition=chosen, on_delivery=delivered)
        except KafkaException as refused:
            problem = f"record {number} was not written to topic {topic!r}: {refused.args[0].str()}"
            raise KafkaTestingError(problem) from None
        if number % _RECORDS_PER_FLUSH == 0:
            producer.flush(_TIMEOUT_S)
    unsent = producer.flush(_TIMEOUT_S)
    if problems or unsent:
        reason = problems[0].str() if problems else f"no answer within {_TIMEOUT_S:.0f} s"
        raise KafkaTestingError(
            f"{len(problems) + unsent} of {number} records were not written to topic {topic!r}: {reason}"
        )


def read(servers: str, topic: str, isolation_level: str) -> list[Record]:
    """Read a topic as :meth:`.kafka.Kafka.read` does."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",  # the client wants one; it neither joins nor commits
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "log_level": 2,
        }
    )
    with closing(consumer):
        partitions = _check_topic(topic, consumer)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return sorted(_records(consumer, topic, set(partitions)))


def _records(consumer: Consumer, topic: str, unfinished: set[int]) -> Iterator[Record]:
    """Yield the records of the assigned partitions up to their present ends."""
    problem = f"no answer within {_TIMEOUT_S:.0f} s"
    deadline = time.monotonic() + _TIMEOUT_S
    while unfinished:
        message: Any = consumer.poll(max(0.0, deadline - time.monotonic()))  # its types allow a partition to be None
        if message is None:
            raise KafkaTestingError(f"topic {topic!r} could not be read: {problem}")
        error = message.error()
        if error is None:
            yield Record(message.partition(), message.offset(), message.key(), message.value(), message.headers() or [])
            deadline = time.monotonic() + _TIMEOUT_S
        elif error.name() == "_PARTITION_EOF":
            unfinished.discard(message.partition())
        else:
            problem = error.str()  # the client tries again


def _check_topic(topic: str, client: Consumer | Producer) -> list[int]:
    """Return the partitions of a topic; raises if it does not exist."""
    from confluent_kafka import KafkaException

    try:
        # Deliberate: all topics.  To ask for one by its name creates it on clusters that auto-create.
        found = client.list_topics(timeout=_TIMEOUT_S).topics.get(topic)
    except KafkaException as failed:
        problem = f"the brokers do not answer: {failed.args[0].str()}. Check their address, or restart() one"
        raise KafkaTestingError(problem) from None
    if found is None:
        raise KafkaTestingError(f"topic {topic!r} does not exist: create it with create_topic()")
    return sorted(found.partitions)
