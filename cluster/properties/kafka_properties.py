"""Kafka's client properties as this source uses them: one table of refusals, defaults and docs.

A property without a row goes to the member and to the readers as the user has written it. librdkafka refuses unknown
properties, and own connections ignore them.  The module of each client adds the rest, for example its name.  This
table does not depend on what users have set; `client_config` combines the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class ClientKind(Enum):
    """The clients of librdkafka, as the docs call them."""

    MEMBER = "member"  # of the group; never fetches
    READER = "readers"  # in executors
    PRODUCER = "producer"  # commits in transactions


EVERY_CLIENT = frozenset(ClientKind)


class OwnConnections(Enum):
    """Meaning of a property for the source's own connections, which read, list log ends, and ask the cluster."""

    USED = "they follow it"
    IGNORED = "it tunes librdkafka, or does not concern them"
    NOT_SUPPORTED = "they do not support it, so users cannot set it"


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
        The name without ``kafka.``.  ``sasl.*`` is the family of all names that begin with ``sasl.``.
    applies_to : frozenset of ClientKind
        The clients that get the user's value.
    default : str or None
        The value if the user sets none; None if librdkafka decides.
    sent_to : frozenset of ClientKind
        The clients that get `default` from the source.  For the others it is librdkafka's own default, or a value of
        the source.
    forced : mapping of ClientKind to str
        Values that clients get, whatever the user sets.
    another_name_of : str
        The property of which this is librdkafka's other name.  Clients get that one.
    own_connections : OwnConnections
        The meaning for the source's own connections.
    values : tuple of str
        The possible values; empty if there is no such list.
    unit : str
        The unit, if the value must be a whole number because this source calculates with it.  Empty otherwise.
    least, most : int
        The range of that number, as librdkafka has it.
    classic_only : bool
        Whether it exists only in the classic group protocol.
    refusal : Refusal or None
        Why users cannot set it.  None if they can.
    default_text : str
        The default for the docs, if `default` cannot express it.
    doc : str
        The description for users.
    """

    key: str
    applies_to: frozenset[ClientKind] = _UNKNOWN
    default: str | None = None
    sent_to: frozenset[ClientKind] = frozenset()
    forced: Mapping[ClientKind, str] = field(default_factory=dict)
    another_name_of: str = ""
    own_connections: OwnConnections = OwnConnections.IGNORED
    values: tuple[str, ...] = ()
    unit: str = ""
    least: int = 0
    most: int = 0
    classic_only: bool = False
    refusal: Refusal | None = None
    default_text: str = ""
    doc: str = ""


_USED, _IGNORED, _NOT_SUPPORTED = OwnConnections.USED, OwnConnections.IGNORED, OwnConnections.NOT_SUPPORTED


def _connection(own_connections: OwnConnections, *keys: str, instead: str = "Remove it.") -> tuple[KafkaProperty, ...]:
    """Return the rows of properties that any client needs to reach the cluster."""
    refused = own_connections is _NOT_SUPPORTED
    refusal = Refusal(why="the source's own connections do not support it.", instead=instead) if refused else None
    return tuple(
        KafkaProperty(key=key, applies_to=EVERY_CLIENT, own_connections=own_connections, refusal=refusal)
        for key in keys
    )


_COMMITS = "this source commits offsets itself, after Spark has finished a batch."
_BYTES = "key and value always arrive as binary columns."
_JAVA = "it is a property of the Java client, and this source uses librdkafka."


def transactional_id(group_id: str, query_id: str) -> str:
    """Return the transactional id of a query's commits.  Each query has its own, so a restart fences the old run."""
    return f"kafka-group-{group_id}-{query_id}"


PROPERTIES: tuple[KafkaProperty, ...] = (
    KafkaProperty(
        key="group.protocol",
        applies_to=_MEMBER,
        default="classic",
        sent_to=_MEMBER,
        values=("classic", "consumer"),
        doc="`consumer` is the protocol of KIP-848, for clusters with Kafka 4.0 or newer: partitions move without a "
        "barrier for the others. Use the same for all members of a group. [Which one to choose]"
        "(tuning.md#which-group-protocol).",
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
        # Independent of the readers: the group's committed offsets are always read with require_stable.
        forced={ClientKind.MEMBER: "read_committed"},
        values=("read_committed", "read_uncommitted"),
        doc="Spark's own source reads `read_uncommitted` by default.",
    ),
    KafkaProperty(
        key="session.timeout.ms",
        applies_to=_MEMBER,
        default="45000",  # of librdkafka, of the Java client, and of brokers for the consumer protocol
        unit="milliseconds",
        least=1,
        most=3_600_000,
        classic_only=True,
        doc="How long the group keeps the partitions of a member that died. At most kafka.max.poll.interval.ms, and "
        "the default follows a lower one. Classic protocol only; under `consumer` the broker decides.",
    ),
    KafkaProperty(
        key="heartbeat.interval.ms",
        applies_to=_MEMBER,
        # Members learn of a rebalance with their next heartbeat, so this bounds how fast a partition can move: with
        # Kafka's default of 3 s, or 5 s under KIP-848, a hand-over would take seconds.  A hundred idle members take
        # 21 % of a core from their coordinator, and 16 % with 500 ms (benchmarks/README.md, "Large groups").
        default="250",
        unit="milliseconds",
        least=1,
        most=3_600_000,
        doc="How soon members learn of a rebalance. Under `classic` it must be below the session timeout, and the "
        "default is at most a third of it. Under `consumer` the brokers only decide how often a member must ask, every "
        "5 s by default, and this source asks more often. With some hundred members, 500 spares their coordinator.",
    ),
    KafkaProperty(
        key="max.poll.interval.ms",
        applies_to=_MEMBER,
        default="300000",  # of librdkafka and of the Java client
        unit="milliseconds",
        least=1,
        most=86_400_000,
        doc="The longest time that the group waits for a member that hands partitions over.",
    ),
    KafkaProperty(
        key="topic.metadata.refresh.interval.ms",
        applies_to=EVERY_CLIENT,
        unit="milliseconds",
        least=1,
        most=3_600_000,
        default="30000",  # librdkafka's own default is 5 minutes
        sent_to=frozenset({ClientKind.MEMBER}),
        doc="How soon the query finds new topics that match subscribePattern. Under the classic protocol, also how "
        "soon it finds new partitions of a topic. Under `consumer` the broker finds these.",
    ),
    KafkaProperty(
        key="metadata.max.age.ms",
        applies_to=EVERY_CLIENT,
        unit="milliseconds",
        least=1,
        most=86_400_000,
        default="30000",
        doc="The Java client's name for the same, for queries that come from Spark's own source. It counts if it is "
        "lower, down to 1000.",
    ),
    KafkaProperty(
        key="receive.message.max.bytes",
        applies_to=_READER,  # a member fetches nothing, and librdkafka would refuse small values
        own_connections=_USED,
        unit="bytes",
        least=1_000_512,  # librdkafka's default of message.max.bytes, and a margin that it demands
        most=2**31 - 1,
        default="100000000",  # of librdkafka.  Kafka's default of message.max.bytes is a hundredth of it
        doc="The largest size of a record batch, both as it is sent and after decompression. A larger one is an error, "
        "unless it is sent without compression and has at most 16 MB. Executors need twice as much memory.",
    ),
    KafkaProperty(
        key="fetch.wait.max.ms",
        own_connections=_USED,
        unit="milliseconds",
        least=0,
        most=300_000,
        default_text="20 to 4000",
        doc="How long a broker may look for records that it does not have at hand. With tiered storage before Kafka "
        "3.8, set it to the time that this storage takes, for example 1000. Ranges that end in control records then "
        "wait as long.",
    ),
    KafkaProperty(
        key="socket.timeout.ms",
        own_connections=_USED,
        applies_to=EVERY_CLIENT,
        unit="milliseconds",
        least=10,
        most=300_000,
        default="60000",  # of librdkafka
        doc="How long a reader waits for an answer of a broker at most. It waits 1 s at first, and twice as long after "
        "each timeout, until an answer comes in time. A fetch may take `kafka.fetch.wait.max.ms` longer. Other "
        "questions take 10 s at most, and those that plan a batch 8 s.",
    ),
    KafkaProperty(
        key="client.rack",
        own_connections=_USED,
        applies_to=EVERY_CLIENT,
        doc="The place of the executors, for example an availability zone. Readers then read from a replica there, "
        "without traffic between zones, if the brokers have replica.selector.class=org.apache.kafka.common.replica."
        "RackAwareReplicaSelector (KIP-392, Kafka 2.3). If a replica stalls or breaks the connection, they read from "
        "the leader for 5 minutes. One value for all executors of the query.",
    ),
    KafkaProperty(key="group.id"),  # the readers have another one
    # Properties without a use for direct readers.
    *(KafkaProperty(key=key) for key in ("log_level", "request.timeout.ms", "statistics.interval.ms")),
    # Properties that only a member uses.
    KafkaProperty(key="auto.commit.enable", applies_to=_MEMBER),  # librdkafka's older name of enable.auto.commit
    KafkaProperty(key="group.protocol.type", applies_to=_MEMBER),
    KafkaProperty(key="group.remote.assignor", applies_to=_MEMBER),
    # Properties that users cannot set.
    KafkaProperty(
        key="enable.auto.commit",
        forced={ClientKind.MEMBER: "false", ClientKind.READER: "false"},
        refusal=Refusal(why=_COMMITS, instead="Remove it.", allowed=("false",)),
    ),
    KafkaProperty(
        key="enable.auto.offset.store",
        forced={ClientKind.MEMBER: "false", ClientKind.READER: "false"},
        refusal=Refusal(why=_COMMITS, instead="Remove it.", allowed=("false",)),
    ),
    KafkaProperty(
        key="auto.commit.interval.ms", applies_to=_MEMBER, refusal=Refusal(why=_COMMITS, instead="Remove it.")
    ),
    KafkaProperty(
        key="auto.offset.reset",
        # Any other value silently skips lost records.
        forced={ClientKind.READER: "error"},
        refusal=Refusal(
            why="the source decides once where to start, and never resets silently.",
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
            "roundrobin) revoke all partitions of all members.",
            instead="Remove it, and give all members of the group cooperative-sticky or kafka.group.protocol=consumer.",
            allowed=("cooperative-sticky",),
        ),
    ),
    KafkaProperty(
        key="enable.partition.eof",
        # Offsets at the end of a range may belong to no record.  Then only this event shows that the end is reached.
        forced={ClientKind.READER: "true"},
        refusal=Refusal(why="the readers set it themselves.", instead="Remove it.", allowed=("true",)),
    ),
    KafkaProperty(
        key="transactional.id",
        refusal=Refusal(
            why="the query commits under its own transactional id.",
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
    # Properties that this source sets.
    KafkaProperty(
        key="enable.metrics.push",
        # The KIP-714 metrics of these clients are of no use, and would cost a subscription request for each client.
        default="false",
        sent_to=_READER,
        forced={ClientKind.MEMBER: "false", ClientKind.PRODUCER: "false"},
    ),
    KafkaProperty(
        key="allow.auto.create.topics",
        applies_to=EVERY_CLIENT,
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
        # How long fetching rests once the queue is full.  librdkafka's 1000 leaves a fast reader idle for that long;
        # 0 would make its broker thread spin.
        default="10",
        sent_to=_READER,
    ),
    # Deliberate: no more than librdkafka's own default, so no client gets it.  4 MB at once brought the first record of
    # a range in 45 ms instead of 10, and fetched more beyond the end of a short range.  So direct reading begins with
    # this size, and asks for more only in a long range: `fetcher`.  A higher value pays if a round trip takes more than
    # some 10 ms.
    KafkaProperty(
        key="fetch.message.max.bytes",
        own_connections=_USED,
        unit="bytes",
        least=1,
        most=10**9,
        default=str(1024 * 1024),
    ),
    # Limits of fetching ahead; the first one that is reached counts.  At some 0.7 million records/s and 70 MB/s of one
    # reader they cover 0.15 s, ample for fetch.queue.backoff.ms.  An executor holds this once per running task.
    KafkaProperty(
        key="queued.max.messages.kbytes",
        own_connections=_USED,
        unit="kilobytes",
        least=1,
        most=2**21 - 1,
        default=str(32 * 1024),
        sent_to=_READER,
    ),
    KafkaProperty(key="queued.min.messages", default="100000", sent_to=_READER),
    KafkaProperty(
        key="log.connection.close",
        # Only the producer's log shows that a connection broke, see `committer`.
        forced={ClientKind.PRODUCER: "true"},
    ),
    KafkaProperty(
        key="sasl.oauthbearer.provider",
        applies_to=EVERY_CLIENT,
        own_connections=_USED,
        doc="Where tokens for OAUTHBEARER come from: `msk:REGION`, `entra:HOST`, `google`, `databricks:CREDENTIAL`, or "
        "`my_package.tokens:function` for a function of your own, which the owner of the process must "
        "[allow](permissions.md). It implies `sasl.mechanism=OAUTHBEARER`, and "
        "`security.protocol=SASL_SSL` if you set no other. See [security](tokens.md).",
    ),
    # A producer would warn of consumer properties.  So every client gets only these.
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
        key="default.topic.config",
        refusal=Refusal(why="it has no form as text.", instead="Write each of its properties as kafka.<name>."),
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
    # A user of any other name in these families wants to change how the source connects, or has misspelled a name.
    *_connection(
        _NOT_SUPPORTED,
        *("enable.sasl.*", "enable.ssl.*", "https.*", "sasl.*", "security.*", "ssl.*"),
        instead="Remove it, or correct its name.",
    ),
    # These tune how librdkafka waits, retries, buffers and logs.  Our own connections do none of that.  Deliberate:
    # socket buffers are among them, because the system sizes ours.
    # Deliberate: no families, so that librdkafka checks a name that is not among them.
    *_connection(
        _IGNORED,
        "api.version.fallback.ms",
        "api.version.request",
        "api.version.request.timeout.ms",
        "broker.address.ttl",
        "broker.version.fallback",
        "connections.max.idle.ms",
        "debug",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metadata.request.timeout.ms",
        "reconnect.backoff.jitter.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.blocking.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.cnt",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.sparse",
    ),
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

JAAS = "sasl.jaas.config"
HANDLER = "sasl.login.callback.handler.class"
"""The properties by which Java's client logs in.  Clients of librdkafka do not get them."""

CLASSIC_ONLY = frozenset(row.key for row in PROPERTIES if row.classic_only)
"""The properties that librdkafka refuses under the consumer protocol, where the broker decides."""


def row_of(key: str) -> KafkaProperty:
    """Return the row of a property, or else of its nearest family, or else what holds for unknown properties."""
    key = OTHER_NAMES.get(key, key)
    if key in _ROWS:
        return _ROWS[key]
    families = [prefix for prefix in _FAMILIES if key.startswith(prefix)]
    return _FAMILIES[max(families, key=len)] if families else KafkaProperty(key=key)


def default_of(key: str) -> str:
    """Return the default value of a property of the table."""
    value = row_of(key).default
    if value is None:
        raise ValueError(f"{key} has no default")
    return value


def is_in_table(key: str) -> bool:
    """Return whether ``key`` is a property of the table, or of one of its families."""
    return key in _ROWS or key.startswith(tuple(_FAMILIES))


DECIDING = frozenset(key for key in _ROWS if row_of(key).applies_to != EVERY_CLIENT)
"""The properties that this source itself reads, or gives only to some of the clients."""
