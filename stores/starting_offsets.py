"""The offsets of a store as text for the option ``startingOffsets``.  Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from pyspark_kafka_group.offsets.types import TopicPartition


def starting_offsets(offsets: Mapping[TopicPartition, int], topics: Collection[str]) -> str:
    """Return the next offsets of these topics as JSON; ``earliest`` if there are none.

    Partitions that the JSON does not name start at their beginning.
    """
    found: dict[str, dict[str, int]] = {}
    for tp, offset in offsets.items():
        if tp.topic in topics:
            found.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return json.dumps(found) if found else "earliest"
