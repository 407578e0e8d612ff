"""Requests that tell the state of a transaction, and end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.group_requests import only
from pyspark_kafka_group.wire.requests import Api, Request


class TransactionState(NamedTuple):
    """An error code, the state as Kafka names it, and the producer that has the transactional id now."""

    error: int
    state: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class DescribeTransactions(Request[TransactionState]):
    """Asks for the state of a transactional id (KIP-664)."""

    transactional_id: str

    api = Api(65, "DescribeTransactions", 0, 0, flexible=0, since="3.0")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        out.array([self.transactional_id], out.text)
        out.end()

    def read(self, answer: Reader, version: int) -> TransactionState:
        """Read the fields of the answer."""
        del version

        def topic() -> None:
            answer.text()
            answer.int32s()
            answer.end()

        def described() -> TransactionState:
            error = answer.int16()
            answer.text()  # the transactional id
            state = answer.text()
            answer.int32()  # the timeout
            answer.int64()  # when it began
            found = TransactionState(error, state, answer.int64(), answer.int16())
            answer.array(topic)
            answer.end()
            return found

        answer.int32()  # throttle time
        found = only(answer.array(described))
        answer.end()
        return found


@dataclass(frozen=True, slots=True)
class EndTransaction(Request[int]):
    """Commits or aborts the open transaction of a producer; the answer is an error code.

    Deliberate: no version from 5 on.  Those are for producers that take a new epoch with each transaction (KIP-890),
    and the transaction was begun by one that does not.
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
