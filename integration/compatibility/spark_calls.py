"""A query without a JVM: the calls that Spark makes, in Spark's order, with a log of batches such as Spark's.

It obeys the configuration of :mod:`integration.application`, and starts in a second or two also on a machine on which
Spark takes minutes.  Any version of the package runs in it, because it uses nothing but PySpark's interface.
"""

from __future__ import annotations

import json
import pickle
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyspark_kafka_group
from integration.application import take_nap
from integration.sink import BatchFolder

TRIGGER_S = 0.5


class BatchLog:
    """Texts by number, each in a file of its own; what is there is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def newest(self) -> int:
        """The number of the newest one; -1 if there is none."""
        return max((int(file.name) for file in self._folder.iterdir() if file.name.isdecimal()), default=-1)

    def write(self, number: int, text: str) -> None:
        unfinished = self._folder / f".{number}"
        unfinished.write_text(text)
        unfinished.rename(self._folder / str(number))

    def read(self, number: int) -> Any:
        return json.loads((self._folder / str(number)).read_text())


class Query:
    """A query, from its last batch on."""

    def __init__(self, config: dict[str, Any]) -> None:
        checkpoint = Path(config["checkpoint"])
        self._offsets = BatchLog(checkpoint / "offsets")
        self._commits = BatchLog(checkpoint / "commits")
        self._sink = BatchFolder(Path(config["rows"]))
        self._nap = Path(config["nap"])
        source = pyspark_kafka_group.DefaultSource(config["options"])
        self._reader = source.streamReader(source.schema())
        self._task = pickle.dumps(self._reader)  # what executors get

    def run(self, ending: threading.Event) -> None:
        """Run batches until the event is set; then leave the group between two of them."""
        reader, offsets = self._reader, self._offsets
        limit = reader.getDefaultReadLimit()
        if self._commits.newest < offsets.newest:
            self._run_batch(offsets.newest)
        while not ending.wait(TRIGGER_S):
            start = self._end_of(offsets.newest)
            end = reader.latestOffset(start, limit)
            reader.reportLatestOffset()
            # As texts, because that is how Spark compares them.  The first batch runs in any case.
            if json.dumps(end) != json.dumps(start) or offsets.newest < 0:
                number = offsets.newest + 1
                offsets.write(number, json.dumps(end))
                if number:
                    reader.commit(start)
                self._run_batch(number)
        if offsets.newest >= 0:
            reader.commit(self._end_of(offsets.newest))
        reader.stop()

    def _run_batch(self, number: int) -> None:
        reader = pickle.loads(self._task)
        rows: list[tuple[str, int, int]] = []
        for partition in self._reader.partitions(self._end_of(number - 1), self._end_of(number)):
            for batch in reader.read(pickle.loads(pickle.dumps(partition))):
                columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
                rows += zip(*columns, strict=True)
        before_s, after_s = take_nap(self._nap)
        time.sleep(before_s)
        if not self._sink.has(number):
            self._sink.write(number, rows)
        time.sleep(after_s)
        self._commits.write(number, "{}")

    def _end_of(self, number: int) -> Any:
        return self._offsets.read(number) if number >= 0 else self._reader.initialOffset()


def main() -> None:
    """Run until standard input is closed."""
    query = Query(json.loads(Path(sys.argv[1]).read_text()))
    ending = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ending.set()

    threading.Thread(target=wait, daemon=True).start()
    query.run(ending)


if __name__ == "__main__":
    main()
