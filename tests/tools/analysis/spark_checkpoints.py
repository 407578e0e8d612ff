"""Checkpoints as Spark writes them for queries with its own Kafka source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

KAFKA = '{"orders":{"0":7}}'
"""An offset of Spark's Kafka source."""

METADATA = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {"spark.sql.shuffle.partitions": "200"}})


def write_checkpoint(
    folder: Path,
    *offsets: str,
    finished: Sequence[int] = (0,),
    begun: Sequence[int] = (0,),
    version: int = 1,
    starts: Mapping[str, str] | None = None,
) -> Path:
    """Write a checkpoint and return its folder.

    Parameters
    ----------
    folder : Path
        The folder.
    *offsets : str
        A line for each source, for the last finished batch.  Other batches have no offsets.
    finished, begun : sequence of int
        The batches in ``commits`` and in ``offsets``.
    version : int
        The version of the offset log.
    starts : mapping of str to str, optional
        The start of each source, by its name.
    """
    for log in ("offsets", "commits", "sources"):
        (folder / log).mkdir(parents=True, exist_ok=True)
    for batch in begun:
        lines = offsets if finished and batch == finished[-1] else ("-",) * len(offsets)
        (folder / "offsets" / str(batch)).write_text("\n".join((f"v{version}", METADATA, *lines)), encoding="utf-8")
        (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in finished:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")
    for name, offset in (starts or {}).items():
        (folder / "sources" / name).mkdir()
        (folder / "sources" / name / "0").write_text(f"\0v1\n{offset}", encoding="utf-8")
    return folder
