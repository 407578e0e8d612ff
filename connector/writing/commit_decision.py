"""The decision to commit a batch, as text that is stored in Kafka: its transactions and a digest of its rows.  Pure.

The sink stores it as committed offsets of its own group, whose id contains the id of the query.  The offset is the
batch id, and the metadata names the transactions.  Each topic of the batch has a copy, because Kafka deletes the
offsets of a deleted topic.  Brokers allow 4096 bytes of metadata (offset.metadata.max.bytes).
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_kafka_group.offsets.errors import SinkTransactionError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.writing.row_digest import NO_ROWS, RowDigest

_VERSION = 3
_ROOM = 4096  # the broker's default of offset.metadata.max.bytes

MOST_TOPICS = 100
"""How many topics have a copy.  The coordinator writes all copies in one record batch of at most 1 MB."""


class Transaction(NamedTuple):
    """The transaction of a task: flushed and not committed.

    Attributes
    ----------
    task : int
        Spark's number of the task in its stage.
    slot : int
        Which of the task's transactional ids it uses.
    producer_id, epoch : int
        The producer of the transaction.  With another epoch it cannot be committed.
    """

    task: int
    slot: int
    producer_id: int
    epoch: int


@dataclass
class TaskMessage(WriterCommitMessage):
    """The message of a task to the driver.

    Attributes
    ----------
    rows : int
        The number of written rows.
    name : str
        The id of the query or of the batch job, which is part of transactional ids.  Empty without transactions.
    topics : tuple of str
        The topics that the task has written to, in order.  At most the first ``MOST_TOPICS``.
    transaction : Transaction or None
        The transaction to commit.  None if the task has written nothing.
    decided : bool
        Whether the task has written nothing because the batch was already decided.
    digest : RowDigest
        The digest of its rows, written or not.  For streams only.
    """

    rows: int
    name: str = ""
    topics: tuple[str, ...] = ()
    transaction: Transaction | None = None
    decided: bool = False
    digest: RowDigest = NO_ROWS


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision to commit a batch.

    Attributes
    ----------
    batch : int
        The number of the batch.
    transactions : tuple of Transaction
        The sorted transactions of the batch.
    digest : RowDigest
        The digest of its rows.
    """

    batch: int
    transactions: tuple[Transaction, ...]
    digest: RowDigest


def decision_offsets(topics: Sequence[str], decision: Decision) -> dict[TopicPartition, tuple[int, str]]:
    """Return the offsets to commit for a decision: offset and metadata for the first partition of each topic.

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
            f"all of them, and has room for 400 to 870. Nothing of the batch can be read in Kafka. Write with fewer "
            f"tasks, for example with .coalesce(100)."
        )
    return {TopicPartition(topic, 0): (decision.batch, metadata) for topic in topics}


def newest_decision(committed: Mapping[TopicPartition, tuple[int, str]]) -> Decision | None:
    """Return the newest decision among the committed offsets of a sink's group; None if there is none.

    Raises
    ------
    SinkTransactionError
        If this version cannot read it.
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
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, zlib.error) as problem:
        raise SinkTransactionError(
            f"This version cannot read what the sink has stored about batch {newest}: {problem!r}. Use the version of "
            f"pyspark-kafka-group that wrote it, or a newer one."
        ) from None
    return Decision(newest, transactions, digest)


def _check_version(version: object) -> None:
    if version != _VERSION:
        raise ValueError(f"version {version}")


def _packed(transactions: Sequence[Transaction]) -> str:
    """Return transactions as text, column by column, each number as the difference to the previous one.

    Tasks and producer ids are often consecutive, and epochs equal.  So most transactions take 2 to 6 bytes.
    """
    columns = [
        [value - before for before, value in pairwise((0, *column))] for column in zip(*transactions, strict=True)
    ]
    return b64encode(zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), 9)).decode()


def _unpacked(text: str) -> tuple[Transaction, ...]:
    columns = [accumulate(map(int, column)) for column in json.loads(zlib.decompress(b64decode(text)))]
    return tuple(Transaction(*row) for row in zip(*columns, strict=True))
