"""The librdkafka configuration of the consumers that read ranges in executors.

They are no members of the group: ``assign`` with explicit offsets, no subscription, no commit.  So a user's properties
of the membership do not reach them.  Properties that their exactness rests on are forced, and the rest is tuned for
short ranges that are read to their very end.  Which property is which says
:mod:`pyspark_kafka_group.cluster.properties.kafka_properties`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafka_group.cluster.properties.client_config import client_properties
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind

_SHORT_WAIT_MS, _LONG_WAIT_MS = 20, 4000


def reader_config(kafka_properties: Mapping[str, str], group_id: str) -> dict[str, str]:
    """Return the configuration of a range reader.

    Parameters
    ----------
    kafka_properties
        What the user set as ``kafka.*``, without that prefix.
    group_id
        The consumer group of the query.

    Returns
    -------
    dict
        The user's properties without those of the membership, over the defaults for readers, under what readers
        cannot do without.

    Notes
    -----
    librdkafka asks for a coordinator even where there is only `assign`, so a reader has a ``group.id`` of its own,
    ``<group>-reader``.  It never joins or commits there, so no such group comes to exist, and a refusal to describe
    it does not disturb reading.
    """
    reader_name = f"{group_id}-reader"
    return {"client.id": reader_name, **client_properties(ClientKind.READER, kafka_properties), "group.id": reader_name}


def librdkafka_config(
    config: Mapping[str, str], *, patient: bool = False, without_rack: bool = False
) -> dict[str, str]:
    """Return the configuration of librdkafka for a range reader.

    Parameters
    ----------
    config
        What `reader_config` returns.
    patient
        Whether a broker may hold a request long that it has nothing for.  A range that ends in control records or a
        compacted gap waits for this each time, because there only the end of the partition ends it.  So a broker may
        only if records that must be there have not come.  Until Kafka 3.8 (KIP-1018) records in tiered
        storage come only if they are found within this time.
    without_rack
        Whether to leave out ``client.rack``, so that leaders name no follower.
    """
    settings = {"fetch.wait.max.ms": str(_LONG_WAIT_MS if patient else _SHORT_WAIT_MS), **config}
    if without_rack:
        settings.pop("client.rack", None)
    return settings
