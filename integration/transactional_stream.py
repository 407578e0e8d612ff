"""A producer of transactions, some of which it aborts, and what a plain consumer finds of them afterwards."""

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

# Longer than any fault of a broker, shorter than what a partition may stand still: nobody reads on behind an open one.
_TRANSACTION_MS = 20_000

_RECORDS = 5
_SHARE_ABORTED = 0.3


class TransactionalStream:
    """Writes transactions at a steady rate, in the background, until it is closed; each third or so is aborted.

    Parameters
    ----------
    bootstrap, topic : str
        Where to write.
    partitions : int
        How many the topic has.
    per_second : float
        How many transactions.
    seed : int
        Decides which are aborted.

    Attributes
    ----------
    aborted : int
        How many transactions were aborted on purpose.
    in_doubt : int
        How many nobody knows the outcome of, because a broker was down: they prove nothing.
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
        """End the stream; no transaction is open then."""
        self._stop.set()
        self._thread.join(2 * _PATIENCE_S)
        assert not self._thread.is_alive()
        assert not self._problems, self._problems

    @property
    def transactions(self) -> Transactions:
        """What is known of its records; once it is closed."""
        return Transactions(self._committing, {tp: frozenset(offsets) for tp, offsets in self._aborted.items()})

    def _run(self) -> None:
        producer: Producer | None = None
        while not self._stop.wait(self._pause_s):
            try:
                producer = producer or self._new_producer()
                self._write(producer)
            except KafkaException:
                self.in_doubt += 1
                producer = None  # its successor ends what it has left open
        try:
            producer = producer or self._new_producer()
        except KafkaException as problem:
            self._problems.append(f"a transaction is left open: {problem}")

    def _new_producer(self) -> Producer:
        """Return a producer under the same id: it ends what its predecessor has left open."""
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
    """Return the offsets that a plain consumer of committed records is given, from beginning to end."""
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
