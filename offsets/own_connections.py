"""Whether connections of our own reach the cluster, with what users set.

One answer for all that uses them: reading, log ends, what decides a start, plain commits, and the tools.  If they
disagreed, an option could switch off what one of them detects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_kafka_group.offsets.kafka_properties import OwnConnections, own_connections
from pyspark_kafka_group.wire.connection_security import Security, security_of
from pyspark_kafka_group.wire.leaders import addresses
from pyspark_kafka_group.wire.types import Address

_LOGIN = ("sasl.mechanism", "sasl.mechanisms", "ssl.keystore.location")


class Reach(NamedTuple):
    """Where to begin, and how to secure connections."""

    servers: list[Address]
    security: Security


def reach(config: Mapping[str, str]) -> Reach | str:
    """Return how to connect, or the reason why only librdkafka can, which names the property.

    Parameters
    ----------
    config : mapping
        What a client is given, as librdkafka names it.
    """
    matter = sorted(key for key, value in config.items() if own_connections(key, value) is OwnConnections.MATTERS)
    if matter:
        return f"only librdkafka knows kafka.{', kafka.'.join(matter)}"
    security = security_of(config)
    if security is None:
        return f"only librdkafka can connect with this {_security_property(config)}"
    servers = addresses(config.get("bootstrap.servers", ""), security.protocol)
    if not servers:
        return "only librdkafka knows how to read these kafka.bootstrap.servers"
    return Reach(servers, security)


def _security_property(config: Mapping[str, str]) -> str:
    """Return the name of the property that decides how to log in, or else how to encrypt."""
    given = [key for key in _LOGIN if key in config]
    return f"kafka.{given[0] if given else 'security.protocol'}"
