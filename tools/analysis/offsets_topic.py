"""Reads the partition of ``__consumer_offsets`` that holds a group, from its beginning to its current end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.properties.client_config import Properties, client_properties
from pyspark_kafka_group.cluster.properties.clients import client_text, create_client
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind
from pyspark_kafka_group.offsets.errors import GroupError
from pyspark_kafka_group.tools.analysis.group_records import LoggedRecord, decode, is_of_group

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import TopicPartition as Partition

OFFSETS_TOPIC = "__consumer_offsets"

_BATCH = 5000
_POLL_S = 0.5
_SILENCE_S = 30.0
_REQUEST_S = 10.0

_OPEN_S = 5.0
"""How long to wait for the end of a transaction, in seconds.  One that only commits offsets takes milliseconds."""

# How long the broker waits for new records before it answers that there are none.
_FETCH_WAIT_MS = 100

# This consumer never joins and commits nothing, but librdkafka requires a group.
_READER = "kafka-group-tools"

_HIDDEN = ("TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_UNDECIDED = "GROUP_AUTHORIZATION_FAILED"


class OffsetsTopicUnreadableError(GroupError):
    """``__consumer_offsets`` cannot be read: the user lacks the right, or the cluster has no such topic.

    Attributes
    ----------
    kafka_error : str
        Kafka's name of the error.
    """

    kafka_error: str

    def __init__(self, kafka_error: str) -> None:
        super().__init__(
            f"The topic __consumer_offsets, which holds the history of the group, cannot be read ({kafka_error}). "
            f"Give this user the rights Read and Describe on it. Some services, such as Azure Event Hubs, do not have "
            f"this topic. 'describe', 'watch', 'doctor' and 'history --poll 10s' work without it.",
            kafka_error=kafka_error,
        )


class OffsetsTopicHeldBackError(GroupError):
    """An open transaction, of any group, hides later commits in ``__consumer_offsets``.

    Attributes
    ----------
    partition : int
        The number of the group's partition of that topic.
    since : int
        The offset at which reading has stopped.
    """

    partition: int
    since: int

    def __init__(self, partition: int, since: int) -> None:
        super().__init__(
            f"An open transaction has held back {OFFSETS_TOPIC}-{partition} since offset {since}, so commits of this "
            f"group since then do not show. Wait for its end. If its producer does not exist any more, run "
            f"'kafka-transactions abort --start-offset {since} --topic {OFFSETS_TOPIC} --partition {partition}'.",
            partition=partition,
            since=since,
        )


def java_hash(text: str) -> int:
    """Return what Java's ``String.hashCode`` returns: 32 bits with a sign, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for index in range(0, len(units), 2):
        found = (31 * found + (units[index] << 8 | units[index + 1])) & 0xFFFF_FFFF
    return found - 2**32 if found >= 2**31 else found


def group_partition(group_id: str, partition_count: int) -> int:
    """Return the partition of the offsets topic that holds a group.  The broker that leads it coordinates the group.

    As in Kafka's ``Utils.abs``, the smallest hash counts as 0: it has no positive counterpart in 32 bits.
    """
    hashed = java_hash(group_id)
    return (0 if hashed == -(2**31) else abs(hashed)) % partition_count


def read_group(properties: Properties, group_id: str, *, since_ms: int | None = None) -> Iterator[LoggedRecord]:
    """Return the records of a group, in the order of the log, up to the end that the log has at the first call.

    Aborted commits are not among them.  At an open transaction, reading waits for its end.

    Parameters
    ----------
    properties : mapping
        Properties of the connection, as librdkafka names them.
    group_id : str
        The group.
    since_ms : int or None
        Time of the first record to read, in milliseconds since 1970.  None reads from the start of the log.

    Raises
    ------
    OffsetsTopicUnreadableError
        If the user may not read the topic, or it does not exist.
    OffsetsTopicHeldBackError
        After the records before a transaction that stays open.
    TryAgainError
        If the cluster does not answer.
    """
    from confluent_kafka import KafkaException

    consumer = _consumer(properties)
    try:
        yield from _read(consumer, group_id, since_ms)
    except KafkaException as problem:
        _refuse(problem.args[0], properties)
    finally:
        consumer.close()


def _consumer(properties: Properties) -> Consumer:
    from confluent_kafka import Consumer

    config = {
        **client_properties(ClientKind.READER, properties),
        "group.id": _READER,
        "client.id": _READER,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        # The cleaner may delete the record at the start position.
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
        # This process reports each error once; librdkafka's lines would repeat them.
        "log_level": 0,
    }
    return create_client(Consumer, config, properties)


def _read(consumer: Consumer, group_id: str, since_ms: int | None) -> Iterator[LoggedRecord]:
    from confluent_kafka import KafkaException

    part = _begin(consumer, group_id, since_ms)
    wanted = is_of_group(group_id)
    heard, end, held_since = time.monotonic(), None, None
    while True:
        silent_s = time.monotonic() - heard
        if held_since is not None and silent_s > _OPEN_S:
            raise OffsetsTopicHeldBackError(part.partition, held_since)
        if silent_s > _SILENCE_S:
            raise TryAgainError(f"{OFFSETS_TOPIC}-{part.partition}: nothing came for {_SILENCE_S:g} s")
        for message in consumer.consume(_BATCH, _POLL_S):
            error = message.error()
            if error is not None and error.name() != "_PARTITION_EOF":
                if error.retriable() or error.name() in (_UNDECIDED, "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE"):
                    continue
                raise KafkaException(error)
            heard, offset = time.monotonic(), message.offset()
            if end is None:  # the first answer has it, with the records of open transactions
                _, end = consumer.get_watermark_offsets(part, cached=True)
            if offset is None or offset >= end:
                return
            held_since = None if error is None else offset
            if held_since is not None:
                continue
            key = message.key()
            if wanted(key):
                yield LoggedRecord(offset, message.timestamp()[1], decode(key, message.value()))
            if offset == end - 1:
                return


def _begin(consumer: Consumer, group_id: str, since_ms: int | None) -> Partition:
    """Let the consumer read the partition of a group, and return it."""
    from confluent_kafka import OFFSET_BEGINNING, KafkaException
    from confluent_kafka import TopicPartition as Partition

    topics = consumer.list_topics(OFFSETS_TOPIC, timeout=_REQUEST_S).topics
    found = topics.get(OFFSETS_TOPIC)
    if found is not None and found.error is not None:
        raise KafkaException(found.error)
    if found is None or not found.partitions:
        raise OffsetsTopicUnreadableError("UNKNOWN_TOPIC_OR_PART")
    part = Partition(OFFSETS_TOPIC, group_partition(group_id, len(found.partitions)), OFFSET_BEGINNING)
    if since_ms is not None:
        asked = Partition(part.topic, part.partition, since_ms)
        part.offset = consumer.offsets_for_times([asked], timeout=_REQUEST_S)[0].offset  # the end if none is newer
    consumer.assign([part])
    return part


def _refuse(error: KafkaError, properties: Properties) -> NoReturn:
    if error.name() in _HIDDEN:
        raise OffsetsTopicUnreadableError(error.name()) from None
    raise TryAgainError(f"{OFFSETS_TOPIC}: {error.name()}: {client_text(error.str(), properties)}") from None
