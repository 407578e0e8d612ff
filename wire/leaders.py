"""Finds leaders and brokers, by asking any broker that answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping

from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.error_codes import error_name
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata
from pyspark_kafka_group.wire.types import Address, FetchError, ProtocolError, TopicPartition

_NOT_THERE = ("UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE")
"""The topic does not exist, or its creation has not finished."""

Connect = Callable[[Address], BrokerConnection]


def find_leaders(
    partitions: Collection[TopicPartition], servers: Iterable[Address], connect: Connect
) -> dict[TopicPartition, Address | None]:
    """Return the addresses of the leaders of all partitions of these topics.

    Returns
    -------
    dict of TopicPartition to Address or None
        None for a partition without a leader.  Partitions that the broker does not know are left out.

    Raises
    ------
    OSError
        If no broker answers.
    FetchError
        If the brokers refuse a topic.
    ProtocolError
        If the answer is invalid.
    """
    metadata = _ask_any(Metadata(tuple(sorted({tp.topic for tp in partitions}))), servers, connect)
    found: dict[TopicPartition, Address | None] = {}
    for topic in metadata.topics:
        if topic.error and error_name(topic.error) not in _NOT_THERE:
            raise FetchError(f"topic {topic.name!r}", topic.error)
        for partition in topic.partitions:
            found[TopicPartition(topic.name, partition.number)] = metadata.brokers.get(partition.leader)
    return found


def find_brokers(servers: Iterable[Address], connect: Connect) -> Mapping[int, Address]:
    """Return the addresses of the brokers by their ids; raise the errors of :func:`find_leaders`."""
    return _ask_any(Metadata(()), servers, connect).brokers


def _ask_any(request: Metadata, servers: Iterable[Address], connect: Connect) -> ClusterMetadata:
    problem: Exception = ProtocolError("no servers")
    for server in servers:
        try:
            with contextlib.closing(connect(server)) as connection:
                return connection.ask(request)
        except OSError as failure:
            problem = failure
    raise problem
