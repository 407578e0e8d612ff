"""Kafka's error codes, and what is done about each: one table for the group, its commits, and the readers.

Pure data.  Who raises what it says: `error_remedies` in the source process, and in executors `reading.range_reader`.  A
code that is not in it is tried again in the source process, and ends a reader's task.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, KafkaGroupError, MemberFencedError
from pyspark_kafka_group.wire.error_codes import error_code


class Meaning(Enum):
    """What an error of librdkafka means to a reader, and what comes of it."""

    END = "the partition ends here"
    OUT_OF_RANGE = "the position is not in the log, or no longer in the same log: the broker is asked what it holds"
    REFUSED = "credentials or rights are refused: an error if that lasts"
    GONE = "there is no such topic or partition: records are lost if that lasts"
    PASSING = "librdkafka tries again"
    NOT_OURS = "nothing: it is about the coordinator, which readers do not need"
    FINAL = "ends the task; Spark may try it again"  # a corrupt record, say, which librdkafka would pass over


class Consequence(Enum):
    """What is done in one place or another, besides trying again or ending the query."""

    REFUSED = "the commit is refused, and nothing of it is on its way any more"
    EVICTED = "the member is out of the group, so nothing is waited for any more"
    FENCED = "another run of the query may be committing: a new producer, and an error if that goes on"
    NOT_TRIED = "the commit was not even tried"
    UNCLEAR = "the commit may have been written all the same"
    OTHER_COORDINATOR = "the coordinator is looked for"
    NO_TOPIC = "the topic does not exist, and what concerns others goes on without it"
    OTHER_LEADER = "those that fetch by themselves look for the leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaErrorCode:
    """What is done about one error.

    Attributes
    ----------
    name : str
        As Kafka writes it; those that librdkafka has found itself begin with an underscore.
    librdkafka : str
        As librdkafka writes it, if that is something else.
    reader : Meaning
        What it means to a reader.
    ends : type of KafkaGroupError or None
        The error that ends the query, because no retry cures this one; None if it passes by itself, or if the group
        thread gets to know why not.
    problem, remedy : str
        The text of that error: what is wrong, and what to do.  ``{group_id!r}`` is the group, and
        ``{transactional_ids!r}`` what its transactional ids begin with.
    consequences : tuple of Consequence
        What else is done.
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
        problem="The cluster does not support what this query asks for",
        remedy="kafka.group.protocol=consumer needs Apache Kafka 4.0 or newer; use classic on older clusters.",
    )


def _passing(*names: str) -> tuple[KafkaErrorCode, ...]:
    """Return the rows of errors that pass by themselves everywhere."""
    return tuple(KafkaErrorCode(name=name, reader=Meaning.PASSING) for name in names)


def _leader(name: str, librdkafka: str = "") -> KafkaErrorCode:
    """Return the row of an error that says who leads, or that this is about to change.

    After these Java's client and librdkafka, too, look for the leader anew or ask again
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
    # What the group refuses for good.
    KafkaErrorCode(
        name="INVALID_GROUP_ID",
        ends=BrokerError,
        problem="Option 'kafka.group.id': the cluster does not take {group_id!r} for the name of a group",
        remedy="Choose another one.",
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
        remedy="Give each query an instance id of its own.",
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
    # What becomes of a commit.
    KafkaErrorCode(
        name="INVALID_TRANSACTION_TIMEOUT",
        ends=BrokerError,
        problem="The cluster does not allow the transactions of this source: its transaction.max.timeout.ms is too low",
        remedy="Raise it, or set commitMode=plain.",
    ),
    KafkaErrorCode(
        name="OFFSET_METADATA_TOO_LARGE",
        ends=BrokerError,
        problem="The cluster does not take what this source notes beside an offset",
        remedy="Raise offset.metadata.max.bytes on the brokers; Kafka's default of 4096 is enough.",
        consequences=(Consequence.REFUSED,),
    ),
    KafkaErrorCode(name="INVALID_COMMIT_OFFSET_SIZE", consequences=(Consequence.REFUSED,)),
    KafkaErrorCode(name="ILLEGAL_GENERATION", consequences=(Consequence.REFUSED,)),
    KafkaErrorCode(name="STALE_MEMBER_EPOCH", consequences=(Consequence.REFUSED,)),
    KafkaErrorCode(name="REBALANCE_IN_PROGRESS", consequences=(Consequence.REFUSED,)),
    KafkaErrorCode(name="UNKNOWN_MEMBER_ID", consequences=(Consequence.REFUSED, Consequence.EVICTED)),
    KafkaErrorCode(name="FENCED_MEMBER_EPOCH", consequences=(Consequence.REFUSED, Consequence.EVICTED)),
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
    # Topics and partitions that are not there.
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
    # Where a log ends.
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
    """Return what is done about an error, by Kafka's name of it or by librdkafka's."""
    return _ROWS.get(name, _UNKNOWN)


def has(name: str, consequence: Consequence) -> bool:
    """Return whether an error, by Kafka's name of it or by librdkafka's, has a consequence."""
    return consequence in row_of(name).consequences


def codes_with(consequence: Consequence) -> frozenset[int]:
    """Return the numbers of the errors of Kafka's that have a consequence."""
    return frozenset(error_code(row.name) for row in ERROR_CODES if consequence in row.consequences)
