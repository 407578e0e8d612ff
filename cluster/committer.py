"""Commits offsets to the group, in a Kafka transaction.

A transaction pins the generation of the member that decided the commit.  So an evicted member cannot move the group's
offsets (KIP-447).  The next owner reads with require_stable, and waits for an open transaction.

A committer belongs to one thread; its calls block.  ``commitMode=plain`` is in
:mod:`pyspark_kafka_group.cluster.plain_committer`.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_group.cluster.cluster import Cluster, connect
from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError, refusal
from pyspark_kafka_group.cluster.groups import commit_requests
from pyspark_kafka_group.cluster.properties.client_config import Properties, client_properties
from pyspark_kafka_group.cluster.properties.clients import client_text, create_client, needs_renewals
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind, transactional_id
from pyspark_kafka_group.cluster.properties.redaction import redact
from pyspark_kafka_group.offsets.errors import KafkaGroupError, MemberFencedError
from pyspark_kafka_group.offsets.kafka_errors import Consequence, has
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer
    from confluent_kafka import TopicPartition as KafkaPartition

_log = logging.getLogger(__name__)

T = TypeVar("T")

OffsetsToCommit = Mapping[TopicPartition, tuple[Offset, LeaderEpoch | None, str]]
"""For each topic-partition the offset, the leader epoch that Kafka keeps beside it, and its metadata."""

# An open transaction keeps the next owner from reading the committed offset, so a process that dies inside one
# holds its partitions back for this long.  It must outlast a coordinator move, which takes a few seconds.
TRANSACTION_TIMEOUT_S = 10.0

# How long to look for a broker before the request for a producer id.
_BROKER_PATIENCE_S = 1.0

# How much longer than its own timeout a call of librdkafka may take before it is abandoned.
_HANG_S = 2.0

# librdkafka retries until the timeout if the broker does not know a topic.  So after this pause, and after each further
# one, we check whether the topics exist.  Longer than a commit takes on a healthy cluster.
_DOUBT_S = 1.0
_LOOK_S = 2.0

# By librdkafka's rule a producer's socket.timeout.ms may be this much above its transaction.timeout.ms, and no more.
_SOCKET_SLACK_MS = 100

# So many fencings within so long mean that another run of the query keeps committing.  A former run that is leaving
# fences once or twice.  Successful commits in between do not count: two runs fence each other in turn.
_MAX_FENCINGS = 3
_FENCINGS_S = 60.0


class CommitRefusedError(KafkaGroupError):
    """The commit did not succeed; a retry may help.  Never leaves the source process.

    Attributes
    ----------
    evicted : bool
        Whether the group no longer knows this member.
    missing : frozenset of TopicPartition
        The partitions that do not exist.  The others can be committed without them.
    unclear : bool
        Whether the request may still arrive, even after the next commit.
    lasting : bool
        Whether retries rarely cure this.
    """

    evicted: bool
    lasting: bool
    missing: frozenset[TopicPartition]
    unclear: bool

    def __init__(
        self, name: str, text: str, *, missing: frozenset[TopicPartition] = frozenset(), unclear: bool = False
    ) -> None:
        super().__init__(
            f"{name}: {text}",
            evicted=has(name, Consequence.EVICTED),
            lasting=has(name, Consequence.LASTING),
            missing=missing,
            unclear=unclear,
        )


def commit_error(
    name: str, text: str, *, group_id: str, properties: Properties, missing: frozenset[TopicPartition] = frozenset()
) -> KafkaGroupError:
    """Return the meaning of a refused commit: a CommitRefusedError, or the explained error if no retry can help.

    A member that the group no longer knows never ends the query here, even if its ``group.instance.id`` is in use.
    The member may be this process, which was suspended past its session, and joined again while the commit was on its
    way.  If another process has the place, the member learns it from its next heartbeat.
    """
    final = None if has(name, Consequence.EVICTED) else refusal(name, text, group_id=group_id, properties=properties)
    return final or CommitRefusedError(name, redact(text, properties), missing=missing)


def kafka_partitions(offsets: OffsetsToCommit) -> list[KafkaPartition]:
    """Return the offsets in librdkafka's form."""
    from confluent_kafka import TopicPartition as KafkaPartition

    return [
        KafkaPartition(tp.topic, tp.partition, offset, metadata, -1 if leader_epoch is None else leader_epoch)
        for tp, (offset, leader_epoch, metadata) in offsets.items()
    ]


def _begin(producer: Producer, timeout_s: float) -> None:
    """Initialize transactions, once the producer is connected to a broker.

    A producer that is not connected fails to find its coordinator and retries 0.5 s later (librdkafka 2.16.1).  Most
    new producers would take that long.  An answer of a bootstrap server is not enough: librdkafka closes its
    connection when it has learned the id of the broker behind it.
    """
    from confluent_kafka import KafkaException

    deadline = Deadline.after(min(_BROKER_PATIENCE_S, timeout_s))
    while (left_s := deadline.left_s) > 0:
        with contextlib.suppress(KafkaException):
            # Any topic would do: the answer is not used.
            if producer.list_topics("__consumer_offsets", timeout=left_s).orig_broker_id >= 0:
                break
    producer.init_transactions(timeout_s)


def _close(producer: Producer) -> None:
    """Close a producer, whatever it still does.  The coordinator or the next producer ends its transaction."""
    from confluent_kafka import KafkaException

    warnings.filterwarnings("ignore", "Producer abort_transaction failed", RuntimeWarning)
    close = getattr(producer, "close", lambda: None)  # confluent-kafka 2.15 closes it when its last user has gone
    with contextlib.suppress(KafkaException, RuntimeError):
        close()


class _Connections:
    """Notes whether a connection of one producer has broken.  The producer calls it, inside its own calls.

    After that, the producer repeats the requests that have no answer yet.  Only its log reports this, because it
    calls ``error_cb`` only when it has lost all brokers (librdkafka 2.16.1).
    """

    def __init__(self) -> None:
        self.broken = False

    def failed(self, error: KafkaError) -> None:
        """Take an error, as ``error_cb``."""
        self.broken |= error.name() == "_ALL_BROKERS_DOWN" or (error.name() == "_TRANSPORT" and _was_up(error.str()))

    def log(self, _level: int, _template: str, facility: str, _client: str, text: str) -> None:
        """Take a line of the log, as ``logger``.  The calls report all other failures."""
        self.broken |= facility == "FAIL" and _was_up(text)


def _was_up(text: str) -> bool:
    """Return whether a failed connection had been up.  Otherwise it has carried no request."""
    return "in state CONNECT" not in text


class TransactionalCommitter:
    """Commits with one producer, which has the query's own transactional id.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    group_id, query_id : str
        The parts of the transactional id.  A new run of the same query fences the transactions of the former one.
    """

    def __init__(self, properties: Properties, *, group_id: str, query_id: str) -> None:
        self._properties = properties
        self._group_id = group_id
        self._transactional_id = transactional_id(group_id, query_id)
        self._producer: Producer | None = None
        self._cluster: Cluster | None = None  # opened if a commit takes long
        self._connections = _Connections()
        self._renews = False  # whether the producer logs in again with new tokens
        self._caller = DaemonExecutor("kafka-group-transaction")
        self._fenced_at: deque[float] = deque(maxlen=_MAX_FENCINGS)

    def prepare(self) -> None:
        """Get a producer id, so that the first commit does not wait for it.  :meth:`commit` reports problems."""
        try:
            self._ready_producer(Deadline.after(TRANSACTION_TIMEOUT_S))
        except KafkaGroupError as problem:
            _log.info("no producer id for commits yet: %s", problem)

    def commit(self, offsets: OffsetsToCommit, group_metadata: bytes) -> None:
        """Commit ``offsets`` for the member and generation that ``group_metadata`` names.

        Raises
        ------
        CommitRefusedError
            If the commit was refused, or its outcome is unknown.  You may commit the offsets again, except for its
            ``missing``.
        KafkaGroupError
            If no retry can help: an explained error, which ends the query.
        """
        deadline = Deadline.after(TRANSACTION_TIMEOUT_S)
        producer = self._ready_producer(deadline)
        parts = kafka_partitions(offsets)
        self._run(producer, deadline, lambda _: producer.begin_transaction())
        for request in commit_requests(parts):
            send = partial(producer.send_offsets_to_transaction, request, group_metadata)
            self._run(producer, deadline, send, partitions=offsets)
        self._run(producer, deadline, producer.commit_transaction)

    def serve(self) -> None:
        """Empty the producer's queue of events, which grows while brokers are down."""
        if self._producer is not None:
            self._producer.poll(0)

    def close(self) -> None:
        """Close the producer, without waiting.  The coordinator aborts an open transaction."""
        self._drop(self._producer)
        if self._cluster is not None:
            self._cluster.close()
        self._caller.close()

    def _ready_producer(self, deadline: Deadline) -> Producer:
        if self._producer is not None:
            self._producer.poll(0)  # serves errors of its connections
            if not self._connections.broken:
                return self._producer
            # Deliberate: a producer whose broker was restarted may hang for ever in the next transaction (2.16.1), and
            # what it has sent twice may arrive in the next transaction, see _give_up.
            self._drop(self._producer)
        connections = self._connections = _Connections()
        from confluent_kafka import Producer

        config = {
            **client_properties(ClientKind.PRODUCER, self._properties),
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
            # Deliberate: overrides the user's value.  After a shorter time librdkafka silently sends a request again,
            # over another connection.  The first one could then arrive in the next transaction.
            "socket.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000) + _SOCKET_SLACK_MS,
            "client.id": self._transactional_id,
            "error_cb": connections.failed,
            "logger": connections,
        }
        self._renews = needs_renewals(config)
        producer = create_client(Producer, config, self._properties)
        self._run(producer, deadline, partial(_begin, producer))
        producer.poll(0)
        # No request of a transaction was on its way, and until the first server answers all brokers count as "down".
        connections.broken = False
        self._producer = producer
        return producer

    def _run(
        self,
        producer: Producer,
        deadline: Deadline,
        call: Callable[[float], None],
        *,
        partitions: Collection[TopicPartition] = (),
    ) -> None:
        """Run one step of a transaction. librdkafka allows repeating each step after a retriable error.

        If it takes long, check whether the topics of ``partitions`` exist.
        """
        from confluent_kafka import KafkaException

        while True:
            left = max(0.1, deadline.left_s)
            try:
                return self._answer(self._caller.submit(call, left), left + _HANG_S, partitions)
            except TimeoutError:
                # Deliberate: abandons the thread and the producer.  librdkafka 2.16.1 may never return from
                # send_offsets_to_transaction after the only broker was restarted, whatever its timeout is.
                self._drop(producer)
                raise CommitRefusedError("_TIMED_OUT", "the client does not answer") from None
            except CommitRefusedError:
                self._drop(producer)
                raise
            except KafkaException as problem:
                error: KafkaError = problem.args[0]
                if error.retriable() and not deadline.passed:
                    continue
                self._give_up(producer, error)
                raise self._meaning(error, in_time=not deadline.passed) from None

    def _answer(self, asked: Future[None], patience_s: float, partitions: Collection[TopicPartition]) -> None:
        """Wait for a step; raise its error, TimeoutError, or CommitRefusedError if a partition is missing."""
        deadline = Deadline.after(patience_s)
        while True:
            left_s = deadline.left_s
            try:
                return asked.result(min(left_s, _DOUBT_S) if partitions else left_s)
            except TimeoutError:
                if deadline.passed:
                    raise
            missing = self._missing(partitions)
            if missing and not asked.done():
                names = ", ".join(sorted({tp.topic for tp in missing}))
                raise CommitRefusedError(
                    "UNKNOWN_TOPIC_OR_PART",
                    f"these topics, or partitions of them, do not exist: {names}",
                    missing=missing,
                )

    def _missing(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that do not exist; none if no broker answers."""
        if self._cluster is None:
            self._cluster = connect(self._properties, client_id=self._transactional_id)
        try:
            return self._cluster.missing_partitions(partitions, timeout_s=_LOOK_S)
        except (TryAgainError, KafkaGroupError):
            return frozenset()

    def _drop(self, producer: Producer | None) -> None:
        """Close a producer on its thread, which may be inside one of its calls, and let others have a new thread.

        Deliberate: closed, not only forgotten.  Its errors refer to it in a circle, and the collector rarely runs in a
        query that waits.  Each producer has four threads and several files.
        """
        self._producer = None
        if producer is not None:
            self._caller.post(_close, producer)
            self._caller.close()
            self._caller = DaemonExecutor("kafka-group-transaction")

    def _give_up(self, producer: Producer, error: KafkaError) -> None:
        """Prepare the producer for another transaction if the broker has refused this one; otherwise drop it.

        Without an answer, the request may still be on its way, and arrive when the next transaction is open.  The
        broker distinguishes transactions only by the producer's epoch, and would add the offsets to the next
        transaction.  A new producer has a higher epoch.
        """
        from confluent_kafka import KafkaException

        if has(error.name(), Consequence.REFUSED) and error.txn_requires_abort() and not error.fatal():
            try:
                abort = self._caller.submit(producer.abort_transaction, TRANSACTION_TIMEOUT_S)
                return abort.result(TRANSACTION_TIMEOUT_S + _HANG_S)
            except KafkaException as problem:
                _log.info("abort failed, a new producer follows: %s", problem.args[0].name())
            except TimeoutError:
                _log.info("abort failed, a new producer follows: the client does not answer")
        # A new producer's init_transactions aborts or completes whatever the old one left open.
        self._drop(producer)
        return None

    def _meaning(self, error: KafkaError, *, in_time: bool) -> KafkaGroupError:
        fenced = has(error.name(), Consequence.FENCED)
        if fenced and in_time:  # otherwise the transaction has timed out at the coordinator, and there is no other run
            now = time.monotonic()
            self._fenced_at.append(now)
            if len(self._fenced_at) == _MAX_FENCINGS and now - self._fenced_at[0] < _FENCINGS_S:
                return MemberFencedError(
                    f"Another run of this query commits in group {self._group_id!r}: the same checkpoint is in "
                    f"use twice. Stop one of them."
                )
        if fenced or (self._renews and error.name() == "_AUTHENTICATION"):  # with a new token, see `Member`
            return CommitRefusedError(error.name(), client_text(error.str(), self._properties))
        return commit_error(error.name(), error.str(), group_id=self._group_id, properties=self._properties)
