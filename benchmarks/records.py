"""The records of a topic: their shape, and a function that produces many of them quickly."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Producer

# The size of the pool of values: larger than a compressor's window for one batch, but small enough that Python does not
# take seconds to make it.
_POOL_BYTES = 4_000_000
_FEWEST, _MOST = 64, 20_000

_HEADER_BYTES = 8 + 16

_WORDS = ("order", "created", "paid", "shipped", "customer", "amount", "EUR", "warehouse", "north", "south", "item")

_PER_CALL = 10_000
_FLUSH_S = 120.0
_TRANSACTION_TIMEOUT_MS = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of all records of a topic.

    Attributes
    ----------
    value_size, key_size : int
        Sizes in bytes.  With a key size of 0, records have no key.
    headers : int
        Number of headers of each record.
    """

    value_size: int = 100
    key_size: int = 16
    headers: int = 0

    @property
    def data_bytes(self) -> int:
        """Size of a record's data in bytes."""
        return self.value_size + self.key_size + self.headers * _HEADER_BYTES

    def values(self, most: int = _MOST) -> list[bytes]:
        """Return different values.  They consist of words and numbers, and compress to about half."""
        dice = random.Random(self.value_size)  # the same values in every run
        count = min(most, max(_FEWEST, _POOL_BYTES // max(1, self.value_size)))
        return [_text(dice, self.value_size) for _ in range(count)]

    def key(self, number: int) -> bytes | None:
        """Return the key of a record."""
        return f"{number:0{self.key_size}d}"[-self.key_size :].encode() if self.key_size else None

    def header_list(self) -> list[tuple[str, str | bytes | None]]:
        """Return the headers of a record."""
        return [(f"header-{n % 10}", b"0123456789abcdef") for n in range(self.headers)]


BASE_SHAPE = Shape()
"""100-byte values with 16-byte keys."""


def _text(dice: random.Random, size: int) -> bytes:
    text = b""
    while len(text) < size:
        text += f"{dice.choice(_WORDS)}={dice.getrandbits(40):010x};".encode()
    return text[:size]


def load(
    servers: str,
    topic: str,
    *,
    shape: Shape,
    partitions: int,
    records: int,
    codec: str = "none",
    transactional_id: str | None = None,
) -> Producer:
    """Produce records, spread evenly over the partitions, and wait until all are delivered.

    Return the producer.  With a transactional id, its transaction is open.

    Parameters
    ----------
    servers, topic : str
        The cluster and the topic.
    shape : Shape
        Shape of each record.
    partitions : int
        Number of partitions of the topic.
    records : int
        Number of records.
    codec : str
        ``none``, ``lz4``, ``zstd``, ...
    transactional_id : str, optional
        Produce within a transaction.
    """
    from confluent_kafka import Producer

    failed: list[str] = []
    delivery: dict[str, Any] = {"acks": "1"}
    if transactional_id is not None:
        delivery = {"transactional.id": transactional_id, "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS}
    producer = Producer(
        {
            **delivery,
            "bootstrap.servers": servers,
            "compression.codec": codec,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failed.append(str(error)) if error else None,
        }
    )
    if transactional_id is not None:
        producer.init_transactions(60)
        producer.begin_transaction()
    values = shape.values()
    keys = [shape.key(n) for n in range(len(values))]
    headers = shape.header_list() or None
    base, more = divmod(records, partitions)
    left = [base + (partition < more) for partition in range(partitions)]
    number = 0
    while any(left):
        for partition, count in enumerate(left):
            chunk = min(count, max(1, _PER_CALL // partitions))
            left[partition] -= chunk
            for _ in range(chunk):
                at = number % len(values)
                number += 1
                while True:
                    try:
                        producer.produce(topic, values[at], keys[at], partition=partition, headers=headers)
                        break
                    except BufferError:
                        producer.poll(0.05)
        producer.poll(0)
    if producer.flush(_FLUSH_S) or failed:
        raise RuntimeError(f"not all records of {topic} were delivered: {failed[:3]}")
    return producer
