"""What the direct client makes of a reader's properties, and which of them leave reading to librdkafka."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from pyspark_kafka_group.offsets.client_config import value_of
from pyspark_kafka_group.offsets.own_connections import reach
from pyspark_kafka_group.reading.fetcher import FetchSettings
from pyspark_kafka_group.reading.rack import Rack
from pyspark_kafka_group.wire.connection_security import Security, is_false
from pyspark_kafka_group.wire.types import Address

log = logging.getLogger("pyspark_kafka_group.reading")

_WAIT_MS, _LONGEST_WAIT_MS = 500, 4000
"""How long a broker may hold a fetch that it has nothing for, at first and while it says that there are records:
Kafka's own default, and what tiered storage may take.  It costs nothing where there are records, which is nearly
always, because control records are fetched as well: a range was planned, so its offsets were in the log."""

_NUMBERS = frozenset(
    {"fetch.message.max.bytes", "fetch.wait.max.ms", "queued.max.messages.kbytes", "receive.message.max.bytes"}
)


class DirectSettings(NamedTuple):
    """Where to begin, how to secure connections, and how to fetch."""

    servers: list[Address]
    security: Security
    fetch: FetchSettings


def direct_settings(config: Mapping[str, str]) -> DirectSettings | None:
    """What the direct client is given, or None where librdkafka has to read; the log then says why, once.

    Parameters
    ----------
    config
        What `reader_config` returns.
    """
    found = reach(config)
    if isinstance(found, str):
        _say_once(found)
        return None
    if not all(config[name].strip().isdecimal() for name in _NUMBERS & config.keys()):
        return None  # librdkafka says in its own words what is wrong
    return DirectSettings(found.servers, found.security, _fetch_settings(config))


@cache
def _say_once(reason: str) -> None:
    log.warning("Reading by way of librdkafka, which is slower: %s.", reason)


def _fetch_settings(config: Mapping[str, str]) -> FetchSettings:
    return FetchSettings(
        read_committed=config["isolation.level"] == "read_committed",
        check_crcs=not is_false(config["check.crcs"]),
        wait_ms=int(config.get("fetch.wait.max.ms", _WAIT_MS)),
        longest_wait_ms=int(config.get("fetch.wait.max.ms", _LONGEST_WAIT_MS)),
        partition_bytes=int(value_of("fetch.message.max.bytes", config)),
        ahead_bytes=int(config["queued.max.messages.kbytes"]) * 1024,
        batch_bytes=int(value_of("receive.message.max.bytes", config)),
        rack=Rack(config.get("client.rack") or None),
    )
