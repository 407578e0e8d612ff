"""Questions about transactions, and ends of transactions that another process has begun.

librdkafka ends only its own.  For the sink each task begins one, and the driver ends them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pyspark_kafka_group.offsets.client_config import Properties
from pyspark_kafka_group.offsets.cluster.cluster_requests import ClusterRequests, reachable
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.all_offsets import AllOffsetsFetch
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.wire.requests import Request
from pyspark_kafka_group.wire.transaction_ends import (
    DescribeTransactions,
    EndTransaction,
    TransactionState,
)
from pyspark_kafka_group.wire.transaction_requests import FindTransactionCoordinator
from pyspark_kafka_group.wire.types import Address, ProtocolError, UnsupportedVersionError

T = TypeVar("T")

# The coordinator is busy with an earlier end, or moves.
_PASSING = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "UNKNOWN_SERVER_ERROR",
        "REQUEST_TIMED_OUT",
    }
)
_PAUSE_S = 0.02
_ATTEMPT_S = 15.0  # how long one broker may be silent: another may be the coordinator by then


def open_transaction_requests(properties: Properties, *, client_id: str) -> TransactionRequests | None:
    """Return what asks, or None where only librdkafka can connect; connects to nothing yet."""
    found = reachable(properties)
    return None if found is None else TransactionRequests(*found, client_id=client_id, properties=properties)


class TransactionRequests(ClusterRequests):
    """Asks about transactions.  Belongs to one thread.

    Methods raise what :class:`ClusterRequests` says; what passes by itself is tried again until the deadline.
    """

    def state(self, transactional_id: str, *, deadline: Deadline) -> TransactionState:
        """Return who has a transactional id, and the state of its transaction."""

        def ask(address: Address, until: Deadline) -> TransactionState:
            return self._connections.ask(address, DescribeTransactions(transactional_id), until)

        return self._patiently(transactional_id, ask, lambda answer: answer.error, deadline)

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, deadline: Deadline
    ) -> str:
        """Commit or abort the open transaction of a producer; to say the same again does no harm.

        Returns
        -------
        str
            Kafka's name of the error, as PRODUCER_FENCED or INVALID_TXN_STATE; NONE if it has ended so.
        """
        request: Request[int] = EndTransaction(transactional_id, producer_id, producer_epoch, commit)

        def ask(address: Address, until: Deadline) -> int:
            return self._connections.ask(address, request, until)

        return error_name(self._patiently(transactional_id, ask, lambda error: error, deadline))

    def partition_count(self, topic: str, *, deadline: Deadline) -> int:
        """Return how many partitions a topic has."""

        def ask() -> int:
            found = self.topics([topic], timeout_s=deadline.left_s)
            if topic not in found:
                raise TryAgainError(f"topic {topic!r}: the broker that answered does not know it")
            return len(found[topic].leader_epochs)

        return self._again(ask, deadline)

    def all_committed(self, group_id: str, *, deadline: Deadline) -> dict[TopicPartition, tuple[int, str]]:
        """Return all committed offsets of a group that need not exist, and the metadata of each."""

        def ask() -> dict[TopicPartition, tuple[int, str]]:
            def fetch(until: Deadline) -> dict[TopicPartition, tuple[int, str]]:
                fetched = self._ask_coordinator(group_id, AllOffsetsFetch(group_id), until)
                name = error_name(fetched.error)
                if name == "GROUP_ID_NOT_FOUND":
                    return {}
                if name != NONE:
                    self._refuse_group(name, "", group_id)
                return {
                    TopicPartition(*tp): (found.offset, found.metadata)
                    for tp, found in fetched.partitions.items()
                    if found.offset >= 0
                }

            return self._at_coordinator(group_id, fetch, deadline.left_s)

        return self._again(ask, deadline)

    def _patiently(
        self,
        transactional_id: str,
        ask: Callable[[Address, Deadline], T],
        error_of: Callable[[T], int],
        deadline: Deadline,
    ) -> T:
        what = f"transactional id {transactional_id!r}"

        def once() -> T:
            with self._errors.translated(what):
                found = self._connections.ask_any(FindTransactionCoordinator(transactional_id), deadline)
                self._raise(error_name(found.error), what, known=False)
                until = deadline.within(_ATTEMPT_S)
                try:
                    answer = ask(found.address, until)
                except UnsupportedVersionError:
                    raise
                except (OSError, ProtocolError) as problem:
                    raise TryAgainError(self._errors.text(what, problem)) from None
            self._raise(error_name(error_of(answer)), what, known=True)
            return answer

        return self._again(once, deadline)

    def _again(self, ask: Callable[[], T], deadline: Deadline) -> T:
        while True:
            try:
                return ask()
            except TryAgainError:
                if deadline.left_s < _PAUSE_S:
                    raise
            time.sleep(_PAUSE_S)

    def _raise(self, name: str, what: str, *, known: bool) -> None:
        """Raise what passes by itself, or is a matter of rights; other errors of a `known` coordinator are answers."""
        if name == NONE:
            return
        if name == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED":
            raise AuthenticationError(
                f"{what}: the user of this query may not write in transactions. Grant it WRITE and DESCRIBE on "
                f"transactional ids that begin with 'kafka-group-sink-', or set delivery=at-least-once."
            )
        if name in _PASSING:
            raise TryAgainError(f"{what}: {name}")
        if not known:
            self._errors.refuse(name, what)
