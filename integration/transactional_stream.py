"""A producer of transactions that aborts some of them, and a plain consumer that reads the rest afterwards."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from integration.poll_oracles import Transactions

_TIMEOUT_S = 30.0
_PATIENCE_S = 60.0

# Longer than any fault of a broker, and shorter than a partition may stand still: readers stop at an open transaction.
_TRANSACTION_MS = 20_000

_RECORDS = 5
_SHARE_ABORTED = 0.3


class TransactionalStream:
    """A background producer that writes transactions at a steady rate until it is closed, and aborts about a third.

    Parameters
    ----------
    bootstrap, topic : str
        The cluster and the topic to write to.
    partitions : int
        The number of partitions of the topic.
    per_second : float
        The number of transactions per second.
    seed : int
        Decides which transactions the producer aborts.

    Attributes
    ----------
    aborted : int
        The number of transactions that the producer has aborted on purpose.
    in_doubt : int
        The number of transactions with an unknown outcome, because a broker was down.  They prove nothing.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, per_second: float, seed: int) -> None:
        self.aborted = 0
        self.in_doubt = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._pause_s = 1 / per_second
        self._random = random.Random(seed)
        self._id = f"transactional-stream-{uuid.uuid4().hex[:8]}"
        self._committing: dict[str, dict[int, float]] = {}
        self._aborted: dict[str, set[int]] = {}
        self._problems: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactional-stream", daemon=True)

    def __enter__(self) -> TransactionalStream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream, and leave no transaction open."""
        self._stop.set()
        self._thread.join(2 * _PATIENCE_S)
        assert not self._thread.is_alive()
        assert not self._problems, self._problems

    @property
    def transactions(self) -> Transactions:
        """The records of transactions with a known outcome.  Complete after :meth:`close`."""
        return Transactions(self._committing, {tp: frozenset(offsets) for tp, offsets in self._aborted.items()})

    def _run(self) -> None:
        producer: Producer | None = None
        while not self._stop.wait(self._pause_s):
            try:
                producer = producer or self._new_producer()
                self._write(producer)
            except KafkaException:
                self.in_doubt += 1
                producer = None  # its successor ends its open transaction
        try:
            producer = producer or self._new_producer()
        except KafkaException as problem:
            self._problems.append(f"a transaction is left open: {problem}")

    def _new_producer(self) -> Producer:
        """Return a producer with the same id.  It ends the transaction that its predecessor has left open."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._id,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                producer.init_transactions(_TIMEOUT_S)
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return producer

    def _write(self, producer: Producer) -> None:
        written: list[tuple[str, int]] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                written.append((f"{message.topic()}-{message.partition()}", message.offset()))

        producer.begin_transaction()
        for _ in range(_RECORDS):
            producer.produce(
                self._topic, partition=self._random.randrange(self._partitions), value=b"value", on_delivery=delivered
            )
        if producer.flush(_TIMEOUT_S) or len(written) < _RECORDS:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if self._random.random() < _SHARE_ABORTED:
            producer.abort_transaction(_TIMEOUT_S)
            self.aborted += 1
            for tp, offset in written:
                self._aborted.setdefault(tp, set()).add(offset)
            return
        begun = time.time()
        producer.commit_transaction(_TIMEOUT_S)
        for tp, offset in written:
            self._committing.setdefault(tp, {})[offset] = begun


def visible_offsets(bootstrap: str, partitions: Sequence[tuple[str, int]]) -> dict[str, frozenset[int]]:
    """Return the offsets that a plain consumer of committed records reads, from beginning to end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "observer",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    found: dict[str, set[int]] = {f"{topic}-{number}": set() for topic, number in partitions}
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + _PATIENCE_S
    try:
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in partitions])
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, "the logs cannot be read to their ends"
            for message in consumer.consume(1000, timeout=0.5):
                topic, number, error = message.topic(), message.partition(), message.error()
                assert topic is not None
                assert number is not None
                if error is None:
                    found[f"{topic}-{number}"].add(message.offset() or 0)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add((topic, number))
        return {tp: frozenset(offsets) for tp, offsets in found.items()}
    finally:
        consumer.close()
