"""Who leads which partitions, asked of any broker that answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.error_codes import error_name
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata
from pyspark_kafka_group.wire.types import Address, ProtocolError, TopicPartition

_NOT_THERE = ("UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE")
"""The topic does not exist, or is just being created."""

Connect = Callable[[Address], BrokerConnection]


def find_leaders(
    partitions: Collection[TopicPartition], servers: Iterable[Address], connect: Connect
) -> dict[TopicPartition, Address | None]:
    """Learn where the leaders of these partitions listen, and of others of their topics.

    Returns
    -------
    dict of TopicPartition to Address or None
        None for a partition that has no leader just now.  One that the broker does not know is left out.

    Raises
    ------
    OSError
        Nobody answers.
    ProtocolError
        The answer cannot be understood.
    """
    metadata = _ask_any(Metadata(tuple(sorted({tp.topic for tp in partitions}))), servers, connect)
    found: dict[TopicPartition, Address | None] = {}
    for topic in metadata.topics:
        if topic.error and error_name(topic.error) not in _NOT_THERE:
            raise ProtocolError(f"topic {topic.name!r}: {error_name(topic.error)}")
        for partition in topic.partitions:
            found[TopicPartition(topic.name, partition.number)] = metadata.brokers.get(partition.leader)
    return found


def find_brokers(servers: Iterable[Address], connect: Connect) -> Mapping[int, Address]:
    """Learn where the brokers listen, by their ids; raises as :func:`find_leaders`."""
    return _ask_any(Metadata(()), servers, connect).brokers


def _ask_any(request: Metadata, servers: Iterable[Address], connect: Connect) -> ClusterMetadata:
    problem: Exception = ProtocolError("no servers")
    for server in servers:
        try:
            connection = connect(server)
        except OSError as failure:
            problem = failure
            continue
        try:
            return connection.ask(request)
        finally:
            connection.close()
    raise problem
