"""The requests of a transaction, which a query that only reads does not need: `transaction_requests` has the others.

Take a transactional id over, commit offsets in a transaction, end it; and describe and list transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.group_requests import OffsetToCommit
from pyspark_kafka_group.wire.requests import Api, Request, read_errors, write_by_topic
from pyspark_kafka_group.wire.types import TopicPartition

_PRODUCER_OF_CALLER = 3  # of InitProducerId


class InitializedProducer(NamedTuple):
    """An error code, and the current producer of the transactional id."""

    error: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class InitProducerId(Request[InitializedProducer]):
    """Takes over a transactional id: fences its former producer, and aborts its open transaction.

    Without a transactional id, any broker returns a new producer id.
    """

    transactional_id: str | None
    timeout_ms: int

    api = Api(22, "InitProducerId", 0, 4, flexible=2, since="0.11")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        out.text(self.transactional_id)
        out.int32(self.timeout_ms)
        if version >= _PRODUCER_OF_CALLER:
            out.int64(-1)  # the former producer id of the caller
            out.int16(-1)  # its epoch
        out.end()

    def read(self, answer: Reader, version: int) -> InitializedProducer:
        """Read the fields of the answer."""
        del version
        answer.int32()  # throttle time
        found = InitializedProducer(answer.int16(), answer.int64(), answer.int16())
        answer.end()
        return found


@dataclass(frozen=True, slots=True)
class AddOffsetsToTransaction(Request[int]):
    """Begins a transaction that commits offsets of a group.  The answer is an error code."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

    api = Api(25, "AddOffsetsToTxn", 3, 3, flexible=3, since="2.8")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        out.text(self.transactional_id)
        out.int64(self.producer_id)
        out.int16(self.producer_epoch)
        out.text(self.group_id)
        out.end()

    def read(self, answer: Reader, version: int) -> int:
        """Read the fields of the answer."""
        del version
        answer.int32()  # throttle time
        error = answer.int16()
        answer.end()
        return error


@dataclass(frozen=True, slots=True)
class CommitOffsetsInTransaction(Request[dict[TopicPartition, int]]):
    """Commits offsets of a group without members, in a transaction.  The answer has an error code for each partition.

    Deliberate: not version 4 or higher.  Those are for producers that take a new epoch with each transaction (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    offsets: Mapping[TopicPartition, OffsetToCommit]

    api = Api(28, "TxnOffsetCommit", 3, 3, flexible=3, since="2.5")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version

        def partition(number: int, committed: OffsetToCommit) -> None:
            out.int32(number)
            out.int64(committed.offset)
            out.int32(committed.leader_epoch)
            out.text(committed.metadata)
            out.end()

        out.text(self.transactional_id)
        out.text(self.group_id)
        out.int64(self.producer_id)
        out.int16(self.producer_epoch)
        out.int32(-1)  # generation
        out.text("")  # member id
        out.text(None)  # instance id
        write_by_topic(out, self.offsets, partition)
        out.end()

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, int]:
        """Read the fields of the answer."""
        del version
        return read_errors(answer)


class TransactionState(NamedTuple):
    """An error code, the state with Kafka's name, the current producer of the transactional id, and its timeout."""

    error: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class DescribeTransactions(Request[Mapping[str, TransactionState]]):
    """Requests the states of transactional ids from their coordinator (KIP-664)."""

    transactional_ids: Collection[str]

    api = Api(65, "DescribeTransactions", 0, 0, flexible=0, since="3.0")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        out.array(self.transactional_ids, out.text)
        out.end()

    def read(self, answer: Reader, version: int) -> Mapping[str, TransactionState]:
        """Read the fields of the answer."""
        del version

        def topic() -> None:
            answer.text()
            answer.int32s()
            answer.end()

        def described() -> tuple[str, TransactionState]:
            error, transactional_id, state = answer.int16(), answer.text(), answer.text()
            timeout_ms = answer.int32()
            answer.int64()  # when it began
            found = TransactionState(error, state, answer.int64(), answer.int16(), timeout_ms)
            answer.array(topic)
            answer.end()
            return transactional_id, found

        answer.int32()  # throttle time
        found = dict(answer.array(described))
        answer.end()
        return found


class ListedTransactions(NamedTuple):
    """An error code, and the matching transactional ids."""

    error: int
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListTransactions(Request[ListedTransactions]):
    """Requests the transactions that a broker coordinates (KIP-664).

    Attributes
    ----------
    states : collection of str
        The states to find, with Kafka's names.
    longer_than_ms : int
        The minimum age of a transaction by the broker's clock (KIP-994); -1 for any age.
    pattern : str
        An RE2 expression for the whole transactional id (KIP-1152).  Brokers before 4.1 ignore it.
    """

    states: Collection[str]
    longer_than_ms: int
    pattern: str

    api = Api(66, "ListTransactions", 1, 2, flexible=0, since="3.8")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        out.array(self.states, out.text)
        out.array([], out.int64)  # producer ids
        out.int64(self.longer_than_ms)
        if version >= 2:
            out.text(self.pattern)
        out.end()

    def read(self, answer: Reader, version: int) -> ListedTransactions:
        """Read the fields of the answer."""
        del version

        def listed() -> str:
            transactional_id = answer.text()
            answer.int64()  # producer id
            answer.text()  # state
            answer.end()
            return transactional_id

        answer.int32()  # throttle time
        error = answer.int16()
        answer.array(answer.text)  # states that the broker does not know
        found = ListedTransactions(error, tuple(answer.array(listed)))
        answer.end()
        return found


@dataclass(frozen=True, slots=True)
class EndTransaction(Request[int]):
    """Commits or aborts the open transaction of a producer.  The answer is an error code.

    Deliberate: not version 5 or higher.  Those are for producers that take a new epoch with each transaction (KIP-890),
    but such a producer has not begun this transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool

    api = Api(26, "EndTxn", 3, 4, flexible=3, since="2.8")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        out.text(self.transactional_id)
        out.int64(self.producer_id)
        out.int16(self.producer_epoch)
        out.boolean(self.commit)
        out.end()

    def read(self, answer: Reader, version: int) -> int:
        """Read the fields of the answer."""
        del version
        answer.int32()  # throttle time
        error = answer.int16()
        answer.end()
        return error
