"""Requests of tests to Kafka itself, without the code under test."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

_PATIENCE_S = 60.0
_NO_LEADER_YET = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE")
_NO_COORDINATOR_YET = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE")

# The stream replaces a producer after this long without a delivery.  After restarts of its only broker, an idempotent
# producer may never deliver again, although the broker accepts the records of others.  Soaks have shown this twice
# (librdkafka 2.16.1).
_STUCK_S = 20.0

# Longer than the network of a soak holds a request back.
_LATE_S = 15.0


def produce(
    bootstrap: str, topic: str, counts: Mapping[int, int], *, start: int = 0, per_batch: int = 10_000, **record: Any
) -> None:
    """Produce ``counts[partition]`` records to each partition, and wait for their delivery."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": per_batch})
    for partition, count in counts.items():
        for n in range(start, start + count):
            producer.produce(topic, partition=partition, key=str(n), value=f"{partition}:{n}", **record)
            producer.poll(0)
    assert producer.flush(30) == 0


class Stream:
    """A background producer that writes to all partitions of some topics at a steady rate, until it is closed.

    ``produced`` contains the number of records of each partition.
    """

    def __init__(self, bootstrap: str, topics: Mapping[str, int], *, per_second: float) -> None:
        self.produced = {(topic, p): 0 for topic, count in topics.items() for p in range(count)}
        self._bootstrap = bootstrap
        self._per_second = per_second
        self._stop = threading.Event()
        self._problems: list[str] = []
        self._delivered_at = 0.0
        self._replaced = False
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream.  Kafka then contains every counted record."""
        self._stop.set()
        self._thread.join(150)
        assert not self._thread.is_alive()
        assert not self._problems, self._problems[:3]

    def _run(self) -> None:
        producer = self._producer()
        begin = self._delivered_at = time.monotonic()
        for n, (topic, partition) in enumerate(itertools.cycle(self.produced)):
            if self._stop.wait(max(0.0, begin + n / self._per_second - time.monotonic())):
                break
            producer.produce(topic, partition=partition, value=str(n), on_delivery=self._delivered)
            producer.poll(0)
            self.produced[topic, partition] += 1
            if time.monotonic() > self._delivered_at + _STUCK_S:
                self._replaced = True
                producer.purge()
                producer = self._producer()
                self._delivered_at = time.monotonic()
        if producer.flush(30):
            self._replaced = True
            producer.purge()
        if self._replaced:  # only Kafka shows which records of the old producer have arrived
            self._count_in_kafka()

    def _count_in_kafka(self) -> None:
        """Count until no record arrives any more: a slow network may still carry a request of the old producer."""
        while self.produced != (found := log_ends(self._bootstrap, self.produced)):
            self.produced = found
            time.sleep(_LATE_S)

    def _producer(self) -> Producer:
        # No log: brokers are down on purpose, and `_delivered` reports each record that does not arrive.
        properties = {"bootstrap.servers": self._bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        return Producer(properties)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self._delivered_at = time.monotonic()
        elif not self._replaced:
            self._problems.append(str(error))


def log_ends(
    bootstrap: str, partitions: Iterable[tuple[str, int]], *, isolation_level: str = "read_committed"
) -> dict[tuple[str, int], int]:
    """Return the log end offset of each partition, for consumers with this isolation level.

    Retry while a partition has no leader, for example after a broker has restarted.  librdkafka does not.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "observer", "isolation.level": isolation_level})
    deadline = time.monotonic() + _PATIENCE_S

    def end(partition: TopicPartition) -> int:
        while True:
            try:
                return int(consumer.get_watermark_offsets(partition, timeout=30)[1])
            except KafkaException as problem:
                if problem.args[0].name() not in _NO_LEADER_YET or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    try:
        return {(topic, number): end(TopicPartition(topic, number)) for topic, number in partitions}
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the group's committed offset of each partition, or -1001 without one.

    Retry while the coordinator is not ready, for example for the first group of a new cluster.  librdkafka does not.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    wanted, deadline = [TopicPartition(topic, p) for p in partitions], time.monotonic() + _PATIENCE_S
    try:
        while True:
            try:
                return {part.partition: part.offset for part in consumer.committed(wanted, timeout=10)}
            except KafkaException as problem:
                if problem.args[0].name() not in _NO_COORDINATOR_YET or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)
    finally:
        consumer.close()


def lag(bootstrap: str, group: str, topic: str, partitions: Iterable[int]) -> int:
    """Return the group's lag in a topic: log ends minus committed offsets."""
    offsets = committed(bootstrap, group, topic, partitions)
    ends = log_ends(bootstrap, [(topic, partition) for partition in offsets])
    return sum(end - max(0, offsets[partition]) for (_, partition), end in ends.items())


def members(bootstrap: str, group: str) -> dict[str, set[str]]:
    """Return the partitions that Kafka shows as assigned to each client id of a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    description = admin.describe_consumer_groups([group], request_timeout=10)[group].result()
    return {
        member.client_id: {f"{tp.topic}-{tp.partition}" for tp in member.assignment.topic_partitions}
        for member in description.members
    }


def recreate(bootstrap: str, topic: str, partitions: int) -> None:
    """Delete a topic and create it again at once."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result()

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
        except KafkaException as problem:
            if problem.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
            return False
        return True

    deadline = time.monotonic() + _PATIENCE_S
    while not created():
        assert time.monotonic() < deadline, f"{topic} cannot be created again"
        time.sleep(0.05)


def delete(bootstrap: str, topic: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # in a variable: without a reference, no answer arrives
    admin.delete_topics([topic])[topic].result()


def delete_group(bootstrap: str, group: str) -> bool:
    """Delete a group with its offsets.  Return False if this fails, for example because the group still has members."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.delete_consumer_groups([group])[group].result()
    except KafkaException:
        return False
    return True


def reset(bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Set the group's committed offsets, like an operator after the last member has left."""
    parts = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, parts)]).values()
        if all(part.error is None for part in future.result().topic_partitions):
            return
        assert time.monotonic() < deadline, "the group is not empty"
        time.sleep(0.05)


def has_open_transactions(bootstrap: str, topic: str) -> bool:
    """Return whether a topic has records that consumers with ``read_committed`` cannot read yet."""
    ends = []
    for level in ("read_committed", "read_uncommitted"):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "observer", "isolation.level": level})
        try:
            partitions = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
            found = consumer.offsets_for_times([TopicPartition(topic, p, -1) for p in partitions], timeout=_PATIENCE_S)
            ends.append([part.offset for part in found])
        finally:
            consumer.close()
    return ends[0] != ends[1]
