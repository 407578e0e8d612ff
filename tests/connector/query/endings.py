"""Send SIGTERM to source processes at each line of their main thread, and report where a member stays behind.

    python -m tests.connector.query.endings FOLDER

The command prints one JSON object:

- ``points``: the number of points;
- ``joined``: the number of points at which the member had already joined the group;
- ``stayed``: the points at which the member stayed in the group.

Each point has its own process, a fork of a process without threads.  :func:`source_process` does what Spark's runner
does around the reader.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

from pyspark_kafka_group import stream_reader, stream_reader_42
from pyspark_kafka_group.coordinator import commits, group_thread, membership, rebalances, start_up
from pyspark_kafka_group.coordinator.member import Callbacks
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.query import process, query, second_source
from pyspark_kafka_group.query.stream_planner import StreamPlanner
from pyspark_kafka_group.stream_reader_42 import KafkaGroupStreamReader
from tests.coordinator.fakes import FakeOffsets
from tests.coordinator.machine import A, info
from tests.coordinator.test_group_thread import FakeCommits, FakeCommitter, FakeMember

TRACED = {
    module.__file__ for module in (stream_reader, stream_reader_42, query, second_source, membership, start_up, process)
} | {__file__}

# The threads of a process mostly wait for each other, so many processes can run at once.
AT_ONCE = 12

Place = tuple[str, int, str]


class Cluster(FakeOffsets):
    """A cluster with one topic of one partition."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.found = {A: info(0)}

    def connect(self, *_: Any) -> dict[str, int]:
        return {"t": 1}


class NotedMember(FakeMember):
    """Writes to a file when it joins and when it leaves."""

    notes: Path

    def __init__(self, settings: GroupSettings, *, client_id: str, callbacks: Callbacks) -> None:
        super().__init__(settings, client_id=client_id, callbacks=callbacks)
        self.pending.append(lambda: self.assigned((A,)))

    def subscribe(self, topics: list[str]) -> None:
        super().subscribe(topics)
        note(self.notes, "joined")

    def close(self) -> None:
        note(self.notes, "left")


class Watch:
    """Finds nothing to read."""

    listed_at = None
    known_starts: Mapping[TopicPartition, Offset] = MappingProxyType({})

    def __init__(self, _: GroupSettings) -> None:
        pass

    def list_starts(self, _: object) -> None:
        pass

    def close(self) -> None:
        pass


def note(file: Path, what: str) -> None:
    with file.open("a") as lines:
        lines.write(what + "\n")


def source_process() -> None:
    """Make the first calls of a new query, as Spark's runner does until Spark goes away."""
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.group.id": "g",
        "kafka.group.instance.id": "i",  # a static member leaves without a question to the cluster
        "subscribe": "t",
    }
    # Deliberate: the first batch is empty.  There is no cluster to plan another one.
    StreamPlanner.next_batch = lambda _, group, *__, **___: group.plan({}, always=True)  # type: ignore[method-assign]
    reader = KafkaGroupStreamReader(parse(options))
    try:
        try:
            start = INITIAL.to_json()
            reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            reader.reportLatestOffset()
            reader.partitions(start, end)
            raise EOFError
        finally:
            reader.stop()
    except BaseException:
        sys.exit(255)


def traced(run: Callable[[], None], visit: Callable[[Place], None]) -> None:
    """Call ``visit`` before each line, call and return of this thread in the modules of a source process."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        visit((Path(frame.f_code.co_filename).name, frame.f_lineno, event))
        return trace

    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)


def forked(notes: Path, visit: Callable[[Place], None]) -> int:
    """Run a source process in a fork; return its id."""
    child = os.fork()
    if child:
        return child
    NotedMember.notes = notes
    with contextlib.suppress(SystemExit):
        traced(source_process, visit)
    atexit._run_exitfuncs()  # as at the end of an interpreter, which daemon threads do not outlive
    os._exit(0)


def ended_at(point: int, notes: Path) -> int:
    """Start a source process that ends at this point."""
    before = iter(range(point))

    def visit(_: Place) -> None:
        if next(before, None) is None and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            os.kill(os.getpid(), signal.SIGTERM)

    return forked(notes, visit)


def noted(notes: Path) -> list[str]:
    """Return what a member has written."""
    return notes.read_text().split() if notes.exists() else []


def main(folder: Path) -> dict[str, Any]:
    """Find each place once, and end a source process there."""
    for module, name, stand_in in (
        (start_up, "GroupOffsets", Cluster),
        (rebalances, "Member", NotedMember),
        (group_thread, "Commits", FakeCommits),
        (commits, "TransactionalCommitter", FakeCommitter),
        (query, "LogWatch", Watch),
    ):
        setattr(module, name, stand_in)
    places = folder / "places"
    os.waitpid(forked(folder / "undisturbed", lambda place: note(places, json.dumps(place))), 0)
    first: dict[str, int] = {}
    for point, line in enumerate(places.read_text().splitlines()):
        first.setdefault(line, point)
    running: list[int] = []
    for point in first.values():
        running.append(ended_at(point, folder / str(point)))
        if len(running) == AT_ONCE:
            os.waitpid(running.pop(0), 0)
    for child in running:
        os.waitpid(child, 0)
    ends = {place: noted(folder / str(point)) for place, point in first.items()}
    return {
        "points": len(ends),
        "joined": sum("joined" in end for end in ends.values()),
        "stayed": [place for place, end in ends.items() if end == ["joined"]],
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
