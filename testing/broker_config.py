"""The settings of a local broker: pure functions from ports and sizes to property files.

Every value that differs from Kafka's default is here to make tests quick or small, and says so.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark_kafka_group.testing.ports import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """The ports of one broker on the loopback interface.

    Attributes
    ----------
    client
        For clients and the other brokers.
    controller
        For the metadata quorum.
    proxied
        The port behind its proxy, and the port of the proxy that it tells clients; None without a proxy.
    secured
        For clients that authenticate or encrypt; None if there is no such listener.
    """

    client: int
    controller: int
    proxied: tuple[int, int] | None = None
    secured: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The PEM files with which a broker encrypts.

    Attributes
    ----------
    certificate
        Private key (PKCS #8) and certificate chain of all brokers; valid for 127.0.0.1.
    authority
        The authority that signs the certificates of clients.  If given, each client must show one.
    """

    certificate: Path
    authority: Path | None = None


def broker_properties(
    node_id: int,
    cluster: Mapping[int, BrokerPorts],
    data: Path,
    *,
    sasl_users: Mapping[str, str] | None = None,
    tls: TlsFiles | None = None,
    overrides: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return all settings of one broker of a cluster, given as ``{node id: ports}``."""
    ports = cluster[node_id]
    listeners = {"PLAINTEXT": ports.client}
    advertised = {"PLAINTEXT": ports.client}
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    if ports.proxied is not None:
        listeners["PROXIED"], advertised["PROXIED"] = ports.proxied
        protocols["PROXIED"] = "PLAINTEXT"
    if ports.secured is not None:
        listeners["SECURED"] = advertised["SECURED"] = ports.secured
        protocols["SECURED"] = ("SASL_" if sasl_users else "") + ("SSL" if tls else "PLAINTEXT")
    replicas = str(len(cluster))
    in_sync = str(min(2, len(cluster)))
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        # For `client.rack`; without effect unless replica.selector.class is set.
        **({"broker.rack": f"rack-{node_id}"} if len(cluster) > 1 else {}),
        "controller.quorum.voters": ",".join(f"{i}@{HOST}:{p.controller}" for i, p in cluster.items()),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": _listeners({**listeners, "CONTROLLER": ports.controller}),
        "advertised.listeners": _listeners(advertised),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "log.dirs": str(data),
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        **_internal_topics(replicas, in_sync),
        **_QUICK,
        **_SMALL,
    }
    if sasl_users:
        properties |= _sasl(sasl_users)
    if tls is not None:
        properties |= _tls(tls)
    return properties | dict(overrides or {})


def new_id() -> str:
    """Return an id as Kafka makes them: 16 random bytes in base64, not beginning like an option of a command."""
    made = "-"
    while made.startswith("-"):
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return made


def meta_properties(node_id: int, cluster_id: str) -> str:
    """Return the text of the file with the ids of a broker, its cluster and its data folder."""
    ids = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_id()}
    return render(ids)


def render(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in sorted(properties.items()))


# log4j2 reads this form without the YAML parser that Kafka's own file needs.
LOGGING = """rootLogger.level=INFO
rootLogger.appenderRef.console.ref=CONSOLE
appender.console.type=Console
appender.console.name=CONSOLE
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
# Hundreds of lines of settings at every start would push out what a test wants to see.
logger.settings.name=org.apache.kafka.common.config.AbstractConfig
logger.settings.level=WARN
"""

# The same for the back end of Kafka 3.
LOGGING_OF_3 = """log4j.rootLogger=INFO, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout
log4j.appender.CONSOLE.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.kafka.common.config.AbstractConfig=WARN
"""

# Tests wait for these; each is seconds to minutes by default.
_QUICK = {
    # A topic that a test forgot to create must be an error, as on a well-kept cluster.
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # What a client may ask for as its session timeout (classic protocol).
    "group.min.session.timeout.ms": "1000",
    # KIP-848: the broker decides. A dead member is noticed after 10 s, an assignment arrives within half a second.
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # A killed broker may come back, and its partitions move, when its session is over. Much shorter, and a busy
    # machine loses brokers that are only slow.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
# Several brokers on two cores with small heaps.
_SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.replica.fetchers": "1",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
}


def _internal_topics(replicas: str, in_sync: str) -> dict[str, str]:
    # Few partitions: the first group or transaction has to wait until all of them exist.
    return {
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def _sasl(users: Mapping[str, str]) -> dict[str, str]:
    module = "org.apache.kafka.common.security"
    entries = " ".join(f"user_{name}={_quote(password)}" for name, password in users.items())
    listener = "listener.name.secured"
    return {
        f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{listener}.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required {entries};",
        **{
            f"{listener}.{mechanism}.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;"
            for mechanism in ("scram-sha-256", "scram-sha-512")
        },
    }


def _tls(files: TlsFiles) -> dict[str, str]:
    # A broker runs in another folder.
    properties = {"keystore.type": "PEM", "keystore.location": str(files.certificate.absolute())}
    if files.authority is not None:
        properties |= {"truststore.type": "PEM", "truststore.location": str(files.authority.absolute())}
        properties["client.auth"] = "required"
    return {f"listener.name.secured.ssl.{name}": value for name, value in properties.items()}


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escape(value: str) -> str:
    # Java reads such a file as ISO-8859-1.  The escapes of JSON are also those of a properties file.
    return json.dumps(value)[1:-1]
