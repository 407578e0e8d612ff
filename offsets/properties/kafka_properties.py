"""Kafka's client properties as this source uses them: one table, from which refusals, defaults and docs come.

A property that is not in it goes, as the user has written it, to the member and to the readers; librdkafka refuses what
it does not know.  What cannot be said in a table, a client's name say, its module adds.  Nothing here depends on what
users have set; `client_config` puts the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pyspark_kafka_group.wire.connection_security import PROPERTIES as SECURITY_PROPERTIES


class ClientKind(Enum):
    """The clients of librdkafka, as the docs call them."""

    MEMBER = "member"  # of the group; never fetches
    READER = "readers"  # in executors
    PRODUCER = "producer"  # commits in transactions
    OFFSETS = "offsets"  # asks for offsets, and never joins
    ADMIN = "admin"  # describes topics and groups


EVERY_CLIENT = frozenset(ClientKind)


class OwnConnections(Enum):
    """What a property is to the connections of our own, over which the source reads and asks where logs end."""

    UNDERSTOOD = "they do what it says"
    IGNORED = "it tunes librdkafka, or says nothing to them"
    MATTERS = "only librdkafka can do what it says"


_UNLESS_TOLD = frozenset({ClientKind.MEMBER, ClientKind.READER})
_MEMBER = frozenset({ClientKind.MEMBER})
_READER = frozenset({ClientKind.READER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why users cannot set a property.

    Attributes
    ----------
    why, instead : str
        The reason, and what to do.
    allowed : tuple of str
        Values that are accepted all the same, because they say what the source does anyway.
    """

    why: str
    instead: str
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaProperty:
    """One property, or a family of them.

    Attributes
    ----------
    key : str
        Its name without ``kafka.``; ``sasl.*`` is the family of all that begin with ``sasl.``.
    reaches : frozenset of ClientKind or None
        Which clients get what the user sets; None if it is as with the family, or as with unknown properties.
    usual : str or None
        What holds if the user does not set it; None if that is librdkafka's business.
    given_to : frozenset of ClientKind
        Which clients are told `usual`.  For others it is
        what librdkafka takes anyway, or what this source reckons with.
    forced : mapping of ClientKind to str
        What clients are told, whatever the user sets.
    own_connections : OwnConnections or None
        Whether connections of our own are used where a client is given it.  None if it is as with the family, and
        `MATTERS` without one.  One attribute for reading, log ends and what decides a start: what is detected must not
        depend on which of them meets the property.
    as_ours : tuple of str
        Values of a property that matters which say what connections of our own do anyway.
    values : tuple of str
        The values it may have; empty if there is no such list.
    milliseconds : bool
        Whether it must be a whole number of milliseconds, because this source reckons with it.
    classic_only : bool
        Whether it exists in the classic group protocol only.
    refusal : Refusal or None
        Why users cannot set it.
    usual_text : str
        For the docs, where `usual` cannot say it.
    doc : str
        What users should know of it.
    """

    key: str
    reaches: frozenset[ClientKind] | None = None
    usual: str | None = None
    given_to: frozenset[ClientKind] = frozenset()
    forced: Mapping[ClientKind, str] = field(default_factory=dict)
    own_connections: OwnConnections | None = None
    as_ours: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    milliseconds: bool = False
    classic_only: bool = False
    refusal: Refusal | None = None
    usual_text: str = ""
    doc: str = ""


_UNDERSTOOD, _IGNORED, _MATTERS = OwnConnections.UNDERSTOOD, OwnConnections.IGNORED, OwnConnections.MATTERS


def _connection(
    own_connections: OwnConnections, *keys: str, as_ours: tuple[str, ...] = ()
) -> tuple[KafkaProperty, ...]:
    """Return the rows of properties that any client needs to reach the cluster."""
    return tuple(
        KafkaProperty(key=key, reaches=EVERY_CLIENT, own_connections=own_connections, as_ours=as_ours) for key in keys
    )


_COMMITS = "this source commits offsets itself, after Spark has finished a batch."
_BYTES = "key and value always arrive as binary columns."
_JAVA = "it belongs to the Java client, and this source uses librdkafka."


def transactional_id(group_id: str, query_id: str) -> str:
    """Return the transactional id under which a query commits: its own, so that a restart fences the old run."""
    return f"kafka-group-{group_id}-{query_id}"


PROPERTIES: tuple[KafkaProperty, ...] = (
    KafkaProperty(
        key="group.protocol",
        reaches=_MEMBER,
        usual="classic",
        given_to=_MEMBER,
        values=("classic", "consumer"),
        doc="`consumer` is the protocol of KIP-848, for clusters from Kafka 4.0 on: partitions move without a barrier "
        "for the others. All members of a group should use the same.",
    ),
    KafkaProperty(
        key="client.id",
        own_connections=_UNDERSTOOD,
        usual="kafka-group",
        doc="The beginning of the CLIENT-ID that Kafka's tools show; the first 8 characters of the query's id follow.",
    ),
    KafkaProperty(
        key="group.instance.id",
        reaches=_MEMBER,  # two clients of one id would fence each other
        doc="Static membership: a query that restarts within the session timeout keeps its partitions. One id per "
        "query. See [static-membership.md](static-membership.md).",
    ),
    KafkaProperty(
        key="isolation.level",
        own_connections=_UNDERSTOOD,
        usual="read_committed",
        # The end of a range comes from the planner, under the same isolation level.
        given_to=_READER,
        # Whatever the readers use: the group's committed offsets are always read with require_stable.
        forced={ClientKind.MEMBER: "read_committed"},
        values=("read_committed", "read_uncommitted"),
        doc="Spark's own source reads `read_uncommitted` unless told otherwise.",
    ),
    KafkaProperty(
        key="session.timeout.ms",
        reaches=_MEMBER,
        usual="45000",  # of librdkafka, of the Java client, and of brokers for the consumer protocol
        milliseconds=True,
        classic_only=True,
        doc="How long the group keeps the partitions of a member that died. Classic protocol only; under `consumer` "
        "the broker decides.",
    ),
    KafkaProperty(
        key="heartbeat.interval.ms",
        reaches=_MEMBER,
        # Members learn of a rebalance with their next heartbeat, so this bounds how fast a partition can move: Kafka's
        # default of 3 s would make hand-over take seconds.  A hundred members with 250 ms took 15 % of a core more from
        # an idle coordinator (docs/performance.md, "Large groups"); few groups are so large, and those can say 3000.
        usual="250",
        milliseconds=True,
        classic_only=True,
        doc="How soon members learn of a rebalance; the default is at most a third of the session timeout. With some "
        "hundred members, 3000 spares their coordinator. Classic protocol only.",
    ),
    KafkaProperty(
        key="max.poll.interval.ms",
        reaches=_MEMBER,
        usual="300000",  # of librdkafka and of the Java client
        milliseconds=True,
        doc="How long the group waits at most for a member that is handing over.",
    ),
    KafkaProperty(
        key="topic.metadata.refresh.interval.ms",
        own_connections=_IGNORED,
        usual="30000",  # librdkafka's own default is 5 minutes
        given_to=frozenset({ClientKind.MEMBER}),
        doc="How soon new topics are found that subscribePattern matches, and, under the classic protocol, partitions "
        "that are added to a topic; under `consumer` the broker finds those.",
    ),
    KafkaProperty(
        key="metadata.max.age.ms",
        own_connections=_IGNORED,
        milliseconds=True,
        usual="30000",
        doc="The Java client's name for the same, for queries that come from Spark's own source: followed if it is "
        "lower, down to 1000.",
    ),
    KafkaProperty(
        key="receive.message.max.bytes",
        own_connections=_UNDERSTOOD,
        usual="100000000",  # of librdkafka.  Kafka's default of message.max.bytes is a hundredth of it
        doc="How large a record batch may be, as it is sent and once it is decompressed. A larger one is an error. "
        "Executors need twice as much memory.",
    ),
    KafkaProperty(
        key="fetch.wait.max.ms",
        own_connections=_UNDERSTOOD,
        usual_text="as it pays",
        doc="How long a broker may look for records that it does not have at hand. With tiered storage before Kafka "
        "3.8, and where readers use librdkafka (Kerberos), set it to what that storage takes, 1000 "
        "say; ranges that end in control records then wait so long.",
    ),
    KafkaProperty(
        key="client.rack",
        own_connections=_UNDERSTOOD,
        reaches=EVERY_CLIENT,
        doc="Where the executors are, an availability zone say: records are read from a replica there, which costs no "
        "traffic between zones, if the brokers have replica.selector.class=org.apache.kafka.common.replica."
        "RackAwareReplicaSelector (KIP-392, Kafka 2.3). A replica that stalls or breaks off is left for the leader, "
        "for 5 minutes. One value for all executors of the query.",
    ),
    KafkaProperty(key="group.id", own_connections=_IGNORED),  # the readers have one of their own instead
    # What is of no use to a reader that fetches by itself.
    *(KafkaProperty(key=key, own_connections=_IGNORED) for key in ("request.timeout.ms", "statistics.interval.ms")),
    # What only a member has a use for, and nobody asks about.
    KafkaProperty(key="auto.commit.enable", reaches=_MEMBER),  # librdkafka's older name of enable.auto.commit
    KafkaProperty(key="group.protocol.type", reaches=_MEMBER),
    KafkaProperty(key="group.remote.assignor", reaches=_MEMBER),
    # What users cannot set.
    KafkaProperty(
        key="enable.auto.commit",
        own_connections=_IGNORED,
        forced={ClientKind.MEMBER: "false", ClientKind.READER: "false", ClientKind.OFFSETS: "false"},
        refusal=Refusal(why=_COMMITS, instead="Remove it.", allowed=("false",)),
    ),
    KafkaProperty(
        key="enable.auto.offset.store",
        own_connections=_IGNORED,
        forced={ClientKind.MEMBER: "false", ClientKind.READER: "false"},
        refusal=Refusal(why=_COMMITS, instead="Remove it.", allowed=("false",)),
    ),
    KafkaProperty(key="auto.commit.interval.ms", reaches=_MEMBER, refusal=Refusal(why=_COMMITS, instead="Remove it.")),
    KafkaProperty(
        key="auto.offset.reset",
        own_connections=_IGNORED,
        # Any other value jumps over lost records in silence.
        forced={ClientKind.READER: "error", ClientKind.OFFSETS: "error"},
        refusal=Refusal(
            why="where to start is decided once, and never by a silent reset.",
            instead="Use startingOffsets, and failOnDataLoss for offsets that are gone.",
        ),
    ),
    KafkaProperty(
        key="partition.assignment.strategy",
        reaches=_MEMBER,
        forced={ClientKind.MEMBER: "cooperative-sticky"},
        classic_only=True,
        refusal=Refusal(
            why="only cooperative-sticky leaves the other partitions running while some move; eager assignors (range, "
            "roundrobin) take everything away from everybody.",
            instead="Remove it, and give all members of the group cooperative-sticky or kafka.group.protocol=consumer.",
            allowed=("cooperative-sticky",),
        ),
    ),
    KafkaProperty(
        key="enable.partition.eof",
        own_connections=_IGNORED,
        # Offsets at the end of a range may belong to no record; then only this event tells that the end is reached.
        forced={ClientKind.READER: "true"},
        refusal=Refusal(why="the readers set it themselves.", instead="Remove it.", allowed=("true",)),
    ),
    KafkaProperty(
        key="transactional.id",
        refusal=Refusal(
            why="the query commits under a transactional id of its own.",
            instead=f"Remove it; grant rights by the prefix {transactional_id('<group id>', '')!r}.",
        ),
    ),
    KafkaProperty(key="key.deserializer", refusal=Refusal(why=_BYTES, instead="Cast the column: CAST(key AS STRING).")),
    KafkaProperty(
        key="value.deserializer", refusal=Refusal(why=_BYTES, instead="Cast the column: CAST(value AS STRING).")
    ),
    KafkaProperty(
        key="interceptor.classes",
        refusal=Refusal(why="there is no Java consumer to intercept.", instead="Remove it."),
    ),
    *(
        KafkaProperty(key=key, refusal=Refusal(why=_JAVA, instead=instead))
        for key, instead in (
            ("max.poll.records", "Remove it; maxOffsetsPerTrigger limits a batch."),
            ("fetch.max.wait.ms", "Use kafka.fetch.wait.max.ms."),
            ("default.api.timeout.ms", "Remove it."),
            ("receive.buffer.bytes", "Remove it; the system sizes the buffers."),
            ("send.buffer.bytes", "Remove it; the system sizes the buffers."),
            ("exclude.internal.topics", "Remove it; Kafka's own topics match no pattern."),
            ("metric.reporters", "Remove it; see eventLog and the query's progress."),
        )
    ),
    # What this source sets.
    KafkaProperty(
        key="reconnect.backoff.ms",
        own_connections=_IGNORED,
        # A new client waits half of this before it can use its first connection (librdkafka 2.16,
        # `rd_kafka_connect_any`), and a query starts three, one after the other.  With librdkafka's 100 each costs
        # 55 ms, with this 17.  After failures the pause doubles each time, up to reconnect.backoff.max.ms, as ever.
        usual="20",
        given_to=EVERY_CLIENT,
    ),
    KafkaProperty(
        key="enable.metrics.push",
        own_connections=_IGNORED,
        # Nobody collects the KIP-714 metrics of these clients; they would cost a subscription request for each.
        usual="false",
        given_to=_READER,
        forced={ClientKind.MEMBER: "false", ClientKind.PRODUCER: "false", ClientKind.OFFSETS: "false"},
    ),
    KafkaProperty(
        key="allow.auto.create.topics",
        own_connections=_IGNORED,
        # Reading a deleted topic must not bring it back, empty.
        forced={ClientKind.READER: "false"},
    ),
    KafkaProperty(
        key="check.crcs",
        own_connections=_UNDERSTOOD,
        # As in Kafka's Java client, and so in Spark's own source; librdkafka leaves it off.  About 0.03 us per record.
        usual="true",
        given_to=_READER,
    ),
    KafkaProperty(
        key="fetch.queue.backoff.ms",
        own_connections=_IGNORED,
        # How long fetching rests once the queue is full.  librdkafka's 1000 leaves a fast reader idle for that long;
        # 0 would make its broker thread spin.
        usual="10",
        given_to=_READER,
    ),
    # Deliberate: no more than librdkafka's own default, and so told to nobody.  4 MB read no faster from a near broker,
    # but brought the first record of a range in 45 ms instead of 10, and fetched more behind the end of a short range
    # for nothing.  Where the round trip exceeds some 10 ms, raising it pays.
    KafkaProperty(key="fetch.message.max.bytes", own_connections=_UNDERSTOOD, usual=str(1024 * 1024)),
    # Bounds of what is fetched ahead, whichever is reached first.  At some 0.7 million records/s and 70 MB/s of one
    # reader they cover 0.15 s, ample for fetch.queue.backoff.ms; an executor holds this once per running task.
    KafkaProperty(
        key="queued.max.messages.kbytes", own_connections=_UNDERSTOOD, usual=str(32 * 1024), given_to=_READER
    ),
    KafkaProperty(key="queued.min.messages", own_connections=_IGNORED, usual="100000", given_to=_READER),
    KafkaProperty(
        key="log.connection.close",
        own_connections=_IGNORED,
        # The producer's log is all that tells of a connection that broke, see `committer`.
        forced={ClientKind.PRODUCER: "true"},
    ),
    KafkaProperty(
        key="log_level",
        own_connections=_IGNORED,
        # A broker that is down is told by the requests that fail; librdkafka would also print it, 20 times a second for
        # each connection.
        forced={ClientKind.OFFSETS: "0", ClientKind.ADMIN: "0"},
    ),
    # Passing consumer properties to a producer only makes it warn; so these are all that every client is given.
    *_connection(_UNDERSTOOD, "bootstrap.servers", *sorted(SECURITY_PROPERTIES)),
    *_connection(_MATTERS, "client.dns.lookup", as_ours=("use_all_dns_ips",)),
    *_connection(_MATTERS, "broker.address.family", as_ours=("any",)),
    *_connection(_MATTERS, "metadata.broker.list", "test.mock.*"),
    *_connection(_MATTERS, "sasl.*", "enable.sasl.*", "ssl.*", "enable.ssl.*", "https.*"),
    # These tune how librdkafka waits, repeats, buffers and logs.  Connections of our own do none of that.  Deliberate:
    # socket buffers are among them; the system sizes those of our own.
    *_connection(_IGNORED, "debug", "api.version.*", "broker.*", "connections.*", "metadata.*", "reconnect.*"),
    *_connection(_IGNORED, "retry.backoff.*", "socket.*", "topic.metadata.*", "allow.auto.*"),
)

_ROWS = {row.key: row for row in PROPERTIES if not row.key.endswith("*")}
_FAMILIES = {row.key.removesuffix("*"): row for row in PROPERTIES if row.key.endswith("*")}

DEFAULTS: Mapping[ClientKind, Mapping[str, str]] = {
    client: {row.key: row.usual for row in PROPERTIES if client in row.given_to and row.usual is not None}
    for client in ClientKind
}
"""What each client is told; what the user sets counts more."""

FORCED: Mapping[ClientKind, Mapping[str, str]] = {
    client: {row.key: row.forced[client] for row in PROPERTIES if client in row.forced} for client in ClientKind
}
"""What each client is told, whatever the user sets."""

CLASSIC_ONLY = frozenset(row.key for row in PROPERTIES if row.classic_only)
"""What librdkafka refuses under the consumer protocol, where the broker decides."""


def usual(key: str) -> str:
    """Return what holds for a property of the table that the user does not set."""
    value = _ROWS[key].usual
    if value is None:
        raise ValueError(f"nothing is usual for {key}")
    return value


def reaches(key: str) -> frozenset[ClientKind]:
    """Return which clients are given the property ``key`` as the user sets it."""
    row = _ROWS.get(key)
    if row is None or row.reaches is None:
        row = _family(key)
    return _UNLESS_TOLD if row is None or row.reaches is None else row.reaches


def own_connections(key: str, value: str) -> OwnConnections:
    """Return what the property ``key`` with this value is to connections of our own."""
    row, family = _ROWS.get(key), _family(key)
    for found in (row, family):
        if found is not None and found.own_connections is not None:
            same = value.strip().lower() in found.as_ours
            return OwnConnections.UNDERSTOOD if same else found.own_connections
    return OwnConnections.MATTERS


def is_in_table(key: str) -> bool:
    """Tell whether ``key`` is a property of the table, or of one of its families."""
    return key in _ROWS or _family(key) is not None


def _family(key: str) -> KafkaProperty | None:
    return next((row for prefix, row in _FAMILIES.items() if key.startswith(prefix)), None)


DECIDING = frozenset(key for key in _ROWS if reaches(key) != EVERY_CLIENT)
"""What this source itself decides by, or gives some of the clients only."""
