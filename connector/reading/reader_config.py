"""The librdkafka configuration of the consumers that read ranges in executors.

They are not members of the group: they call ``assign`` with explicit offsets, and do not subscribe or commit.  So they
do not get the user's properties for the membership.  Properties on which correct ranges depend are forced.  The others
are tuned for short ranges that are read to their end.
:mod:`pyspark_kafka_group.cluster.properties.kafka_properties` has the list.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafka_group.cluster.properties.client_config import client_properties
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind

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
