"""The connections to one cluster, which all questions share, and the meaning of their errors."""

from __future__ import annotations

from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.cluster.request_errors import RequestErrors
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.cluster_connections import ClusterConnections
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata
from pyspark_kafka_group.wire.types import Address

TIMEOUT_S = 5.0
"""How long a call may take by default, in seconds."""

CONNECT_TIMEOUT_S = 30.0
"""How long a query waits for the cluster when it starts, in seconds.  Spark's own source waits 60 s
(default.api.timeout.ms).
"""


class Channel:
    """Connections to the brokers.  Belongs to one thread.

    Parameters
    ----------
    servers : list of Address
        The bootstrap servers.
    security : Security
        How to secure connections.
    client_id : str
        What the brokers' logs and quotas call this client.
    properties : mapping
        The user's properties, for keeping secrets out of error texts.
    """

    def __init__(self, servers: list[Address], security: Security, *, client_id: str, properties: Properties) -> None:
        self._errors = RequestErrors(properties)

        def connect(address: Address, timeout_s: float) -> BrokerConnection:
            return BrokerConnection(address, client_id, timeout_s, security, needed=(), begin_s=timeout_s)

        self._connections = ClusterConnections(servers, connect)
        self._cluster_id: str | None = None  # from the first answer that names it

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _metadata(
        self, topics: tuple[str, ...] | None, deadline: Deadline, *, operations: bool = False, creates: bool = False
    ) -> ClusterMetadata:
        """Ask any broker for the brokers and these topics; None asks for all topics."""
        with self._errors.translated(""):
            metadata = self._connections.ask_any(Metadata(topics, operations=operations, creates=creates), deadline)
        self._connections.learn(metadata.brokers.values())
        self._cluster_id = self._cluster_id or metadata.cluster_id
        return metadata
