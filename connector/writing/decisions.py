"""The decision to commit a batch: which transactions it has, as text that is kept in Kafka; pure.

It is kept as committed offsets of a group of the sink's own, whose id carries the query's: the offset is the batch id,
the metadata names the transactions.  Metadata may have 4096 bytes (offset.metadata.max.bytes), so that a batch with
hundreds of tasks takes several partitions of the topic; one request carries them all, and is written whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.offsets.errors import SinkTransactionError
from pyspark_kafka_group.offsets.types import TopicPartition

_VERSION = 1
_ROOM = 4000  # of 4096 bytes, for the transactions and what stands around them


class Transaction(NamedTuple):
    """The transaction of a task that was flushed and not committed.

    Attributes
    ----------
    task, attempt : int
        Spark's numbers of the task in its stage, and of the attempt.
    producer_id, epoch : int
        The producer that has written it: with another one's epoch nothing of it can be committed.
    """

    task: int
    attempt: int
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The newest batch that was decided to be committed."""

    batch: int
    transactions: tuple[Transaction, ...]


def sink_group(name: str) -> str:
    """Return the group that keeps the decisions of a query."""
    return f"kafka-group-sink-{name}"


def sink_transactional_id(name: str, task: int, attempt: int) -> str:
    """Return the transactional id of an attempt of a task.

    The next batch uses the same again, so there are as many as tasks and attempts.  Without the attempt, a speculative
    one that comes late would abort what the first one has written.
    """
    return f"kafka-group-sink-{name}-{task}-{attempt}"


def decision_offsets(topic: str, decision: Decision) -> dict[TopicPartition, tuple[int, str]]:
    """Return what is to be committed for a decision: offset and metadata for each of the topic's first partitions."""
    texts = [".".join(map(str, transaction)) for transaction in decision.transactions]
    pieces: list[list[str]] = [[]]
    size = len(_metadata(0, len(texts), []))
    room = _ROOM - size
    for text in texts:
        if sum(map(len, pieces[-1])) + len(pieces[-1]) + len(text) > room:
            pieces.append([])
        pieces[-1].append(text)
    return {
        TopicPartition(topic, at): (decision.batch, _metadata(at, len(pieces), piece))
        for at, piece in enumerate(pieces)
    }


def _metadata(at: int, count: int, transactions: Sequence[str]) -> str:
    content = {"v": _VERSION, "piece": at, "pieces": count, "transactions": ",".join(transactions)}
    return json.dumps(content, separators=(",", ":"))


def newest_decision(committed: Mapping[TopicPartition, tuple[int, str]]) -> Decision | None:
    """Return the newest decision among the committed offsets of a sink's group; None if there is none.

    Raises
    ------
    SinkTransactionError
        If what is there cannot be understood.
    """
    if not committed:
        return None
    newest = max(offset for offset, _ in committed.values())
    try:
        found = [_piece(metadata) for offset, metadata in committed.values() if offset == newest]
        pieces = {at: transactions for at, _, transactions in found}
        decided = Decision(newest, tuple(sorted(one for piece in pieces.values() for one in piece)))
    except (ValueError, KeyError, TypeError) as problem:
        raise SinkTransactionError(
            f"What the sink has noted about batch {newest} cannot be understood: {problem!r}. Use the version of "
            f"pyspark-kafka-group that wrote it, or a newer one."
        ) from None
    if any(len(pieces) != count for _, count, _ in found):
        raise SinkTransactionError(
            f"What the sink has noted about batch {newest} is incomplete: a topic was deleted, perhaps. Nobody can "
            f"tell any more which of its transactions are committed; start the query with a new checkpoint."
        )
    return decided


def _piece(metadata: str) -> tuple[int, int, list[Transaction]]:
    """Return the number of a piece, how many there are, and its transactions."""
    content = json.loads(metadata)
    if content["v"] != _VERSION:
        raise ValueError(f"version {content['v']}")
    texts = content["transactions"].split(",")
    return content["piece"], content["pieces"], [Transaction(*map(int, text.split("."))) for text in texts]
