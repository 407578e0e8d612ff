"""The decision to commit a batch: which transactions it has and what its rows are, as text that is kept in Kafka; pure.

It is kept as committed offsets of a group of the sink's own, whose id carries the query's: the offset is the batch id,
the metadata names the transactions.  Each topic of the batch keeps a copy, because Kafka forgets the offsets of a topic
that is deleted.  Metadata may have 4096 bytes (offset.metadata.max.bytes).
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.offsets.errors import SinkTransactionError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.writing.row_digest import RowDigest

_VERSION = 2
_ROOM = 4096  # offset.metadata.max.bytes, unless the broker says otherwise

MOST_TOPICS = 100
"""How many topics keep a copy.  All of them are one record batch of the coordinator, which may have 1 MB."""


class Transaction(NamedTuple):
    """The transaction of a task that was flushed and not committed.

    Attributes
    ----------
    task : int
        Spark's number of the task in its stage.
    slot : int
        Which of the task's transactional ids it has.
    producer_id, epoch : int
        The producer that has written it: with another one's epoch nothing of it can be committed.
    """

    task: int
    slot: int
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The newest batch that was decided to be committed.

    Attributes
    ----------
    batch : int
        Its number.
    transactions : tuple of Transaction
        Its transactions, sorted.
    digest : RowDigest
        What its rows are.
    """

    batch: int
    transactions: tuple[Transaction, ...]
    digest: RowDigest


def decision_offsets(topics: Sequence[str], decision: Decision) -> dict[TopicPartition, tuple[int, str]]:
    """Return what is to be committed for a decision: offset and metadata for the first partition of each topic.

    Raises
    ------
    SinkTransactionError
        If the batch has too many tasks.
    """
    packed = b64encode(zlib.compress(_packed(decision.transactions), 9)).decode()
    content = {
        "v": _VERSION,
        "rows": decision.digest.rows,
        "sum": f"{decision.digest.sum:016x}",
        "transactions": packed,
    }
    metadata = json.dumps(content, separators=(",", ":"))
    if len(metadata) > _ROOM:
        raise SinkTransactionError(
            f"Batch {decision.batch} has {len(decision.transactions)} tasks with rows. The decision to commit it names "
            f"them all, and has room for about 600. Nothing of the batch can be read in Kafka. Write with fewer tasks, "
            f"as in .coalesce(100)."
        )
    return {TopicPartition(topic, 0): (decision.batch, metadata) for topic in topics}


def newest_decision(committed: Mapping[TopicPartition, tuple[int, str]]) -> Decision | None:
    """Return the newest decision among the committed offsets of a sink's group; None if there is none.

    Raises
    ------
    SinkTransactionError
        If it cannot be understood.
    """
    if not committed:
        return None
    newest = max(offset for offset, _ in committed.values())
    texts = {metadata for offset, metadata in committed.values() if offset == newest}
    try:
        [text] = texts
        content = json.loads(text)
        _check_version(content["v"])
        transactions = tuple(_unpacked(zlib.decompress(b64decode(content["transactions"]))))
        digest = RowDigest(int(content["rows"]), int(content["sum"], 16))
    except (ValueError, KeyError, TypeError, zlib.error) as problem:
        raise SinkTransactionError(
            f"The sink has noted something about batch {newest} that this version cannot read: {problem!r}. Use the "
            f"version of pyspark-kafka-group that wrote it, or a newer one."
        ) from None
    return Decision(newest, transactions, digest)


def _check_version(version: object) -> None:
    if version != _VERSION:
        raise ValueError(f"version {version}")


def _packed(transactions: Sequence[Transaction]) -> bytes:
    """Return transactions as numbers of 7 bits to the byte, column by column, each as the difference to the last.

    Tasks and producer ids often follow one another, and epochs are alike: compressed, most take 2 to 6 bytes.
    """
    out = bytearray()
    _write(out, len(transactions))
    for column in zip(*transactions, strict=True):
        before = 0
        for value in column:
            difference = value - before
            before = value
            _write(out, difference << 1 if difference >= 0 else (-difference << 1) - 1)
    return bytes(out)


def _write(out: bytearray, number: int) -> None:
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _unpacked(data: bytes) -> list[Transaction]:
    numbers = _numbers(data)
    count = next(numbers, 0)
    columns: list[list[int]] = []
    for _ in Transaction._fields:
        column, value = [], 0
        for _, coded in zip(range(count), numbers, strict=False):
            value += -((coded + 1) >> 1) if coded & 1 else coded >> 1
            column.append(value)
        columns.append(column)
    if any(len(column) != count for column in columns):
        raise ValueError("transactions are missing")
    return [Transaction(*row) for row in zip(*columns, strict=True)]


def _numbers(data: bytes) -> Iterator[int]:
    number, shift = 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number, shift = 0, 0
