"""The decision to commit a batch: which transactions it has and what its rows are, as text that is kept in Kafka; pure.

It is kept as committed offsets of a group of the sink's own, whose id carries the query's: the offset is the batch id,
the metadata names the transactions.  Each topic of the batch keeps a copy, because Kafka forgets the offsets of a topic
that is deleted.  Metadata may have 4096 bytes (offset.metadata.max.bytes).
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from pyspark_kafka_group.offsets.errors import SinkTransactionError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.writing.row_digest import RowDigest

_VERSION = 3
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
    content = {
        "v": _VERSION,
        "rows": decision.digest.rows,
        "sum": f"{decision.digest.sum:016x}",
        "transactions": _packed(decision.transactions),
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
        transactions = _unpacked(content["transactions"])
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


def _packed(transactions: Sequence[Transaction]) -> str:
    """Return transactions as text, column by column, each number as the difference to the one before.

    Tasks and producer ids often follow one another, and epochs are alike: compressed, most take 2 to 6 bytes.
    """
    columns = [
        [value - before for before, value in pairwise((0, *column))] for column in zip(*transactions, strict=True)
    ]
    return b64encode(zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), 9)).decode()


def _unpacked(text: str) -> tuple[Transaction, ...]:
    columns = [accumulate(map(int, column)) for column in json.loads(zlib.decompress(b64decode(text)))]
    return tuple(Transaction(*row) for row in zip(*columns, strict=True))
