"""Write the golden files of the offset format: ``python -m tests.offsets.make_golden``, once per format version.

A golden file contains what its version has written into users' checkpoints.  So add golden files, but never edit one
after the release of its version.  The script refuses to overwrite a file.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark_kafka_group.offsets.batch_offset import FORMAT_VERSION, INITIAL, BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, TopicPartition

GOLDEN = Path(__file__).with_name("golden")

QUERY = "6f2c1c1e-95c7-4a0e-bb0d-1f7f2d1f1a55"
ORDERS_ID, CLICKS_ID = "QtOXfeWAR9uadceaKEMIPw", "-Jx5a_rTQPGFzS7Y0m9r2A"


def entry(
    start: int,
    until: int,
    leader_epoch: int | None = None,
    topic_id: str | None = None,
    lineage: str = "l",
) -> PartitionEntry:
    return PartitionEntry(
        OffsetRange(Offset(start), Offset(until)),
        None if leader_epoch is None else LeaderEpoch(leader_epoch),
        topic_id,
        lineage,
    )


SAMPLES = {
    "initial": INITIAL,
    "first-batch-without-records": BatchOffset(QUERY),
    "offsets-and-ranges": BatchOffset(
        QUERY,
        {
            TopicPartition("orders", 10): entry(0, 5, 4, ORDERS_ID, "1f0c"),
            TopicPartition("orders", 2): entry(7, 7, 0, ORDERS_ID, "1f0c"),
            TopicPartition("orders", 0): entry(100, 250, 4, ORDERS_ID, "b21d"),
            TopicPartition("clicks.eu-1", 0): entry(
                9223372036854775806, 9223372036854775807, 2147483647, CLICKS_ID, "1f0c"
            ),
        },
    ),
    "of-old-brokers": BatchOffset(
        QUERY,
        {
            TopicPartition("orders", 0): entry(100, 250),
            TopicPartition("orders", 1): entry(7, 7),
            TopicPartition("orders", 2): entry(0, 5, lineage="1f0c"),
            TopicPartition("orders", 3): entry(0, 5, 3),
        },
    ),
    "of-two-logs": BatchOffset(
        QUERY,
        {
            TopicPartition("orders", 0): entry(0, 3, 0, ORDERS_ID, "1f0c"),
            TopicPartition("orders", 1): entry(90, 90, 7, CLICKS_ID, "1f0c"),
        },
        rewinds=1,
    ),
    "after-a-rewind": BatchOffset(
        QUERY, {TopicPartition("orders", 0): entry(100, 100, 4, ORDERS_ID, "b21d")}, rewinds=2
    ),
}


def text(offset: BatchOffset) -> str:
    """Return ``offset`` in the form that Spark stores: PySpark calls ``json.dumps`` without options."""
    return json.dumps(offset.to_json())


def main() -> None:
    for name, offset in SAMPLES.items():
        path = GOLDEN / f"offset-v{FORMAT_VERSION}-{name}.json"
        if path.exists():
            print(f"{path.name} exists and stays as it is")
        else:
            path.write_text(text(offset), encoding="utf-8")
            print(f"{path.name} written")


if __name__ == "__main__":
    main()
