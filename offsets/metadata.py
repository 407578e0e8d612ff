"""The metadata string of each committed offset, which Kafka stores beside it.

``{"v": 1, "q": "<query id>", "n": 6}``: who committed, and how many partitions the topic had when the group
first started it (see :mod:`pyspark_kafka_group.offsets.start`).  Brokers allow 4096 bytes; this takes 70.
"""

from __future__ import annotations

import json


def encode(query_id: str, first_partitions: int) -> str:
    """Return the metadata for one committed offset."""
    return json.dumps({"v": 1, "q": query_id, "n": first_partitions}, separators=(",", ":"))


def first_partitions(metadata: str | None) -> int | None:
    """Return the partition count that ``metadata`` carries; None for what another program committed."""
    if not metadata:
        return None
    try:
        document = json.loads(metadata)
    except ValueError:
        return None
    count = document.get("n") if isinstance(document, dict) else None
    return count if isinstance(count, int) else None
