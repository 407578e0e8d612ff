"""Questions about transactions, ends of transactions that another process has begun, and commits in transactions.

librdkafka ends only its own transactions.  In the sink, each task begins one, and the driver ends them all.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_kafka_group.cluster.channel import TIMEOUT_S
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.groups import Groups
from pyspark_kafka_group.cluster.patience import growing, patiently
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import NO_TIME, Deadline
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.wire.group_requests import OffsetToCommit
from pyspark_kafka_group.wire.transaction_requests import FindTransactionCoordinator, FindTransactionCoordinators
from pyspark_kafka_group.wire.types import Address, ProtocolError, UnsupportedVersionError

if TYPE_CHECKING:
    from pyspark_kafka_group.wire.transactions import TransactionState

log = logging.getLogger("pyspark_kafka_group.writing")

T = TypeVar("T")

_CONCURRENT = "CONCURRENT_TRANSACTIONS"

# The coordinator is busy with an earlier end, or moves.
_PASSING = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        _CONCURRENT,
        "UNKNOWN_SERVER_ERROR",
        "REQUEST_TIMED_OUT",
        "UNSTABLE_OFFSET_COMMIT",
    }
)
_PAUSE_S = 0.02  # the first one; each is twice as long as the one before
_MAX_PAUSE_S = 0.5
_ATTEMPT_S = 15.0  # how long one broker may be silent: another may be the coordinator by then
_LONG_S = 10.0  # after that the log names the coordinators that do not answer

_Answered = Iterator[tuple[str, int, T]]
"""The error code and the answer for each transactional id."""


FENCED_MS = 59_999
"""The timeout of a producer that only fences.  It shows that its transactional id needs no fence again."""


class OpenProducer(NamedTuple):
    """The producer that has a transactional id, and its epoch."""

    producer_id: int
    epoch: int


class Ended(NamedTuple):
    """The answers to requests to end transactions, by transactional id.

    Attributes
    ----------
    names : dict
        Kafka's name of the error, such as PRODUCER_FENCED or INVALID_TXN_STATE; NONE if the transaction has ended as
        requested.
    silent : dict
        The problem of each transactional id whose coordinator did not answer in time.
    """

    names: dict[str, str]
    silent: dict[str, str]


class Transactions(Groups):
    """Asks transaction coordinators.  Raises the errors of :class:`~pyspark_kafka_group.cluster.cluster.Cluster`.

    Methods with a deadline retry until then, if a retry can help.
    """

    # Deliberate: most requests are imported where they are needed.  A query that starts needs none of them.

    def transaction_coordinator(self, transactional_id: str, *, timeout_s: float = TIMEOUT_S) -> str:
        """Return the name of Kafka's error when a broker looks for the coordinator of a transactional id, or NONE."""
        with self._errors.translated("transactions"):
            asked = FindTransactionCoordinator(transactional_id)
            return error_name(self._connections.ask_any(asked, Deadline.after(timeout_s)).error)

    def states(self, transactional_ids: Collection[str], *, deadline: Deadline) -> dict[str, TransactionState]:
        """Return the producer of each transactional id, and the state of its transaction."""
        from pyspark_kafka_group.wire.transactions import DescribeTransactions

        def ask(address: Address, names: list[str], until: Deadline) -> _Answered[TransactionState]:
            for name, found in self._connections.ask(address, DescribeTransactions(names), until).items():
                yield name, found.error, found

        answered, silent = self._at_coordinators(transactional_ids, ask, deadline)
        _raise_first(silent)
        return answered

    def end(self, producers: Mapping[str, OpenProducer], *, commit: bool, deadline: Deadline) -> Ended:
        """Commit or abort the open transactions of producers.  A repetition is harmless.

        A coordinator that does not answer delays the others' transactions by a few seconds at most.

        Parameters
        ----------
        producers : mapping
            The producers, by transactional id.
        commit : bool
            Whether to commit.
        deadline : Deadline
            When to stop retrying.
        """
        from pyspark_kafka_group.wire.transactions import EndTransaction

        def ask(address: Address, names: list[str], until: Deadline) -> _Answered[str]:
            for name in names:
                request = EndTransaction(name, *producers[name], commit)
                error = self._connections.ask(address, request, until)
                yield name, error, error_name(error)

        return Ended(*self._at_coordinators(producers, ask, deadline))

    def fence(self, transactional_ids: Collection[str], *, deadline: Deadline) -> dict[str, str]:
        """Fence the producers of transactional ids, which aborts their open transactions.

        Returns
        -------
        dict
            The problem of each transactional id that is not fenced.
        """
        from pyspark_kafka_group.wire.transactions import InitProducerId

        def ask(address: Address, names: list[str], until: Deadline) -> _Answered[str]:
            for name in names:
                # The timeout ends no transaction: the next producer sets its own.
                found = self._connections.ask(address, InitProducerId(name, FENCED_MS), until)
                # Then the coordinator is already aborting an open transaction.
                passed = error_name(found.error) == _CONCURRENT
                yield name, 0 if passed else found.error, error_name(found.error)

        answered, silent = self._at_coordinators(transactional_ids, ask, deadline)
        return silent | {name: error for name, error in answered.items() if error not in (NONE, _CONCURRENT)}

    def take_over(self, transactional_id: str, timeout_ms: int, *, deadline: Deadline) -> OpenProducer:
        """Take a transactional id over.  From then on, brokers refuse all requests of its former producers.

        Before this returns, the coordinator aborts an open transaction of the former producer, or finishes committing
        one.

        Parameters
        ----------
        transactional_id : str
            The transactional id.
        timeout_ms : int
            How long the next transaction may be open, in milliseconds.
        deadline : Deadline
            When to stop retrying.
        """
        from pyspark_kafka_group.wire.transactions import InitProducerId

        def ask(address: Address, names: list[str], until: Deadline) -> _Answered[tuple[str, OpenProducer]]:
            for name in names:
                found = self._connections.ask(address, InitProducerId(name, timeout_ms), until)
                yield name, found.error, (error_name(found.error), OpenProducer(*found[1:]))

        answered, silent = self._at_coordinators([transactional_id], ask, deadline)
        _raise_first(silent)
        error, producer = answered[transactional_id]
        if error != NONE:
            self._errors.refuse(error, f"transactional id {transactional_id!r}")
        return producer

    def write_offsets(
        self,
        transactional_id: str,
        producer: OpenProducer,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        deadline: Deadline,
    ) -> dict[TopicPartition, str]:
        """Write offsets of a group without members in a transaction, which stays open.

        Returns
        -------
        dict
            Kafka's name of the error for each partition whose offset was not written.  PRODUCER_FENCED for all of
            them also means that the transaction could not be begun.
        """
        from pyspark_kafka_group.wire.transactions import AddOffsetsToTransaction, CommitOffsetsInTransaction

        def begin(address: Address, names: list[str], until: Deadline) -> _Answered[str]:
            for name in names:
                error = self._connections.ask(address, AddOffsetsToTransaction(name, *producer, group_id), until)
                yield name, error, error_name(error)

        answered, silent = self._at_coordinators([transactional_id], begin, deadline)
        _raise_first(silent)
        begun = answered[transactional_id]
        if begun != NONE:
            self._errors.raise_if_final(begun, f"group {group_id!r}", group_id=group_id)
            return dict.fromkeys(offsets, begun)
        request = CommitOffsetsInTransaction(transactional_id, *producer, group_id, offsets)

        def write() -> dict[TopicPartition, str]:
            def ask(until: Deadline) -> dict[TopicPartition, str]:
                written = self._ask_coordinator(group_id, request, until)
                # The wire's topic-partitions are not those of the layers above.
                return {TopicPartition(*tp): error_name(error) for tp, error in written.items()}

            names = self._at_coordinator(group_id, ask, deadline.within(_ATTEMPT_S).left_s)
            for name in sorted({*names.values()} & _PASSING):
                self._coordinators.pop(group_id, None)
                raise TryAgainError(f"group {group_id!r}: {name}")
            return {tp: name for tp, name in names.items() if name != NONE}

        return patiently(write, deadline, growing(_PAUSE_S, _MAX_PAUSE_S))

    def listed(
        self, prefix: str, states: Collection[str], *, longer_than_ms: int = -1, deadline: Deadline
    ) -> frozenset[str]:
        """Return the transactional ids with a prefix whose transaction is in one of the states.

        Parameters
        ----------
        prefix : str
            The prefix.
        states : collection of str
            The states, as Kafka names them.
        longer_than_ms : int
            Leaves out transactions that began less than this long ago, by the brokers' clocks; -1 leaves none out.
        deadline : Deadline
            When to stop retrying.

        Raises
        ------
        TryAgainError
            If a broker of the cluster does not answer, so that its transactions are unknown.
        """
        from pyspark_kafka_group.wire.transactions import ListTransactions

        request = ListTransactions(states, longer_than_ms, re.escape(prefix) + ".*")
        found: set[str] = set()

        def ask() -> frozenset[str]:
            brokers = self._metadata((), deadline.within(_ATTEMPT_S)).brokers
            problem = ""
            # Deliberate: all brokers, also in a retry.  Coordinators may have moved to one that has answered before.
            for number, address in sorted(brokers.items()):
                with self._errors.translated("transactions"):
                    try:
                        listed = self._connections.ask(address, request, deadline.within(_ATTEMPT_S))
                    except UnsupportedVersionError:
                        raise
                    except (OSError, ProtocolError) as error:
                        problem = self._errors.text(f"transactions of broker {number}", error)
                        continue
                name = error_name(listed.error)
                if name != NONE:
                    problem = f"transactions of broker {number}: {name}"
                    continue
                found.update(one for one in listed.transactional_ids if one.startswith(prefix))
            if problem:
                raise TryAgainError(problem)
            return frozenset(found)

        return patiently(ask, deadline, growing(_PAUSE_S, _MAX_PAUSE_S))

    def stable_offsets(self, group_id: str, *, deadline: Deadline) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of a group, which need not exist; waits for its open transactions."""

        def ask() -> dict[TopicPartition, CommittedOffset]:
            timeout_s = deadline.within(_ATTEMPT_S).left_s
            found, failed = self.all_committed(group_id, require_stable=True, timeout_s=timeout_s)
            for tp, name in failed.items():
                raise TryAgainError(f"committed offset of {tp}: {name}")
            return found

        return patiently(ask, deadline, growing(_PAUSE_S, _MAX_PAUSE_S))

    def _at_coordinators(
        self,
        transactional_ids: Iterable[str],
        ask: Callable[[Address, list[str], Deadline], _Answered[T]],
        deadline: Deadline,
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Ask about transactional ids, each at its coordinator, until all are answered or the deadline has passed.

        Returns
        -------
        tuple
            The answers, and the problems of the other transactional ids.
        """
        answered: dict[str, T] = {}
        left = dict.fromkeys(transactional_ids, "no coordinator was asked")
        failed: set[Address] = set()
        begin, warned = time.monotonic(), False

        def ask_all() -> bool:
            nonlocal warned
            found = self._coordinators_of([*left], deadline, left)
            # Coordinators that have failed come last.  A silent one must not delay the others.
            for address in sorted(found, key=lambda address: address in failed):
                names = found[address]
                with self._errors.translated("transactions"):
                    try:
                        for name, error, value in ask(address, names, deadline.within(_ATTEMPT_S)):
                            self._take(name, error, value, answered, left)
                        failed.discard(address)
                    except UnsupportedVersionError:
                        raise
                    except (OSError, ProtocolError) as problem:
                        failed.add(address)
                        text = self._errors.text(f"transaction coordinator {address}", problem)
                        _note(left, [name for name in names if name in left], text)
            if left and not warned and time.monotonic() - begin > _LONG_S:
                warned = True
                log.warning("%d transactions wait for their coordinators: %s", len(left), next(iter(left.values())))
            return not left

        if left:
            patiently(ask_all, deadline, growing(_PAUSE_S, _MAX_PAUSE_S), is_enough=bool)
        return answered, left

    def _take(self, name: str, error: int, value: T, answered: dict[str, T], left: dict[str, str]) -> None:
        """Note an answer.  After an error that a retry can cure, the transactional id stays in ``left``."""
        text = error_name(error)
        if text in _PASSING:
            left[name] = f"transactional id {name!r}: {text}"
            return
        _check_right(text, name)
        answered[name] = value
        left.pop(name, None)

    def _coordinators_of(self, names: list[str], deadline: Deadline, left: dict[str, str]) -> dict[Address, list[str]]:
        """Return the transactional ids of each coordinator; notes the problems of the others in ``left``."""
        by_address: dict[Address, list[str]] = {}
        try:
            with self._errors.translated("transactions"):
                request = FindTransactionCoordinators(names)
                found = self._connections.ask_any(request, deadline.within(_ATTEMPT_S))
        except TryAgainError as problem:
            _note(left, names, str(problem))
            return {}
        for name in names:
            error = error_name(found[name].error) if name in found else "COORDINATOR_NOT_AVAILABLE"
            _check_right(error, name)
            if error == NONE:
                by_address.setdefault(found[name].address, []).append(name)
            else:
                self._errors.raise_if_final(error, f"transactional id {name!r}")
                left[name] = f"transactional id {name!r}: {error}"
        return by_address


def _note(left: dict[str, str], names: Collection[str], text: str) -> None:
    """Note the problem of transactional ids, unless the attempt had no time.  Then the problem before says more."""
    if NO_TIME not in text:
        left |= dict.fromkeys(names, text)


def _raise_first(silent: Mapping[str, str]) -> None:
    """Raise the problem of the first transactional id without an answer, if there is one."""
    for text in silent.values():
        raise TryAgainError(text)


def _check_right(error: str, transactional_id: str) -> None:
    if error == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED":
        raise AuthenticationError(
            f"Transactional id {transactional_id!r}: the user of this query may not write in transactions. Grant it "
            f"WRITE and DESCRIBE on transactional ids that begin with 'kafka-group-sink-', or with the value of the "
            f"option transactionalIdPrefix. Or set delivery=at-least-once."
        )
