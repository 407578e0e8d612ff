"""The few functions of librdkafka's mock cluster, called through ctypes on the library confluent-kafka loads.

Only the public C interface is used, on a client handle made here: nothing depends on how confluent-kafka lays
out its Python objects.  All calls release the GIL.  Policy and documentation belong to `mock`.
"""

from __future__ import annotations

import ctypes
from functools import cache

from pyspark_kafka_group.columns.librdkafka_library import load
from pyspark_kafka_group.columns.native_library import POINTER, TEXT, Signatures
from pyspark_kafka_group.testing.kafka import BrokerError

_PRODUCER = 0  # rd_kafka_type_t
_ERROR_TEXT_BYTES = 512

_INT = ctypes.c_int
_INT32 = ctypes.c_int32

_SIGNATURES: Signatures = {
    "rd_kafka_mock_cluster_new": (POINTER, (POINTER, _INT)),
    "rd_kafka_mock_cluster_destroy": (None, (POINTER,)),
    "rd_kafka_mock_cluster_bootstraps": (TEXT, (POINTER,)),
    "rd_kafka_mock_topic_create": (_INT, (POINTER, TEXT, _INT, _INT)),
    "rd_kafka_mock_partition_delete_records": (_INT, (POINTER, TEXT, _INT32, ctypes.c_int64)),
    "rd_kafka_mock_broker_set_down": (_INT, (POINTER, _INT32)),
    "rd_kafka_mock_broker_set_up": (_INT, (POINTER, _INT32)),
    "rd_kafka_mock_broker_set_rtt": (_INT, (POINTER, _INT32, _INT)),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, (POINTER, _INT32)),
    "rd_kafka_mock_set_group_consumer_heartbeat_interval_ms": (None, (POINTER, _INT)),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        (POINTER, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(_INT)),
    ),
}


@cache
def _library() -> ctypes.CDLL:
    try:
        return load(_SIGNATURES)
    except AttributeError as problem:
        raise BrokerError(
            f"MockKafka needs a function of librdkafka that this installation of confluent-kafka does not offer "
            f"({problem}); install confluent-kafka from its wheel, or use LocalKafka"
        ) from None


class MockCluster:
    """A running mock cluster with a client handle of its own; `close` ends both.

    The owner must serialize the calls, and make none after `close`.
    """

    def __init__(self, brokers: int) -> None:
        self._library = _library()
        error_text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        settings = self._library.rd_kafka_conf_new()
        # The client only hosts the cluster and connects to nothing: it must not warn about that.
        self._library.rd_kafka_conf_set(settings, b"log_level", b"2", error_text, _ERROR_TEXT_BYTES)
        # A client takes its settings over, but not when it could not be made: that leak ends with the error.
        self._client = self._library.rd_kafka_new(_PRODUCER, settings, error_text, _ERROR_TEXT_BYTES)
        if not self._client:
            raise BrokerError(f"librdkafka could not start a client: {error_text.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._cluster:
            self._library.rd_kafka_destroy(self._client)
            raise BrokerError(f"librdkafka could not start a mock cluster of {brokers} brokers")

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def bootstrap_servers(self) -> str:
        servers: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return servers.decode()

    def create_topic(self, name: str, partitions: int, replication_factor: int) -> None:
        self._check(
            self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, replication_factor),
            f"create topic {name!r}",
        )

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._check(
            self._library.rd_kafka_mock_partition_delete_records(self._cluster, topic.encode(), partition, before),
            f"delete the records of {topic}-{partition} below offset {before}",
        )

    def set_broker_up(self, broker_id: int, up: bool) -> None:
        change = self._library.rd_kafka_mock_broker_set_up if up else self._library.rd_kafka_mock_broker_set_down
        self._check(change(self._cluster, broker_id), f"take broker {broker_id} {'up' if up else 'down'}")

    def set_round_trip_ms(self, broker_id: int, milliseconds: int) -> None:
        self._check(
            self._library.rd_kafka_mock_broker_set_rtt(self._cluster, broker_id, milliseconds),
            f"set the round trip of broker {broker_id}",
        )

    def set_initial_rebalance_delay_ms(self, milliseconds: int) -> None:
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, milliseconds)

    def set_heartbeat_interval_ms(self, milliseconds: int) -> None:
        self._library.rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(self._cluster, milliseconds)

    def push_errors(self, api_key: int, errors: list[int]) -> None:
        array = (_INT * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, api_key, len(errors), array)

    def _check(self, code: int, what: str) -> None:
        if code:
            text: bytes = self._library.rd_kafka_err2str(code)
            raise BrokerError(f"the mock cluster could not {what}: {text.decode()}")
