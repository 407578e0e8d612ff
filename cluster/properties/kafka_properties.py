"""Kafka's client properties as this source uses them: one table, from which refusals, defaults and docs come.

A property without a row goes to the member and to the readers as the user has written it.  librdkafka refuses unknown
properties, and own connections ignore them.  A client's module adds the rest, its name for example.  Nothing here
depends on what users have set; `client_config` puts the two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum


class ClientKind(Enum):
    """The clients of librdkafka, as the docs call them."""

    MEMBER = "member"  # of the group; never fetches
    READER = "readers"  # in executors
    PRODUCER = "producer"  # commits in transactions
    OFFSETS = "offsets"  # asks for offsets, and never joins
    ADMIN = "admin"  # describes topics and groups


EVERY_CLIENT = frozenset(ClientKind)


class OwnConnections(Enum):
    """Meaning of a property for the source's own connections, which read, list log ends, and ask the cluster."""

    USED = "they do what it says"
    IGNORED = "it tunes librdkafka, or says nothing to them"
    NOT_SUPPORTED = "they cannot do what it says, so users cannot set it"


_UNKNOWN = frozenset({ClientKind.MEMBER, ClientKind.READER})
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
        Values that users may set, because they say what the source does anyway.
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
    applies_to : frozenset of ClientKind or None
        Which clients get what the user sets; None if it is as with the family, or as with unknown properties.
    default : str or None
        What holds if the user does not set it; None if librdkafka decides.
    sent_to : frozenset of ClientKind
        Which clients get `default` from the source.  It is
        librdkafka's own default for the others, or a value of the source.
    forced : mapping of ClientKind to str
        Values that clients get, whatever the user sets.
    another_name_of : str
        The property of which this is librdkafka's other name; clients are told that one.
    own_connections : OwnConnections or None
        What it is to the source's own connections.  None if it is as with the family, and `IGNORED` without one.
    values : tuple of str
        The values it may have; empty if there is no such list.
    unit : str
        Of what it must be a whole number, because this source reckons with it; empty if it need not.
    classic_only : bool
        Whether it exists in the classic group protocol only.
    refusal : Refusal or None
        Why users cannot set it.
    default_text : str
        For the docs, where `default` cannot say it.
    doc : str
        What users should know of it.
    """

    key: str
    applies_to: frozenset[ClientKind] | None = None
    default: str | None = None
    sent_to: frozenset[ClientKind] = frozenset()
    forced: Mapping[ClientKind, str] = field(default_factory=dict)
    another_name_of: str = ""
    own_connections: OwnConnections | None = None
    values: tuple[str, ...] = ()
    unit: str = ""
    classic_only: bool = False
    refusal: Refusal | None = None
    default_text: str = ""
    doc: str = ""


_USED, _IGNORED, _NOT_SUPPORTED = OwnConnections.USED, OwnConnections.IGNORED, OwnConnections.NOT_SUPPORTED


def _connection(own_connections: OwnConnections, *keys: str, instead: str = "Remove it.") -> tuple[KafkaProperty, ...]:
    """Return the rows of properties that any client needs to reach the cluster."""
    refused = own_connections is _NOT_SUPPORTED
    refusal = Refusal(why="the source's own connections cannot do what it says.", instead=instead) if refused else None
    return tuple(
        KafkaProperty(key=key, applies_to=EVERY_CLIENT, own_connections=own_connections, refusal=refusal)
        for key in keys
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
        applies_to=_MEMBER,
        default="classic",
        sent_to=_MEMBER,
        values=("classic", "consumer"),
        doc="`consumer` is the protocol of KIP-848, for clusters from Kafka 4.0 on: partitions move without a barrier "
        "for the others. All members of a group should use the same.",
    ),
    KafkaProperty(
        key="client.id",
        own_connections=_USED,
        default="kafka-group",
        doc="The beginning of the CLIENT-ID that Kafka's tools show; the first 8 characters of the query's id follow.",
    ),
    KafkaProperty(
        key="group.instance.id",
        applies_to=_MEMBER,  # two clients of one id would fence each other
        doc="Static membership: a query that restarts within the session timeout keeps its partitions. One id per "
        "query. See [static-membership.md](static-membership.md).",
    ),
    KafkaProperty(
        key="isolation.level",
        own_connections=_USED,
        default="read_committed",
        # The end of a range comes from the planner, under the same isolation level.
        sent_to=_READER,
        # Whatever the readers use: the group's committed offsets are always read with require_stable.
        forced={ClientKind.MEMBER: "read_committed"},
        values=("read_committed", "read_uncommitted"),
        doc="Spark's own source reads `read_uncommitted` unless told otherwise.",
    ),
    KafkaProperty(
        key="session.timeout.ms",
        applies_to=_MEMBER,
        default="45000",  # of librdkafka, of the Java client, and of brokers for the consumer protocol
        unit="milliseconds",
        classic_only=True,
        doc="How long the group keeps the partitions of a member that died. Classic protocol only; under `consumer` "
        "the broker decides.",
    ),
    KafkaProperty(
        key="heartbeat.interval.ms",
        applies_to=_MEMBER,
        # Members learn of a rebalance with their next heartbeat, so this bounds how fast a partition can move: Kafka's
        # default of 3 s would make hand-over take seconds.  A hundred members with 250 ms took 22 % of a core more from
        # an idle coordinator (docs/performance.md, "Large groups"); few groups are so large, and those can say 3000.
        default="250",
        unit="milliseconds",
        classic_only=True,
        doc="How soon members learn of a rebalance; the default is at most a third of the session timeout. With some "
        "hundred members, 3000 spares their coordinator. Classic protocol only.",
    ),
    KafkaProperty(
        key="max.poll.interval.ms",
        applies_to=_MEMBER,
        default="300000",  # of librdkafka and of the Java client
        unit="milliseconds",
        doc="How long the group waits at most for a member that is handing over.",
    ),
    KafkaProperty(
        key="topic.metadata.refresh.interval.ms",
        own_connections=_IGNORED,
        default="30000",  # librdkafka's own default is 5 minutes
        sent_to=frozenset({ClientKind.MEMBER}),
        doc="How soon new topics are found that subscribePattern matches, and, under the classic protocol, partitions "
        "that are added to a topic; under `consumer` the broker finds those.",
    ),
    KafkaProperty(
        key="metadata.max.age.ms",
        own_connections=_IGNORED,
        unit="milliseconds",
        default="30000",
        doc="The Java client's name for the same, for queries that come from Spark's own source: followed if it is "
        "lower, down to 1000.",
    ),
    KafkaProperty(
        key="receive.message.max.bytes",
        own_connections=_USED,
        unit="bytes",
        default="100000000",  # of librdkafka.  Kafka's default of message.max.bytes is a hundredth of it
        doc="How large a record batch may be, as it is sent and once it is decompressed. A larger one is an error. "
        "Executors need twice as much memory.",
    ),
    KafkaProperty(
        key="fetch.wait.max.ms",
        own_connections=_USED,
        unit="milliseconds",
        default_text="as it pays",
        doc="How long a broker may look for records that it does not have at hand. With tiered storage before Kafka "
        "3.8, set it to what that storage takes, 1000 say; ranges that end in control records then wait so long.",
    ),
    KafkaProperty(
        key="client.rack",
        own_connections=_USED,
        applies_to=EVERY_CLIENT,
        doc="Where the executors are, an availability zone say: records are read from a replica there, which costs no "
        "traffic between zones, if the brokers have replica.selector.class=org.apache.kafka.common.replica."
        "RackAwareReplicaSelector (KIP-392, Kafka 2.3). A replica that stalls or breaks off is left for the leader, "
        "for 5 minutes. One value for all executors of the query.",
    ),
    KafkaProperty(key="group.id", own_connections=_IGNORED),  # the readers have one of their own instead
    # What is of no use to a reader that fetches by itself.
    *(KafkaProperty(key=key, own_connections=_IGNORED) for key in ("request.timeout.ms", "statistics.interval.ms")),
    # What only a member has a use for, and nobody asks about.
    KafkaProperty(key="auto.commit.enable", applies_to=_MEMBER),  # librdkafka's older name of enable.auto.commit
    KafkaProperty(key="group.protocol.type", applies_to=_MEMBER),
    KafkaProperty(key="group.remote.assignor", applies_to=_MEMBER),
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
    KafkaProperty(
        key="auto.commit.interval.ms", applies_to=_MEMBER, refusal=Refusal(why=_COMMITS, instead="Remove it.")
    ),
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
        applies_to=_MEMBER,
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
        # `rd_kafka_connect_any`), and a query starts two, one after the other.  With librdkafka's 100 each costs
        # 55 ms, with this 17.  After failures the pause doubles each time, up to reconnect.backoff.max.ms, as ever.
        default="20",
        sent_to=EVERY_CLIENT,
    ),
    KafkaProperty(
        key="enable.metrics.push",
        own_connections=_IGNORED,
        # Nobody collects the KIP-714 metrics of these clients; they would cost a subscription request for each.
        default="false",
        sent_to=_READER,
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
        own_connections=_USED,
        # As in Kafka's Java client, and so in Spark's own source; librdkafka leaves it off.  About 0.03 us per record.
        default="true",
        sent_to=_READER,
    ),
    KafkaProperty(
        key="fetch.queue.backoff.ms",
        own_connections=_IGNORED,
        # How long fetching rests once the queue is full.  librdkafka's 1000 leaves a fast reader idle for that long;
        # 0 would make its broker thread spin.
        default="10",
        sent_to=_READER,
    ),
    # Deliberate: no more than librdkafka's own default, and so told to nobody.  4 MB read no faster from a near broker,
    # but brought the first record of a range in 45 ms instead of 10, and fetched more behind the end of a short range
    # for nothing.  Where the round trip exceeds some 10 ms, raising it pays.
    KafkaProperty(key="fetch.message.max.bytes", own_connections=_USED, unit="bytes", default=str(1024 * 1024)),
    # Bounds of what is fetched ahead, whichever is reached first.  At some 0.7 million records/s and 70 MB/s of one
    # reader they cover 0.15 s, ample for fetch.queue.backoff.ms; an executor holds this once per running task.
    KafkaProperty(
        key="queued.max.messages.kbytes",
        own_connections=_USED,
        unit="kilobytes",
        default=str(32 * 1024),
        sent_to=_READER,
    ),
    KafkaProperty(key="queued.min.messages", own_connections=_IGNORED, default="100000", sent_to=_READER),
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
    *_connection(
        _USED,
        "bootstrap.servers",
        "broker.address.family",
        "client.dns.lookup",
        "security.protocol",
        "enable.ssl.certificate.verification",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "sasl.kerberos.keytab",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "sasl.oauthbearer.assertion.*",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.metadata.authentication.type",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "https.ca.location",
        "https.ca.pem",
    ),
    *_connection(_IGNORED, "sasl.kerberos.kinit.cmd", "sasl.oauthbearer.sub.claim.name"),
    *_connection(_IGNORED, "ssl.ca.certificate.stores"),  # of Windows
    KafkaProperty(key="metadata.broker.list", another_name_of="bootstrap.servers"),
    KafkaProperty(key="sasl.mechanisms", another_name_of="sasl.mechanism"),
    KafkaProperty(key="max.partition.fetch.bytes", another_name_of="fetch.message.max.bytes"),
    *(
        KafkaProperty(key=f"sasl.oauthbearer.client.credentials.{name}", another_name_of=f"sasl.oauthbearer.{name}")
        for name in ("client.id", "client.secret")
    ),
    KafkaProperty(
        key="topic.blacklist",
        refusal=Refusal(
            why="only the member would follow it.", instead="Exclude topics in subscribePattern, with (?!...)."
        ),
    ),
    *_connection(
        _NOT_SUPPORTED,
        "ssl.curves.list",
        "ssl.sigalgs.list",
        "ssl.engine.*",
        "ssl.providers",
        instead="Remove it; OpenSSL's own configuration (openssl.cnf) can say the same.",
    ),
    *_connection(_NOT_SUPPORTED, "test.mock.*", instead="Remove it, and name brokers with kafka.bootstrap.servers."),
    # Whoever adds a property like these means to change how the source connects, or has misspelled one.
    *_connection(
        _NOT_SUPPORTED,
        *("enable.sasl.*", "enable.ssl.*", "https.*", "sasl.*", "security.*", "ssl.*"),
        instead="Remove it, or correct its name.",
    ),
    # These tune how librdkafka waits, repeats, buffers and logs.  Connections of our own do none of that.  Deliberate:
    # socket buffers are among them; the system sizes those of our own.
    *_connection(_IGNORED, "debug", "api.version.*", "broker.*", "connections.*", "metadata.*", "reconnect.*"),
    *_connection(_IGNORED, "retry.backoff.*", "socket.*", "topic.metadata.*", "allow.auto.*"),
)

_ROWS = {row.key: row for row in PROPERTIES if not row.key.endswith("*")}
_FAMILIES = {row.key.removesuffix("*"): row for row in PROPERTIES if row.key.endswith("*")}

DEFAULTS: Mapping[ClientKind, Mapping[str, str]] = {
    client: {row.key: row.default for row in PROPERTIES if client in row.sent_to and row.default is not None}
    for client in ClientKind
}
"""Values that each client gets if the user sets none."""

FORCED: Mapping[ClientKind, Mapping[str, str]] = {
    client: {row.key: row.forced[client] for row in PROPERTIES if client in row.forced} for client in ClientKind
}
"""Values that each client gets, whatever the user sets."""

OTHER_NAMES: Mapping[str, str] = {row.key: row.another_name_of for row in PROPERTIES if row.another_name_of}
"""Properties that librdkafka knows by two names."""

CLASSIC_ONLY = frozenset(row.key for row in PROPERTIES if row.classic_only)
"""What librdkafka refuses under the consumer protocol, where the broker decides."""


def default_of(key: str) -> str:
    """Return what holds for a property of the table that the user does not set."""
    value = _ROWS[key].default
    if value is None:
        raise ValueError(f"{key} has no default")
    return value


def applies_to(key: str) -> frozenset[ClientKind]:
    """Return which clients get the property ``key`` as the user sets it."""
    return next((row.applies_to for row in _rows(key) if row.applies_to is not None), _UNKNOWN)


def own_connections(key: str) -> OwnConnections:
    """Return what the property ``key`` is to the source's own connections."""
    return next((row.own_connections for row in _rows(key) if row.own_connections is not None), _IGNORED)


def refusal_of(key: str) -> Refusal | None:
    """Return why users cannot set the property ``key``; None if they can."""
    return next((row.refusal for row in _rows(key)), None)


def is_in_table(key: str) -> bool:
    """Return whether ``key`` is a property of the table, or of one of its families."""
    return any(True for _ in _rows(key))


def _rows(key: str) -> Iterator[KafkaProperty]:
    """Yield the row of a property and then those of its families, the nearest first."""
    if key in _ROWS:
        yield _ROWS[key]
    for prefix in sorted(_FAMILIES, key=len, reverse=True):
        if key.startswith(prefix):
            yield _FAMILIES[prefix]


DECIDING = frozenset(key for key in _ROWS if applies_to(key) != EVERY_CLIENT)
"""What this source itself decides by, or gives some of the clients only."""
