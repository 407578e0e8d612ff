"""`MockKafka`: librdkafka's mock cluster inside this process, for fast tests without Java.

What it cannot carry is said in the class docstring; the calls into the C library live in `_librdkafka`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from pyspark_kafka_group.testing.kafka import BrokerError, Kafka, UnsupportedFaultError

if TYPE_CHECKING:
    from pyspark_kafka_group.testing._librdkafka import MockCluster

_USE_REAL = "use LocalKafka for this test"

_HEARTBEAT_MS = 100


class MockKafka(Kafka):
    """Brokers imitated by librdkafka: real ports on 127.0.0.1, started in milliseconds, gone with this process.

    Clients in other processes can use it too, Spark's workers among them.  Producing, reading, committed offsets and
    both group protocols work.

    Never let it stand behind a claim about transactions (aborted and open records are visible, transactional offsets
    are not stored, nobody is fenced), offsets by time (always -1), more than 5 MB or 100,000 records per partition
    (older ones vanish), static members, listing or describing groups, authentication or encryption.

    A topic that a client asks for comes into being with 4 partitions, so create yours first; topics can be neither
    deleted nor grown.  In classic groups a rejoin takes nearly the session timeout: choose 2 to 3 s.

    Parameters
    ----------
    brokers
        How many brokers the cluster has; their ids are 1, 2, ...
    """

    def __init__(self, brokers: int = 1) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster needs at least one")
        self._brokers = brokers
        self._cluster: MockCluster | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The ports that the mock brokers chose on 127.0.0.1."""
        return self._started().bootstrap_servers()

    def start(self) -> Self:
        """Start the brokers, in milliseconds."""
        if self._cluster is None:
            from pyspark_kafka_group.testing._librdkafka import MockCluster

            self._cluster = MockCluster(self._brokers)
            # Kafka's brokers wait 3 s for more members when a group is new; no test wants that.
            self._cluster.set_initial_rebalance_delay_ms(0)
            # Under KIP-848 a member learns with its next heartbeat what it is given; the mock's usual 3 s apart.
            self._cluster.set_heartbeat_interval_ms(_HEARTBEAT_MS)
        return self

    def stop(self) -> None:
        """End the brokers; everything in them is gone."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; it cannot have settings."""
        if config:
            raise UnsupportedFaultError(self, f"apply topic settings ({', '.join(sorted(config))})", _USE_REAL)
        self._started().create_topic(name, partitions, replication_factor)

    def delete_topic(self, name: str) -> None:
        """Not possible here."""
        raise UnsupportedFaultError(self, f"delete topic {name!r}", _USE_REAL)

    def add_partitions(self, name: str, total: int) -> None:
        """Not possible here."""
        raise UnsupportedFaultError(self, f"raise topic {name!r} to {total} partitions", _USE_REAL)

    def kill(self, broker_id: int) -> None:
        """Break the broker's connections and refuse new ones; its data stays."""
        self._started().set_broker_up(broker_id, False)

    def pause(self, broker_id: int) -> None:
        """Not possible here."""
        raise UnsupportedFaultError(self, f"pause broker {broker_id}", "use kill() or set_round_trip_ms()")

    def resume(self, broker_id: int) -> None:
        """Not possible here."""
        raise UnsupportedFaultError(self, f"resume broker {broker_id}", "use restart() or set_round_trip_ms()")

    def restart(self, broker_id: int) -> None:
        """Break the broker's connections if it is up, and let it answer again."""
        self._started().set_broker_up(broker_id, False)
        self._started().set_broker_up(broker_id, True)

    def set_round_trip_ms(self, broker_id: int, milliseconds: int) -> None:
        """Delay each answer of a broker; 0 undoes it."""
        self._started().set_round_trip_ms(broker_id, milliseconds)

    def push_errors(self, api_key: int, *errors: int) -> None:
        """Answer the next requests of one kind with these errors, one request each, at whichever broker.

        Parameters
        ----------
        api_key
            Kafka's number of the request: 0 Produce, 1 Fetch, 2 ListOffsets, 8 OffsetCommit, 9 OffsetFetch,
            11 JoinGroup, 12 Heartbeat, 28 TxnOffsetCommit, 68 ConsumerGroupHeartbeat.
        errors
            Error codes as ``confluent_kafka.KafkaError`` has them; 0 lets one request pass.
        """
        self._started().push_errors(api_key, list(errors))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition below offset `before`, as retention does."""
        self._started().delete_records(topic, partition, before)

    def _started(self) -> MockCluster:
        if self._cluster is None:
            raise BrokerError("MockKafka is not started: use it in a with statement, or call start()")
        return self._cluster
