"""A sink as Spark's contract requires: it writes each batch once, under its id, however often the batch runs.

The sink writes a batch into a temporary file, and renames that file to the batch's id.  It skips a batch whose file
exists, even if the replay reads other records.  This rule is strict: the sink never writes records that a replay adds.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Delivery(NamedTuple):
    """Consecutive records of one partition that one batch has written."""

    member: str
    time: float
    batch: int
    topic: str
    partition: int
    start: int
    until: int

    @property
    def tp(self) -> str:
        """The partition as events name it."""
        return f"{self.topic}-{self.partition}"


def runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return ``offsets`` as ``[start, until)`` ranges; an offset that occurs twice is in two ranges."""
    return in_order(sorted(offsets))


def in_order(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return ``offsets`` as ``[start, until)`` ranges in the order in which they came, without sorting."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


class BatchFolder:
    """The batches that one query has written, across all its restarts.

    Parameters
    ----------
    folder : Path
        The folder with one file for each batch.
    member : str
        The name of the query in the deliveries.
    """

    def __init__(self, folder: Path, member: str = "") -> None:
        self._folder = folder
        self._member = member
        self._read: dict[str, list[Delivery]] = {}

    def has(self, batch: int) -> bool:
        """Return whether the batch was written before."""
        return self._file(batch).exists()

    def write(self, batch: int, rows: Iterable[tuple[str, int, int]]) -> None:
        """Write a batch's rows ``(topic, partition, offset)``, all or nothing."""
        offsets: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in rows:
            offsets.setdefault((topic, partition), []).append(offset)
        found = [[topic, partition, *run] for (topic, partition), o in offsets.items() for run in in_order(o)]
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f".{batch}.{os.getpid()}"
        unfinished.write_text(json.dumps({"time": time.time(), "runs": found}))
        unfinished.rename(self._file(batch))

    def read(self) -> list[Delivery]:
        """Return all deliveries, ordered by batch."""
        for file in self._folder.glob("*.json") if self._folder.exists() else ():
            if file.name not in self._read:  # a file never changes
                content = json.loads(file.read_text())
                self._read[file.name] = [
                    Delivery(self._member, content["time"], int(file.stem), *run) for run in content["runs"]
                ]
        return [delivery for name in sorted(self._read) for delivery in self._read[name]]

    def _file(self, batch: int) -> Path:
        return self._folder / f"{batch:09}.json"
