"""Kafka's error codes and their consequences: one table for the group, its commits, and the readers.

Pure data.  `error_remedies` raises these errors in the source process, and `reading.range_reader` in executors.  The
source process retries after a code that is not in the table, and a reader's task fails with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, KafkaGroupError, MemberFencedError
from pyspark_kafka_group.wire.error_codes import error_code


class Meaning(Enum):
    """The meaning of an error for a reader, by the names of librdkafka."""

    END = "the partition ends here"
    OUT_OF_RANGE = "the log does not contain the position, or is another log: the reader asks the broker for its range"
    REFUSED = "the cluster refuses the credentials, or a right is missing: an error if that lasts"
    GONE = "the topic or partition does not exist: records are lost if that lasts"
    PASSING = "the client retries"
    NOT_OURS = "none: it concerns the coordinator, which readers do not need"
    FINAL = "ends the task; Spark may retry it"  # for example a corrupt record, which librdkafka would skip


class Consequence(Enum):
    """The consequences of an error, besides a retry or the end of the query."""

    REFUSED = "the commit was refused, and cannot arrive later"
    EVICTED = "the group has thrown the member out, so the member waits for nothing"
    FENCED = "another run of the query may be committing: the query makes a new producer, and fails if that lasts"
    NOT_TRIED = "the broker did not try the commit"
    UNCLEAR = "the broker may have written the commit"
    OTHER_COORDINATOR = "the query looks for the coordinator again"
    NO_TOPIC = "the topic does not exist; other topics continue without it"
    OTHER_LEADER = "direct readers look for the leader again"
    LASTING = "the query ends if its commits fail with it for 60 s"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaErrorCode:
    """One error and its consequences.

    Attributes
    ----------
    name : str
        Kafka's name of the error.  Errors that librdkafka itself reports begin with an underscore.
    librdkafka : str
        librdkafka's name of the error, if it is another one.
    reader : Meaning
        The meaning for a reader.
    ends : type of KafkaGroupError or None
        The error that ends the query, because no retry cures this one.  None if the error is temporary, or if the
        group thread learns the reason elsewhere.
    problem, remedy : str
        The text of that error: the problem, and what to do.  ``{group_id!r}`` is the group.
        ``{transactional_ids!r}`` is the prefix of its transactional ids.
    consequences : tuple of Consequence
        The other consequences.
    """

    name: str
    librdkafka: str = ""
    reader: Meaning = Meaning.FINAL
    ends: type[KafkaGroupError] | None = None
    problem: str = ""
    remedy: str = ""
    consequences: tuple[Consequence, ...] = ()


def _credentials(name: str) -> KafkaErrorCode:
    return KafkaErrorCode(
        name=name,
        reader=Meaning.REFUSED,
        ends=AuthenticationError,
        problem="The cluster refuses the credentials",
        remedy="Check kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password; with "
        "OAUTHBEARER kafka.sasl.oauthbearer.*, with GSSAPI kafka.sasl.kerberos.*.",
    )


def _no_transactions(name: str, reader: Meaning = Meaning.FINAL) -> KafkaErrorCode:
    return KafkaErrorCode(
        name=name,
        reader=reader,
        ends=AuthenticationError,
        problem="The user of this query may not commit in a transaction",
        remedy="Grant it WRITE and DESCRIBE on transactional ids that begin with {transactional_ids!r}, or set "
        "commitMode=plain.",
    )


def _other_members(name: str) -> KafkaErrorCode:
    return KafkaErrorCode(
        name=name,
        ends=BrokerError,
        problem="The group {group_id!r} refuses this member: its other members use another protocol or assignor",
        remedy="Give all members the same kafka.group.protocol, and cooperative-sticky under the classic protocol, or "
        "choose another kafka.group.id.",
    )


def _old_cluster(name: str) -> KafkaErrorCode:
    return KafkaErrorCode(
        name=name,
        ends=BrokerError,
        problem="The cluster does not support a request of this query",
        remedy="kafka.group.protocol=consumer needs Apache Kafka 4.0 or newer; use classic on older clusters.",
    )


def _passing(*names: str) -> tuple[KafkaErrorCode, ...]:
    """Return the rows of errors that are temporary everywhere."""
    return tuple(KafkaErrorCode(name=name, reader=Meaning.PASSING) for name in names)


def _leader(name: str, librdkafka: str = "") -> KafkaErrorCode:
    """Return the row of an error about the leader of a partition, or about a change of the leader.

    Java's client and librdkafka also look for the leader again after these errors, or retry
    (``FetchCollector.handleInitializeErrors``, ``rdkafka_fetcher.c``).
    """
    return KafkaErrorCode(
        name=name, librdkafka=librdkafka, reader=Meaning.PASSING, consequences=(Consequence.OTHER_LEADER,)
    )


ERROR_CODES: tuple[KafkaErrorCode, ...] = (
    # Credentials and rights.
    _credentials("_AUTHENTICATION"),
    _credentials("SASL_AUTHENTICATION_FAILED"),
    KafkaErrorCode(name="_SSL", reader=Meaning.REFUSED),
    KafkaErrorCode(
        name="GROUP_AUTHORIZATION_FAILED",
        reader=Meaning.NOT_OURS,
        ends=AuthenticationError,
        problem="Option 'kafka.group.id': the user of this query may not use the group {group_id!r}",
        remedy="Grant it READ on that group.",
        consequences=(Consequence.REFUSED,),
    ),
    KafkaErrorCode(
        name="TOPIC_AUTHORIZATION_FAILED",
        reader=Meaning.REFUSED,
        ends=AuthenticationError,
        problem="The user of this query may not read a topic",
        remedy="Grant it READ and DESCRIBE on the topic.",
        consequences=(Consequence.REFUSED,),
    ),
    _no_transactions("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    _no_transactions("CLUSTER_AUTHORIZATION_FAILED", Meaning.REFUSED),
    # Permanent refusals of the group.
    KafkaErrorCode(
        name="INVALID_GROUP_ID",
        ends=BrokerError,
        problem="Option 'kafka.group.id': the cluster does not accept {group_id!r} as the name of a group",
        remedy="Choose another name.",
    ),
    KafkaErrorCode(
        name="GROUP_MAX_SIZE_REACHED",
        ends=BrokerError,
        problem="The group {group_id!r} has as many members as the cluster allows",
        remedy="Start fewer queries, or raise group.max.size on the brokers.",
    ),
    _other_members("INCONSISTENT_GROUP_PROTOCOL"),
    _other_members("UNSUPPORTED_ASSIGNOR"),
    _old_cluster("UNSUPPORTED_VERSION"),
    _old_cluster("_UNSUPPORTED_FEATURE"),
    KafkaErrorCode(
        name="FENCED_INSTANCE_ID",
        ends=MemberFencedError,
        problem="Another process of group {group_id!r} uses the same kafka.group.instance.id",
        remedy="Give each query its own instance id.",
        consequences=(Consequence.REFUSED, Consequence.EVICTED),
    ),
    KafkaErrorCode(
        name="UNRELEASED_INSTANCE_ID",
        ends=MemberFencedError,
        problem="The group {group_id!r} has not released the kafka.group.instance.id of this query. Either a former "
        "process of the query has crashed and its session has not ended, or another process that runs uses this id",
        remedy="After a crash, start the query again with the same id when the group's session timeout is over. If "
        "another process runs with this id, stop it.",
    ),
    # Commits.
    KafkaErrorCode(
        name="INVALID_TRANSACTION_TIMEOUT",
        ends=BrokerError,
        problem="The cluster does not allow the transactions of this source: its transaction.max.timeout.ms is too low",
        remedy="Raise it, or set commitMode=plain.",
    ),
    KafkaErrorCode(
        name="OFFSET_METADATA_TOO_LARGE",
        ends=BrokerError,
        problem="The cluster refuses the metadata that this source stores with each offset, because it is too large",
        remedy="Raise offset.metadata.max.bytes on the brokers; Kafka's default of 4096 is enough.",
        consequences=(Consequence.REFUSED,),
    ),
    KafkaErrorCode(name="INVALID_COMMIT_OFFSET_SIZE", consequences=(Consequence.REFUSED,)),
    KafkaErrorCode(name="ILLEGAL_GENERATION", consequences=(Consequence.REFUSED,)),
    KafkaErrorCode(name="STALE_MEMBER_EPOCH", consequences=(Consequence.REFUSED,)),
    KafkaErrorCode(name="REBALANCE_IN_PROGRESS", consequences=(Consequence.REFUSED,)),
    KafkaErrorCode(name="UNKNOWN_MEMBER_ID", consequences=(Consequence.REFUSED, Consequence.EVICTED)),
    KafkaErrorCode(name="FENCED_MEMBER_EPOCH", consequences=(Consequence.REFUSED, Consequence.EVICTED)),
    *(
        KafkaErrorCode(name=name, consequences=(Consequence.LASTING,))
        for name in ("_BAD_MSG", "_CONFLICT", "_INVALID_ARG", "_INVALID_TYPE", "_NOT_IMPLEMENTED", "_STATE")
    ),
    KafkaErrorCode(name="_FENCED", consequences=(Consequence.FENCED,)),
    KafkaErrorCode(name="PRODUCER_FENCED", consequences=(Consequence.FENCED,)),
    KafkaErrorCode(name="INVALID_PRODUCER_EPOCH", consequences=(Consequence.FENCED,)),
    # The coordinator.
    KafkaErrorCode(
        name="NOT_COORDINATOR",
        reader=Meaning.NOT_OURS,
        consequences=(Consequence.NOT_TRIED, Consequence.OTHER_COORDINATOR),
    ),
    KafkaErrorCode(
        name="COORDINATOR_LOAD_IN_PROGRESS",
        reader=Meaning.NOT_OURS,
        consequences=(Consequence.NOT_TRIED, Consequence.OTHER_COORDINATOR),
    ),
    KafkaErrorCode(
        name="COORDINATOR_NOT_AVAILABLE",
        reader=Meaning.NOT_OURS,
        consequences=(Consequence.UNCLEAR, Consequence.OTHER_COORDINATOR),
    ),
    KafkaErrorCode(name="_WAIT_COORD", reader=Meaning.NOT_OURS),
    # Topics and partitions that do not exist.
    KafkaErrorCode(
        name="UNKNOWN_TOPIC_OR_PARTITION",
        librdkafka="UNKNOWN_TOPIC_OR_PART",
        reader=Meaning.GONE,
        consequences=(Consequence.NO_TOPIC, Consequence.OTHER_LEADER),
    ),
    KafkaErrorCode(name="UNKNOWN_TOPIC_ID", reader=Meaning.GONE, consequences=(Consequence.NO_TOPIC,)),
    KafkaErrorCode(name="INVALID_TOPIC_EXCEPTION", librdkafka="TOPIC_EXCEPTION", consequences=(Consequence.NO_TOPIC,)),
    KafkaErrorCode(name="_UNKNOWN_PARTITION", reader=Meaning.GONE),
    KafkaErrorCode(name="_UNKNOWN_TOPIC", reader=Meaning.GONE),
    # The ends of logs.
    KafkaErrorCode(name="_PARTITION_EOF", reader=Meaning.END),
    KafkaErrorCode(name="OFFSET_OUT_OF_RANGE", reader=Meaning.OUT_OF_RANGE),
    KafkaErrorCode(name="_AUTO_OFFSET_RESET", reader=Meaning.OUT_OF_RANGE),
    KafkaErrorCode(name="_LOG_TRUNCATION", reader=Meaning.OUT_OF_RANGE),
    # Leaders.
    _leader("LEADER_NOT_AVAILABLE"),
    _leader("NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_FOR_PARTITION"),
    _leader("REPLICA_NOT_AVAILABLE"),
    _leader("KAFKA_STORAGE_ERROR"),
    _leader("FENCED_LEADER_EPOCH"),
    _leader("UNKNOWN_LEADER_EPOCH"),
    _leader("OFFSET_NOT_AVAILABLE"),
    # The network, and brokers that are busy.
    KafkaErrorCode(
        name="UNKNOWN_SERVER_ERROR",
        librdkafka="UNKNOWN",
        reader=Meaning.PASSING,
        consequences=(Consequence.UNCLEAR,),
    ),
    KafkaErrorCode(name="REQUEST_TIMED_OUT", reader=Meaning.PASSING, consequences=(Consequence.UNCLEAR,)),
    *_passing("BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "THROTTLING_QUOTA_EXCEEDED"),
    *_passing("_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT", "_WAIT_CACHE"),
)

_ROWS = {name: row for row in ERROR_CODES for name in (row.name, row.librdkafka) if name}
_UNKNOWN = KafkaErrorCode(name="")


def row_of(name: str) -> KafkaErrorCode:
    """Return the row of an error, by Kafka's name or by librdkafka's."""
    return _ROWS.get(name, _UNKNOWN)


def has(name: str, consequence: Consequence) -> bool:
    """Return whether an error, by Kafka's name or by librdkafka's, has a consequence."""
    return consequence in row_of(name).consequences


def codes_with(consequence: Consequence) -> frozenset[int]:
    """Return the numbers of Kafka's errors that have a consequence."""
    return frozenset(error_code(row.name) for row in ERROR_CODES if consequence in row.consequences)
