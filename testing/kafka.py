"""The contract that all brokers of this package share, and what they have in common: topics and records.

A test that only uses `Kafka` runs on a local process, in a container, on the mock cluster or on a cluster of
yours.  How a broker is started and hurt is the business of the other modules.
"""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from pyspark_kafka_group.testing.errors import KafkaTestingError, UnsupportedFaultError

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType

    from confluent_kafka.admin import AdminClient, ClusterMetadata

    from pyspark_kafka_group.testing.records import Data, Record

# One administrative request: ample for a loaded machine with two cores, short enough for a test to tell why.
_REQUEST_TIMEOUT_S = 30.0
# One metadata request: a loaded machine may need long for it.
_METADATA_TIMEOUT_S = 5.0
# The same while brokers start.  One that has died is noticed after this.
_KNOCK_TIMEOUT_S = 1.0
# Metadata moves within some 10 ms on an idle broker; polling faster than that only burns its CPU.
_POLL_INTERVAL_S = 0.02
_REACH_TIMEOUT_S = 15.0

SERVERS_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"


class Kafka(ABC):
    """A Kafka cluster for tests.

    Use it as a context manager, or call `start` and `stop`.  `start` returns when clients can use the cluster.
    Broker ids count from 1.  All methods may be called from any thread, but not from two at the same time.
    """

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, separated by commas; known once the cluster is started."""

    @abstractmethod
    def start(self) -> Self:
        """Start the cluster and wait until it serves clients; starting a started cluster does nothing."""

    @abstractmethod
    def stop(self) -> None:
        """End everything that `start` began; stopping a stopped cluster does nothing."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until clients of every broker see a leader for each of its partitions.

        Parameters
        ----------
        name, partitions, replication_factor
            As in Kafka.
        config
            Topic settings such as ``{"retention.ms": "1000"}``.

        Raises
        ------
        KafkaTestingError
            The topic exists already, a setting is refused, or there is no leader in time.
        """
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        self._request(name, f"create topic {name!r}", lambda admin: admin.create_topics([topic]))
        self._await_metadata(
            lambda leaders: leaders.get(name, 0) == partitions, f"a leader for each partition of {name!r}"
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no broker lists it."""
        self._request(name, f"delete topic {name!r}", lambda admin: admin.delete_topics([name]))
        self._await_metadata(lambda leaders: name not in leaders, f"topic {name!r} to be gone")

    def add_partitions(self, name: str, total: int) -> None:
        """Raise the number of partitions of a topic to `total` and wait until each has a leader."""
        from confluent_kafka.admin import NewPartitions

        grown = NewPartitions(name, total)
        self._request(
            name, f"raise topic {name!r} to {total} partitions", lambda admin: admin.create_partitions([grown])
        )
        self._await_metadata(
            lambda leaders: leaders.get(name, 0) == total, f"a leader for each of {total} partitions of {name!r}"
        )

    def produce(self, topic: str, values: Iterable[Data | tuple[Data, Data]], *, partition: int | None = None) -> None:
        """Write records to a topic and wait until all are acknowledged.

        Parameters
        ----------
        topic
            An existing topic.
        values
            The value of each record, or its key and value: ``["a", "b"]``, ``[("customer-1", "a")]``.  Texts are
            written as UTF-8, and None as a null.
        partition
            The partition.  By default the key decides, as in Kafka.

        Raises
        ------
        KafkaTestingError
            The topic does not exist, or a record is not acknowledged within 30 s.
        """
        from pyspark_kafka_group.testing.records import produce

        produce(self._some_servers(), topic, values, partition)

    def read(self, topic: str, *, isolation_level: str = "read_committed") -> list[Record]:
        """Return the records of a topic, from its beginning to its present end, sorted by partition and offset.

        Parameters
        ----------
        topic
            An existing topic.
        isolation_level
            As in Kafka.  ``read_uncommitted`` also returns the records of open and aborted transactions.

        Raises
        ------
        KafkaTestingError
            The topic does not exist, or does not answer within 30 s.
        """
        from pyspark_kafka_group.testing.records import read

        return read(self._some_servers(), topic, isolation_level)

    def kill(self, broker_id: int) -> None:
        """End a broker without warning: no clean leave, open connections break."""
        raise UnsupportedFaultError(self, f"kill broker {broker_id}", _USE_LOCAL)

    def pause(self, broker_id: int) -> None:
        """Freeze a broker: its connections stay open and nothing is answered until `resume`."""
        raise UnsupportedFaultError(self, f"pause broker {broker_id}", _USE_LOCAL)

    def resume(self, broker_id: int) -> None:
        """Undo `pause`."""
        raise UnsupportedFaultError(self, f"resume broker {broker_id}", _USE_LOCAL)

    def restart(self, broker_id: int) -> None:
        """Start a broker again with its port and data, after a clean stop if it runs."""
        raise UnsupportedFaultError(self, f"restart broker {broker_id}", _USE_LOCAL)

    def move(self, broker_id: int, port: int) -> None:
        """Restart a broker with another port for clients."""
        del port
        raise UnsupportedFaultError(self, f"move broker {broker_id}", "use LocalKafka for this test")

    def set_round_trip_ms(self, broker_id: int, milliseconds: int) -> None:
        """Delay each answer of a broker; 0 undoes it."""
        del milliseconds
        raise UnsupportedFaultError(self, f"delay the answers of broker {broker_id}", _USE_MOCK)

    def push_errors(self, api_key: int, *errors: int) -> None:
        """Answer the next requests of one kind with these errors."""
        del errors
        raise UnsupportedFaultError(self, f"answer requests {api_key} with errors", _USE_MOCK)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition below an offset."""
        del before
        raise UnsupportedFaultError(self, f"delete records of {topic}-{partition}", _USE_MOCK)

    def log_tail(self, lines: int = 100) -> str:
        """Return the last lines of the brokers' logs, for the report of a failed test; empty if there is no log."""
        del lines
        return ""

    def _answering_servers(self) -> list[str]:
        """Return the brokers that should answer now: those that no fault silences."""
        return self.bootstrap_servers.split(",")

    def _some_servers(self) -> str:
        """Return the brokers that should answer now as clients take them; raises if there is none."""
        servers = self._answering_servers()
        if not servers:
            raise KafkaTestingError("all brokers are down or paused: restart() or resume() one")
        return ",".join(servers)

    def _request(self, name: str, what: str, send: Callable[[AdminClient], dict[str, Future[None]]]) -> None:
        from confluent_kafka import KafkaException

        # Deliberate: the client has a name, for requests are dropped with the client that sent them.
        admin = _admin_client(self._some_servers())
        try:
            send(admin)[name].result(timeout=_REQUEST_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            reason = str(error) or f"no answer within {_REQUEST_TIMEOUT_S:.0f} s"
            raise KafkaTestingError(f"could not {what}: {reason}") from error

    def _await_metadata(self, ready: Callable[[dict[str, int]], bool], what: str) -> None:
        """Wait until `ready` holds for ``{topic: partitions with a leader}`` as each broker lists it."""
        servers = self._answering_servers()
        await_metadata(servers, lambda found: ready(_partitions_with_leader(found)), what, _REQUEST_TIMEOUT_S)


class ExistingKafka(Kafka):
    """A cluster of yours.  You can create topics in it, but not stop its brokers.

    Parameters
    ----------
    bootstrap_servers
        ``host:port``, separated by commas; by default the variable ``KAFKA_BOOTSTRAP_SERVERS``.
    """

    def __init__(self, bootstrap_servers: str | None = None) -> None:
        servers = bootstrap_servers or os.environ.get(SERVERS_VARIABLE)
        if not servers:
            raise KafkaTestingError(f"ExistingKafka needs an address: pass one, or set {SERVERS_VARIABLE}")
        self._servers = servers

    @property
    def bootstrap_servers(self) -> str:
        """The servers that were given."""
        return self._servers

    def start(self) -> Self:
        """Wait until a broker answers."""
        _await_some_broker(self._servers)
        return self

    def stop(self) -> None:
        """Do nothing: the cluster stays."""


_USE_LOCAL = "use LocalKafka or ContainerKafka for this test"
_USE_MOCK = "use MockKafka for this test"


def await_metadata(
    servers: Sequence[str],
    ready: Callable[[ClusterMetadata], bool],
    what: str,
    timeout_s: float,
    *,
    request_s: float = _METADATA_TIMEOUT_S,
    check_alive: Callable[[], None] = lambda: None,
) -> None:
    """Wait until the metadata of each of these servers is `ready`.

    `check_alive` is called repeatedly, and raises if a broker has died.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + timeout_s
    for server in servers:
        is_ready = False
        while not is_ready:
            check_alive()
            if time.monotonic() > deadline:
                raise KafkaTestingError(f"waited {timeout_s:.0f} s in vain for {what} at broker {server}")
            # A client per broker: its first metadata can only come from that broker.  All topics, never one by name:
            # asking by name creates the topic on clusters that auto-create.
            with contextlib.suppress(KafkaException):
                is_ready = ready(_admin_client(server).list_topics(timeout=request_s))
            if not is_ready:
                time.sleep(_POLL_INTERVAL_S)


def await_brokers(
    servers: Sequence[str],
    count: int,
    timeout_s: float,
    check_alive: Callable[[], None],
    cluster_id: str | None = None,
) -> None:
    """Wait until each of these servers lists `count` brokers, and is of this cluster if its id is given.

    The id matters while brokers start: a broker of another program may answer at a port that it took before ours.
    """
    await_metadata(
        servers,
        lambda found: len(found.brokers) == count and cluster_id in (None, found.cluster_id),
        f"{count} brokers",
        timeout_s,
        request_s=_KNOCK_TIMEOUT_S,
        check_alive=check_alive,
    )


def _await_some_broker(servers: str) -> None:
    from confluent_kafka import KafkaException

    try:
        _admin_client(servers).list_topics(timeout=_REACH_TIMEOUT_S)
    except KafkaException as error:
        raise KafkaTestingError(f"no broker of {servers} answered within {_REACH_TIMEOUT_S:.0f} s: {error}") from error


def _admin_client(servers: str) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    # log_level 2: the refused connections of a broker that is starting or was killed are expected here.
    return AdminClient({"bootstrap.servers": servers, "log_level": 2, "reconnect.backoff.max.ms": 250})


def _partitions_with_leader(found: ClusterMetadata) -> dict[str, int]:
    return {
        name: sum(partition.leader >= 0 and partition.error is None for partition in topic.partitions.values())
        for name, topic in found.topics.items()
    }
