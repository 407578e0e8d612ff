"""How the source's own connections reach the cluster, with what users set.

One answer for all that use them: reading, log ends, the requests of a start, plain commits, and the tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.kafka_properties import OwnConnections, own_connections
from pyspark_kafka_group.wire.connection_security import Security, security_of
from pyspark_kafka_group.wire.leaders import addresses
from pyspark_kafka_group.wire.types import Address, PropertyError


class Reach(NamedTuple):
    """Where to begin, and how to secure connections."""

    servers: list[Address]
    security: Security


def reach(config: Mapping[str, str]) -> Reach:
    """Return how to connect.

    Parameters
    ----------
    config : mapping
        What a client is given, as librdkafka names it.

    Raises
    ------
    OptionError
        If a property asks for what the source's own connections cannot do.
    """
    for key, value in sorted(config.items()):
        if own_connections(key, value) is OwnConnections.MATTERS:
            raise OptionError(f"kafka.{key}", "the source's own connections do not support it.", "Remove it.")
    try:
        security = security_of(config)
        return Reach(addresses(config.get("bootstrap.servers", ""), security.protocol), security)
    except PropertyError as problem:
        raise OptionError(f"kafka.{problem.key}", problem.problem, problem.remedy) from None
