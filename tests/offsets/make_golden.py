"""Writes the golden files of the offset format: ``python -m tests.offsets.make_golden``, once per format version.

Golden files are added, never edited: each is what some version has put into users' checkpoints.  This refuses to
overwrite one.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark_kafka_group.offsets.document import FORMAT_VERSION, INITIAL, BatchOffset, Mark
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

GOLDEN = Path(__file__).with_name("golden")


def mark(start: int, until: int, seen: int | None) -> Mark:
    return Mark(OffsetRange(Offset(start), Offset(until)), None if seen is None else Offset(seen))


SAMPLES = {
    "initial": INITIAL,
    "first-batch-without-records": BatchOffset("6f2c1c1e-95c7-4a0e-bb0d-1f7f2d1f1a55"),
    "marks-and-ranges": BatchOffset(
        "6f2c1c1e-95c7-4a0e-bb0d-1f7f2d1f1a55",
        {
            TopicPartition("orders", 10): mark(0, 5, 0),
            TopicPartition("orders", 2): mark(7, 7, None),
            TopicPartition("orders", 0): mark(100, 250, 100),
            TopicPartition("clicks.eu-1", 0): mark(9223372036854775806, 9223372036854775807, 9223372036854775806),
        },
    ),
    "after-a-rewind": BatchOffset(
        "6f2c1c1e-95c7-4a0e-bb0d-1f7f2d1f1a55", {TopicPartition("orders", 0): mark(100, 100, 90)}, rewinds=2
    ),
}


def text(offset: BatchOffset) -> str:
    """Return ``offset`` as Spark stores it: PySpark calls ``json.dumps`` without options."""
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
