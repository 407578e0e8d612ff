"""The settings of the direct client, from a reader's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_kafka_group.cluster.properties.client_config import reach, value_of
from pyspark_kafka_group.reading.fetcher import FetchSettings
from pyspark_kafka_group.reading.leader_search import Rack, SearchTimings
from pyspark_kafka_group.wire.connection_security import Security
from pyspark_kafka_group.wire.types import Address, is_false

_MOST_PARTITION_BYTES = 4 * 1024 * 1024
"""How much a long range fetches at a time, unless the user sets ``fetch.message.max.bytes``.  With records of 100 B,
this took a tenth less CPU time than 1 MB (medians of 7 pairs)."""

_WAIT_MS, _LONGEST_WAIT_MS = 500, 4000
"""How long a broker may hold a fetch without records: at first, and while it reports that there are records.  These are
Kafka's default, and the time that tiered storage may take.  A wait is rare: a planned range was in the log, and the
client also fetches control records."""


class DirectSettings(NamedTuple):
    """The settings of the direct client: bootstrap servers, security, fetches, and the search for leaders."""

    servers: list[Address]
    security: Security
    fetch: FetchSettings
    search: SearchTimings = SearchTimings()


def direct_settings(config: Mapping[str, str]) -> DirectSettings:
    """Return the settings of the direct client.

    Parameters
    ----------
    config
        The result of `reader_config`.

    Raises
    ------
    OptionError
        If our own connections do not support a property.
    """
    found = reach(config)
    return DirectSettings(found.servers, found.security, _fetch_settings(config))


def _fetch_settings(config: Mapping[str, str]) -> FetchSettings:
    return FetchSettings(
        read_committed=config["isolation.level"] == "read_committed",
        check_crcs=not is_false(config["check.crcs"]),
        wait_ms=int(config.get("fetch.wait.max.ms", _WAIT_MS)),
        longest_wait_ms=int(config.get("fetch.wait.max.ms", _LONGEST_WAIT_MS)),
        partition_bytes=int(value_of("fetch.message.max.bytes", config)),
        most_partition_bytes=int(config.get("fetch.message.max.bytes", _MOST_PARTITION_BYTES)),
        ahead_bytes=int(config["queued.max.messages.kbytes"]) * 1024,
        batch_bytes=int(value_of("receive.message.max.bytes", config)),
        rack=Rack(config.get("client.rack") or None),
    )
