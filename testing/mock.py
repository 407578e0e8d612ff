"""`MockKafka`: librdkafka's mock cluster inside this process, for fast tests without Java.

The mock cluster has no Python interface.  So this calls the public C interface of the library that confluent-kafka
loads, through ctypes and with its own client.  All calls release the GIL.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Self

from pyspark_kafka_group.columns.native_library import POINTER, TEXT, Signatures, declare
from pyspark_kafka_group.testing.errors import KafkaTestingError, UnsupportedFaultError
from pyspark_kafka_group.testing.kafka import Kafka

_USE_REAL = "use LocalKafka for this test"

_HEARTBEAT_MS = 100

_PRODUCER = 0  # rd_kafka_type_t
_ERROR_TEXT_BYTES = 512


class MockKafka(Kafka):
    """Brokers imitated by librdkafka: real ports on 127.0.0.1, started in milliseconds, gone with this process.

    Clients in other processes can use it, too, such as Spark's workers.  Producing, reading, committed offsets and both
    group protocols work.

    Do not test these with it:

    - transactions: aborted and open records are visible, transactional offsets are not stored, nothing is fenced
    - offsets by time: they are always -1
    - more than 5 MB or 100,000 records per partition: older records disappear
    - static members, listing or describing groups, authentication, encryption

    A topic that a client asks for is created with 4 partitions, so create yours first.  Topics can be neither
    deleted nor grown.  In classic groups a rejoin takes nearly the session timeout: choose 2 to 3 s.

    Parameters
    ----------
    brokers
        The number of brokers; their ids are 1, 2, ...
    """

    def __init__(self, brokers: int = 1) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster needs at least one")
        self._brokers = brokers
        self._library: Any = None
        self._client: int | None = None
        self._cluster: int | None = None
        self._down: set[int] = set()

    @property
    def bootstrap_servers(self) -> str:
        """The ports that the mock brokers chose on 127.0.0.1."""
        servers: bytes = self._library_of_started().rd_kafka_mock_cluster_bootstraps(self._cluster)
        return servers.decode()

    def start(self) -> Self:
        """Start the brokers, in milliseconds."""
        if self._cluster is not None:
            return self
        self._library = library = _load()
        text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        settings = library.rd_kafka_conf_new()
        # The client only hosts the cluster and connects to nothing: it must not warn about that.
        library.rd_kafka_conf_set(settings, b"log_level", b"2", text, _ERROR_TEXT_BYTES)
        # A client takes its settings over.  If there is no client, they leak, and the error ends that.
        self._client = library.rd_kafka_new(_PRODUCER, settings, text, _ERROR_TEXT_BYTES)
        if not self._client:
            raise KafkaTestingError(f"librdkafka could not start a client: {text.value.decode()}")
        self._cluster = library.rd_kafka_mock_cluster_new(self._client, self._brokers) or None
        if self._cluster is None:
            self.stop()
            raise KafkaTestingError(f"librdkafka could not start a mock cluster of {self._brokers} brokers")
        # Kafka's brokers wait 3 s for more members when a group is new; no test wants that.
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        # Under KIP-848 a member gets its assignment with its next heartbeat; by default the mock wants one every 3 s.
        library.rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(self._cluster, _HEARTBEAT_MS)
        return self

    def stop(self) -> None:
        """End the brokers; everything in them is lost."""
        cluster, self._cluster = self._cluster, None
        client, self._client = self._client, None
        self._down.clear()
        if cluster is not None:
            self._library.rd_kafka_mock_cluster_destroy(cluster)
        if client:
            self._library.rd_kafka_destroy(client)

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
        self._do(f"create topic {name!r}", "topic_create", name.encode(), partitions, replication_factor)

    def delete_topic(self, name: str) -> None:
        """Not possible here."""
        raise UnsupportedFaultError(self, f"delete topic {name!r}", _USE_REAL)

    def add_partitions(self, name: str, total: int) -> None:
        """Not possible here."""
        raise UnsupportedFaultError(self, f"raise topic {name!r} to {total} partitions", _USE_REAL)

    def kill(self, broker_id: int) -> None:
        """Break the broker's connections and refuse new ones; its data stays."""
        self._do(f"take broker {broker_id} down", "broker_set_down", broker_id)
        self._down.add(broker_id)

    def pause(self, broker_id: int) -> None:
        """Not possible here."""
        raise UnsupportedFaultError(self, f"pause broker {broker_id}", "use kill() or set_round_trip_ms()")

    def resume(self, broker_id: int) -> None:
        """Not possible here."""
        raise UnsupportedFaultError(self, f"resume broker {broker_id}", "use restart() or set_round_trip_ms()")

    def restart(self, broker_id: int) -> None:
        """Break the broker's connections if it is up, and let it answer again."""
        self.kill(broker_id)
        self._do(f"take broker {broker_id} up", "broker_set_up", broker_id)
        self._down.discard(broker_id)

    def set_round_trip_ms(self, broker_id: int, milliseconds: int) -> None:
        """Delay each answer of a broker; 0 undoes it."""
        self._do(f"set the round trip of broker {broker_id}", "broker_set_rtt", broker_id, milliseconds)

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
        codes = (ctypes.c_int * len(errors))(*errors)
        self._library_of_started().rd_kafka_mock_push_request_errors_array(self._cluster, api_key, len(errors), codes)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition below offset `before`, as retention does."""
        what = f"delete the records of {topic}-{partition} below offset {before}"
        self._do(what, "partition_delete_records", topic.encode(), partition, before)

    def _answering_servers(self) -> list[str]:
        return [one for number, one in enumerate(super()._answering_servers(), 1) if number not in self._down]

    def _do(self, what: str, function: str, *arguments: bytes | int) -> None:
        library = self._library_of_started()
        code = getattr(library, f"rd_kafka_mock_{function}")(self._cluster, *arguments)
        if code:
            text: bytes = library.rd_kafka_err2str(code)
            raise KafkaTestingError(f"the mock cluster could not {what}: {text.decode()}")

    def _library_of_started(self) -> Any:
        if self._cluster is None:
            raise KafkaTestingError("MockKafka is not started: use it in a with statement, or call start()")
        return self._library


def _load() -> ctypes.CDLL:
    from confluent_kafka import cimpl

    number, number_32, size = ctypes.c_int, ctypes.c_int32, ctypes.c_size_t
    signatures: Signatures = {
        "rd_kafka_new": (POINTER, (number, POINTER, TEXT, size)),
        "rd_kafka_conf_new": (POINTER, ()),
        "rd_kafka_conf_set": (number, (POINTER, TEXT, TEXT, TEXT, size)),
        "rd_kafka_destroy": (None, (POINTER,)),
        "rd_kafka_err2str": (TEXT, (number,)),
        "rd_kafka_mock_cluster_new": (POINTER, (POINTER, number)),
        "rd_kafka_mock_cluster_destroy": (None, (POINTER,)),
        "rd_kafka_mock_cluster_bootstraps": (TEXT, (POINTER,)),
        "rd_kafka_mock_topic_create": (number, (POINTER, TEXT, number, number)),
        "rd_kafka_mock_partition_delete_records": (number, (POINTER, TEXT, number_32, ctypes.c_int64)),
        "rd_kafka_mock_broker_set_down": (number, (POINTER, number_32)),
        "rd_kafka_mock_broker_set_up": (number, (POINTER, number_32)),
        "rd_kafka_mock_broker_set_rtt": (number, (POINTER, number_32, number)),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, (POINTER, number_32)),
        "rd_kafka_mock_set_group_consumer_heartbeat_interval_ms": (None, (POINTER, number)),
        "rd_kafka_mock_push_request_errors_array": (
            None,
            (POINTER, ctypes.c_int16, size, ctypes.POINTER(number)),
        ),
    }
    try:
        # A search for a symbol in the extension module includes its linked libraries.
        return declare(ctypes.CDLL(cimpl.__file__), signatures)
    except AttributeError as problem:
        raise KafkaTestingError(
            f"MockKafka needs a function of librdkafka that this installation of confluent-kafka does not offer "
            f"({problem}); install confluent-kafka from its wheel, or use LocalKafka"
        ) from None
