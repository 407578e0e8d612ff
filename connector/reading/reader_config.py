"""The configuration of the clients that read ranges in executors: librdkafka's, and that of the direct client.

They are not members of the group: they call ``assign`` with explicit offsets, and do not subscribe or commit.  So they
do not get the user's properties for the membership.  Properties on which correct ranges depend are forced.  The others
are tuned for short ranges that are read to their end.
:mod:`pyspark_kafka_group.cluster.properties.kafka_properties` has the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.cluster.properties.client_config import client_properties, reach, value_of
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind
from pyspark_kafka_group.reading.rack import Rack
from pyspark_kafka_group.wire.leaders import LeaderTimings
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.types import Address, is_false

_SHORT_WAIT_MS = 20
_FETCH_BYTES = 52_428_800  # librdkafka's default of fetch.max.bytes


def reader_config(kafka_properties: Mapping[str, str], group_id: str) -> dict[str, str]:
    """Return the configuration of a range reader.

    Parameters
    ----------
    kafka_properties
        The user's ``kafka.*`` properties, without the prefix.
    group_id
        The consumer group of the query.

    Returns
    -------
    dict
        The user's properties without those of the membership, with the defaults and forced values of readers.

    Notes
    -----
    librdkafka asks for a coordinator even if there is only `assign`.  So a reader has its own ``group.id``,
    ``<group>-reader``.  The reader never joins it or commits to it, so this group is never created.  If the user may
    not describe it, reading still works.
    """
    reader_name = f"{group_id}-reader"
    return {"client.id": reader_name, **client_properties(ClientKind.READER, kafka_properties), "group.id": reader_name}


def librdkafka_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of librdkafka for a range reader.

    Parameters
    ----------
    config
        The result of `reader_config`.

    Notes
    -----
    A range that ends in control records or a compacted gap ends only with the end of the partition, which a broker
    reports after ``fetch.wait.max.ms``.
    """
    settings = {"fetch.wait.max.ms": str(_SHORT_WAIT_MS), **config}
    if "receive.message.max.bytes" in config:  # librdkafka refuses less than this and 512 bytes
        settings.setdefault("fetch.max.bytes", str(min(_FETCH_BYTES, int(config["receive.message.max.bytes"]) - 512)))
    return settings


_MOST_PARTITION_BYTES = 4 * 1024 * 1024
"""How much a long range fetches at a time, unless the user sets ``fetch.message.max.bytes``.  With records of 100 B,
this took a tenth less CPU time than 1 MB (medians of 7 pairs)."""

_WAIT_MS, _LONGEST_WAIT_MS = 500, 4000
"""How long a broker may hold a fetch without records: at first, and while it reports that there are records.  These are
Kafka's default, and the time that tiered storage may take.  A wait is rare: a planned range was in the log, and the
client also fetches control records."""


_LEADER_AGE_S = 300.0
"""How long a task believes who leads, or reads from a follower without asking the leader again, in seconds: as in
Java's client (``metadata.max.age.ms``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How to fetch.

    Attributes
    ----------
    read_committed : bool
        Whether to omit records of uncommitted transactions.
    check_crcs : bool
        Whether to check record batches.
    wait_ms : int
        How long the broker may wait for records at first.
    longest_wait_ms : int
        How long it may wait if there are records, but none have come.
    longest_answer_s : float
        How long an answer may take at most, in addition to that wait.
    partition_bytes, most_partition_bytes : int
        How much to fetch of a partition at a time: at first, and at most.  Large answers take less CPU time for each
        record.  But the last answer has records from beyond the range, so a fetch asks for no more than the range has
        brought so far.
    ahead_bytes : int
        How much data may wait for the reader before fetching pauses.
    batch_bytes : int
        The largest record batch, compressed or decompressed.
    rack : Rack
        The rack of the reader.  Leaders may name a follower in it (KIP-392).
    """

    read_committed: bool
    check_crcs: bool
    wait_ms: int
    longest_wait_ms: int
    longest_answer_s: float
    partition_bytes: int
    most_partition_bytes: int
    ahead_bytes: int
    batch_bytes: int
    rack: Rack


class DirectReaderSettings(NamedTuple):
    """The settings of the direct client: bootstrap servers, security, fetches, and when to ask for leaders again."""

    servers: list[Address]
    security: Security
    fetch: FetchSettings
    leaders: LeaderTimings = LeaderTimings(age_s=_LEADER_AGE_S)


def direct_settings(config: Mapping[str, str]) -> DirectReaderSettings:
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
    return DirectReaderSettings(*reach(config), _fetch_settings(config))


def _fetch_settings(config: Mapping[str, str]) -> FetchSettings:
    return FetchSettings(
        read_committed=config["isolation.level"] == "read_committed",
        check_crcs=not is_false(config["check.crcs"]),
        wait_ms=int(config.get("fetch.wait.max.ms", _WAIT_MS)),
        longest_wait_ms=int(config.get("fetch.wait.max.ms", _LONGEST_WAIT_MS)),
        longest_answer_s=int(value_of("socket.timeout.ms", config)) / 1000,
        partition_bytes=int(value_of("fetch.message.max.bytes", config)),
        most_partition_bytes=int(config.get("fetch.message.max.bytes", _MOST_PARTITION_BYTES)),
        ahead_bytes=int(config["queued.max.messages.kbytes"]) * 1024,
        batch_bytes=int(value_of("receive.message.max.bytes", config)),
        rack=Rack(config.get("client.rack") or None),
    )
