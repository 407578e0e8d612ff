"""What a direct producer asks the cluster, besides writing: topics and leaders, its producer id, its transaction.

Knows which errors a retry can cure.  Belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.patience import growing, patiently
from pyspark_kafka_group.cluster.properties.redaction import redact
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, KafkaGroupError
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.cluster_connections import ClusterConnections
from pyspark_kafka_group.wire.config_requests import TOPIC, DescribeConfigs
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import error_code, error_name
from pyspark_kafka_group.wire.group_requests import Coordinator
from pyspark_kafka_group.wire.leaders import NO_LEADER, NO_PARTITION
from pyspark_kafka_group.wire.produce_requests import AddPartitionsToTransaction
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata
from pyspark_kafka_group.wire.transaction_requests import FindTransactionCoordinator
from pyspark_kafka_group.wire.transactions import InitProducerId
from pyspark_kafka_group.wire.types import (
    Address,
    ProtocolError,
    RefusedCredentialsError,
    StoppedLoginError,
    TopicPartition,
    UnsupportedVersionError,
)
from pyspark_kafka_group.writing.delivery_errors import delivery_error
from pyspark_kafka_group.writing.direct_settings import DirectSettings

T = TypeVar("T")

# Errors of this side, with librdkafka's numbers.
AUTHENTICATION, TIMED_OUT, MESSAGE_TIMED_OUT, UNKNOWN_TOPIC, UNKNOWN_PARTITION = -169, -185, -192, -188, -190
TOO_LARGE = error_code("MESSAGE_TOO_LARGE")

WRITTEN = frozenset({0, error_code("DUPLICATE_SEQUENCE_NUMBER")})
"""The codes of a batch that is in Kafka.  The second one means that an earlier request has written it."""

_PASSING = frozenset(
    map(
        error_code,
        (
            "CORRUPT_MESSAGE",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "LEADER_NOT_AVAILABLE",
            "NOT_LEADER_OR_FOLLOWER",
            "REQUEST_TIMED_OUT",
            "BROKER_NOT_AVAILABLE",
            "REPLICA_NOT_AVAILABLE",
            "NETWORK_EXCEPTION",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "NOT_ENOUGH_REPLICAS",
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            "CONCURRENT_TRANSACTIONS",
            "KAFKA_STORAGE_ERROR",
            "FENCED_LEADER_EPOCH",
            "UNKNOWN_LEADER_EPOCH",
            "THROTTLING_QUOTA_EXCEEDED",
        ),
    )
)
"""The codes that a retry can cure."""
_SAME_FATE = error_code("OPERATION_NOT_ATTEMPTED")  # another partition has the cause

_ATTEMPT_S = 10.0  # how long one question may take, with all brokers
_INIT_S = 60.0  # how long the begin of a transaction may take
_NO_TRANSACTION_MS = 60_000  # without a transactional id, brokers ignore the timeout of transactions
_FIRST_PAUSE_S = 0.02  # in transactions: the end of the last one takes some milliseconds


class ProducerId(NamedTuple):
    """The id and the epoch of a producer; -1 without idempotence."""

    id: int = -1
    epoch: int = -1


class ProducerRequests:
    """The questions of one producer.

    Parameters
    ----------
    settings : DirectSettings
        The settings of the producer.
    config : mapping of str to str
        The configuration of the producer, to keep secrets out of errors.

    Attributes
    ----------
    last_error : str
        The last problem that a retry may cure.  Empty if there was none.
    """

    def __init__(self, settings: DirectSettings, config: Mapping[str, str]) -> None:
        self._settings, self._config = settings, config
        self._connections = ClusterConnections(settings.servers, self._connect)
        self._coordinator: Address | None = None
        self.last_error = ""

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _connect(self, address: Address, timeout_s: float) -> BrokerConnection:
        found = self._settings
        return BrokerConnection(address, found.client_id, timeout_s, found.security, needed=(), begin_s=timeout_s)

    # -- errors

    def failure(self, code: int, topic: str = "", partition: int = -1, reason: str | None = None) -> KafkaGroupError:
        """Return the error for a code of Kafka, or for one of the codes above."""
        # Deliberate: not at the top.  A task without errors does not need it.
        from confluent_kafka import KafkaError

        return delivery_error(KafkaError(code, reason), topic, partition, self._config, self.last_error)

    def note(self, problem: OSError | ProtocolError, until: Deadline) -> None:
        """Note the problem of a connection that was used until a deadline.  Raise its meaning if no retry cures it."""
        if isinstance(problem, TimeoutError) and until.left_s <= self._settings.pause_s and self.last_error:
            return  # it had little time: an earlier problem is the cause
        text = str(problem) or type(problem).__name__
        if isinstance(problem, StoppedLoginError):
            raise AuthenticationError(text)
        if isinstance(problem, RefusedCredentialsError):
            raise self.failure(AUTHENTICATION, reason=text)
        if isinstance(problem, UnsupportedVersionError):
            raise BrokerError(
                f"Option 'kafka.bootstrap.servers': {text}. Use a cluster of that version or a newer one."
            )
        self.last_error = redact(text, self._config)

    def note_code(self, code: int, topic: str = "", partition: int = -1) -> None:
        """Note an error code.  Raise its meaning if no retry cures it."""
        if code not in _PASSING:
            raise self.failure(code, topic, partition)
        where = "" if not topic else f"{topic}: " if partition < 0 else f"{TopicPartition(topic, partition)}: "
        self.last_error = where + error_name(code)

    def _again(
        self,
        ask: Callable[[Deadline], tuple[int, str, T]],
        deadline: Deadline,
        late: Callable[[], int],
        pause_s: float | None = None,
    ) -> T:
        """Ask until the answer has no error.

        Parameters
        ----------
        ask
            Returns the error code, its topic, and the answer.
        deadline
            When to stop retrying.
        late
            Returns the code to raise then.
        pause_s
            The first pause.
        """
        topic = ""

        def attempt() -> T:
            nonlocal topic
            try:
                code, topic, answer = ask(deadline.within(_ATTEMPT_S))
                if not code:
                    return answer
                self.note_code(code, topic)
            except (OSError, ProtocolError) as problem:
                self.note(problem, deadline)
            raise TryAgainError(self.last_error)

        try:
            pauses_s = growing(pause_s or self._settings.pause_s, self._settings.longest_pause_s)
            return patiently(attempt, deadline, pauses_s)
        except TryAgainError:
            raise self.failure(late(), topic) from None

    # -- topics

    def metadata(self, topics: Collection[str], deadline: Deadline) -> ClusterMetadata:
        """Return the partitions and leaders of topics, once.

        Raises
        ------
        OSError, ProtocolError
            If no broker answers.
        """
        wanted = Metadata(tuple(sorted(topics)), creates=self._settings.creates_topics)
        found = self._connections.ask_any(wanted, deadline.within(_ATTEMPT_S))
        self._connections.learn(found.brokers.values())
        return found

    def prefer_another(self) -> None:
        """Ask another broker for the next metadata: the last one may not know the new leader yet."""
        self._connections.prefer_another()

    def new_topics(self, topics: Collection[str]) -> ClusterMetadata:
        """Return the partitions and leaders of topics that the producer does not know.  Wait until they exist.

        Raises
        ------
        KafkaGroupError
            If a topic does not exist in time, or the user may not write to it, or no broker answers in time.
        """
        until, is_missing = Deadline.after(self._settings.new_topic_s), False

        def ask(deadline: Deadline) -> tuple[int, str, ClusterMetadata]:
            nonlocal is_missing
            is_missing = False
            found = self.metadata(topics, deadline)
            codes = {topic.name: topic.error or (0 if topic.partitions else NO_LEADER) for topic in found.topics}
            for topic in topics:
                code = codes.get(topic, NO_PARTITION)
                if code:
                    is_missing = code in (NO_PARTITION, NO_LEADER)
                    if is_missing and until.passed:
                        raise self.failure(UNKNOWN_TOPIC, topic)
                    self.prefer_another()
                    return code, topic, found
            return 0, "", found

        return self._again(
            ask,
            Deadline.after(self._settings.delivery_s),
            lambda: UNKNOWN_TOPIC if is_missing else MESSAGE_TIMED_OUT,
        )

    def batch_limits(self, topics: Collection[str]) -> dict[str, int]:
        """Return the largest batch that topics take, in bytes, as far as the user may ask for it."""
        request = DescribeConfigs(TOPIC, tuple(sorted(topics)), ("max.message.bytes",))
        deadline = Deadline.after(self._settings.answer_s)
        try:
            found = self._connections.ask_any(request, deadline)
        except UnsupportedVersionError:
            return {}  # a proxy, or another system with Kafka's protocol
        except (OSError, ProtocolError) as problem:
            self.note(problem, deadline)
            return {}
        limits = {topic: found.get(topic, {}).get("max.message.bytes") or "" for topic in topics}
        return {topic: int(most) for topic, most in limits.items() if most.isdecimal()}

    # -- the producer id, and transactions

    def producer_id(self) -> ProducerId:
        """Return a new producer id, with which brokers recognize repeated batches."""

        def ask(deadline: Deadline) -> tuple[int, str, ProducerId]:
            found = self._connections.ask_any(InitProducerId(None, _NO_TRANSACTION_MS), deadline)
            return found.error, "", ProducerId(found.producer_id, found.producer_epoch)

        return self._again(ask, Deadline.after(self._settings.delivery_s), lambda: MESSAGE_TIMED_OUT)

    def take_over(self, transactional_id: str) -> ProducerId:
        """Take over a transactional id.  The coordinator aborts an open transaction of its former producer."""
        request = InitProducerId(transactional_id, self._settings.transaction_ms)

        def ask(deadline: Deadline) -> tuple[int, str, ProducerId]:
            found = self._ask_coordinator(
                transactional_id, deadline, lambda at: self._connections.ask(at, request, deadline)
            )
            if isinstance(found, Coordinator):
                return found.error, "", ProducerId()
            self._check_coordinator(found.error)
            return found.error, "", ProducerId(found.producer_id, found.producer_epoch)

        return self._again(ask, Deadline.after(_INIT_S), lambda: TIMED_OUT, _FIRST_PAUSE_S)

    def add_partitions(
        self, transactional_id: str, producer: ProducerId, partitions: Collection[TopicPartition]
    ) -> None:
        """Add partitions to the transaction, before their first records."""
        request = AddPartitionsToTransaction(transactional_id, *producer, partitions)

        def ask(deadline: Deadline) -> tuple[int, str, None]:
            found = self._ask_coordinator(
                transactional_id, deadline, lambda at: self._connections.ask(at, request, deadline)
            )
            if isinstance(found, Coordinator):
                return found.error, "", None
            missing = [tp for tp in partitions if tp not in found]
            if missing:
                raise ProtocolError(f"the answer says nothing about {missing[0]}")
            refused = sorted((tp for tp in found if found[tp]), key=lambda tp: found[tp] == _SAME_FATE)
            if not refused:
                return 0, "", None
            self._check_coordinator(found[refused[0]])
            return found[refused[0]], refused[0].topic, None

        deadline = Deadline.after(self._settings.delivery_s)
        self._again(ask, deadline, lambda: MESSAGE_TIMED_OUT, _FIRST_PAUSE_S)

    def _ask_coordinator(
        self, transactional_id: str, deadline: Deadline, ask: Callable[[Address], T]
    ) -> T | Coordinator:
        """Ask the coordinator.  If there is none, return the answer about it, with its error."""
        if self._coordinator is None:
            found = self._connections.ask_any(FindTransactionCoordinator(transactional_id), deadline)
            if found.error:
                return found
            self._coordinator = found.address
        try:
            return ask(self._coordinator)
        except (OSError, ProtocolError):
            self._coordinator = None
            raise

    def _check_coordinator(self, code: int) -> None:
        """Look for the coordinator again if it has moved."""
        if error_name(code) in ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"):
            self._coordinator = None
