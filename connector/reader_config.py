"""The librdkafka configuration of the consumers that read ranges in executors.

They are no members of the group: ``assign`` with explicit offsets, no subscription, no commit.  So what a user
sets for the membership does not reach them, what their exactness rests on is forced, and the rest is tuned for
short ranges that are read to their very end.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafka_group.offsets.clients import CLIENT_DEFAULTS

MEMBERSHIP_PROPERTIES = frozenset(
    {
        "auto.commit.enable",  # librdkafka's older name of enable.auto.commit, which is forced below
        "auto.commit.interval.ms",
        "group.instance.id",  # two clients of one id would fence each other
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
"""Properties that only a member of the group has a use for."""

# Deliberate: fetch.message.max.bytes stays at librdkafka's 1 MB.  4 MB read no faster from a near broker, but brought
# the first record of a range in 45 ms instead of 10, and fetched more behind the end of a short range for nothing.
# Where the round trip exceeds some 10 ms, raising it pays.
_DEFAULTS = {
    # As in Kafka's Java client, and so in Spark's own source; librdkafka leaves it off.  About 0.03 us per record.
    "check.crcs": "true",
    # Nobody collects a reader's KIP-714 metrics; they would cost a subscription request per consumer.
    "enable.metrics.push": "false",
    # How long fetching rests once the queue is full.  librdkafka's 1000 leaves a fast reader idle for that long;
    # 0 would make its broker thread spin.
    "fetch.queue.backoff.ms": "10",
    # The end of a range comes from the planner under the same isolation level.
    "isolation.level": "read_committed",
    # Bounds of what is fetched ahead, whichever is reached first.  At some 0.7 million records/s and 70 MB/s of one
    # reader they cover 0.15 s, ample for fetch.queue.backoff.ms; an executor holds this once per running task.
    "queued.max.messages.kbytes": str(32 * 1024),
    "queued.min.messages": "100000",
}

_SHORT_WAIT_MS, _LONG_WAIT_MS = 20, 4000

_FORCED = {
    # Reading a deleted topic must not bring it back, empty.
    "allow.auto.create.topics": "false",
    # Any other value jumps over lost records in silence.
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    # Offsets at the end of a range may belong to no record; then only this event tells that the end is reached.
    "enable.partition.eof": "true",
}


def reader_config(kafka_properties: Mapping[str, str], group_id: str) -> dict[str, str]:
    """The configuration of a range reader.

    Parameters
    ----------
    kafka_properties
        What the user set as ``kafka.*``, without that prefix.
    group_id
        The consumer group of the query.

    Returns
    -------
    dict
        The user's properties without `MEMBERSHIP_PROPERTIES`, over the defaults for readers, under what readers
        cannot do without.

    Notes
    -----
    librdkafka asks for a coordinator even where there is only `assign`, so a reader has a ``group.id`` of its own,
    ``<group>-reader``.  It never joins or commits there, so no such group comes to exist, and a refusal to describe
    it does not disturb reading.
    """
    reader_name = f"{group_id}-reader"
    wanted = {name: value for name, value in kafka_properties.items() if name not in MEMBERSHIP_PROPERTIES}
    return {"client.id": reader_name, **CLIENT_DEFAULTS, **_DEFAULTS, **wanted, **_FORCED, "group.id": reader_name}


def librdkafka_config(config: Mapping[str, str], *, patient: bool = False) -> dict[str, str]:
    """What librdkafka is given of the configuration of a range reader.

    Parameters
    ----------
    config
        What `reader_config` returns.
    patient
        Whether a broker may hold a request long that it has nothing for.  A range that ends in control records or a
        compacted gap waits for this each time, because there only the end of the partition ends it; so a broker may
        only where records have not come although they must be there.  Until Kafka 3.8 (KIP-1018) records in tiered
        storage come only if they are found within this time.
    """
    return {"fetch.wait.max.ms": str(_LONG_WAIT_MS if patient else _SHORT_WAIT_MS), **config}
