"""Who leads which partitions, asked of any broker that answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.fields import Reader
from pyspark_kafka_group.wire.types import Address, PropertyError, ProtocolError, TopicPartition

T = TypeVar("T")

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^:/\[\]]+)(?::(\d{1,5}))?")
_PORT = 9092
"""Where brokers listen if only their host is named, as for librdkafka."""

Connect = Callable[[Address], BrokerConnection]


def addresses(servers: str, protocol: str) -> list[Address]:
    """Return the addresses of ``bootstrap.servers``.

    Raises
    ------
    PropertyError
        If there is none, or one of them cannot be understood.
    """
    found = []
    for server in servers.replace(",", " ").split():  # librdkafka, too, passes over blanks and empty places
        match = _SERVER.fullmatch(server.removeprefix(f"{protocol.upper()}://"))
        if match is None:
            raise PropertyError("bootstrap.servers", f"{server!r} is not host:port.", "Correct it.")
        found.append(Address(match[1].strip("[]"), int(match[2] or _PORT)))
    if not found:
        raise PropertyError("bootstrap.servers", "it names no broker.", "Write host:port, separated by commas.")
    return found


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
    return _ask_any(protocol.metadata_request({tp.topic for tp in partitions}), protocol.leaders, servers, connect)


def find_brokers(servers: Iterable[Address], connect: Connect) -> dict[int, Address]:
    """Learn where the brokers listen, by their ids; raises as :func:`find_leaders`."""
    return _ask_any(protocol.metadata_request(()), protocol.broker_addresses, servers, connect)


def _ask_any(request: bytes, read: Callable[[Reader], T], servers: Iterable[Address], connect: Connect) -> T:
    problem: Exception = ProtocolError("no servers")
    for server in servers:
        try:
            connection = connect(server)
        except OSError as failure:
            problem = failure
            continue
        try:
            return read(connection.request(protocol.METADATA, request))
        finally:
            connection.close()
    raise problem
