"""Read the output of the pipelines: a Parquet directory for each batch, and the time at which it was complete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audit import Row

COLUMNS = ["partition", "offset", "customer_id", "sequence", "kafka_time"]


def rows_of(directory: Path, application: str) -> Iterator[Row]:
    """Yield the rows of one application's complete batches.

    Spark writes the file `_SUCCESS` last. A batch without it does not count. The time of the file is the time at which
    the rows became visible.
    """
    import pyarrow.parquet as pq

    for success in directory.glob("batch=*/_SUCCESS"):
        delivered_at = success.stat().st_mtime
        for path in success.parent.glob("*.parquet"):
            table = pq.ParquetFile(path).read(columns=COLUMNS)
            for partition, offset, key, sequence, appended_at in zip(
                *(table.column(name).to_pylist() for name in COLUMNS), strict=True
            ):
                yield Row(partition, offset, key, sequence, appended_at.timestamp(), delivered_at, application)
