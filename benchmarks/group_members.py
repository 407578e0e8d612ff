"""A process with some members of a group, without Spark: each member is a query, called as Spark calls it.

``python -m benchmarks.group_members SETTINGS``, with a JSON object of the parameters of :class:`Members`.

Each member has a thread that plans a batch once a second, or as told, and reports it as finished at once.  It reads no
records.  The process reads commands from standard input, answers each with a line, and ends at the end of its input:

* ``start``: start all members at once;
* ``state``: return a JSON object, see :meth:`Members.state`;
* ``stop NAME ...``: stop these members, or all of them, and wait until they have left.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.query.query import Query
from pyspark_kafka_group.query.second_source import SourceCheck

TRIGGER_S = 1.0
"""The default time between two batches of a member."""


class GroupMember:
    """One query without an earlier run, so that it starts only from the state of the group.

    Attributes
    ----------
    problem : Exception or None
        The error that has ended it.
    """

    def __init__(self, name: str, options: Mapping[str, str], folder: Path, trigger_s: float) -> None:
        self.name = name
        self._trigger_s = trigger_s
        self.problem: Exception | None = None
        log = folder / f"{name}.jsonl"
        settings = parse({**options, "kafka.client.id": name, "eventLog": str(log)})
        self._query = Query(settings, SourceCheck(settings, time.monotonic()))
        self._joined = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        position: dict[str, Any] = INITIAL.to_json()
        due = time.monotonic()
        try:
            while not self._ending.is_set():
                end = self._query.latest_offset(position, None)
                self._joined = True
                if end is not position:
                    position = json.loads(json.dumps(end))
                    self._query.finish(position)
                due = max(due + self._trigger_s, time.monotonic())
                self._ending.wait(due - time.monotonic())
        except Exception as problem:
            self.problem = problem

    def report(self) -> dict[str, Any] | None:
        """Return the report that a query's progress would contain; None before its first answer."""
        return self._query.report() if self._joined else None

    def stop(self) -> None:
        """Leave the group."""
        self._ending.set()
        self._thread.join()
        self._query.stop()


class Members:
    """The members of this process."""

    def __init__(self, *, names: Sequence[str], options: Mapping[str, str], folder: str, trigger_s: float) -> None:
        self._names = names
        self._trigger_s = trigger_s
        self._options = options
        self._folder = Path(folder)
        self._members: dict[str, GroupMember] = {}

    def start(self) -> None:
        """Start all members at once."""
        for name in self._names:
            self._members[name] = GroupMember(name, self._options, self._folder, self._trigger_s)

    def state(self) -> dict[str, Any]:
        """Return the errors, the planned partitions of each member, and the totals of commits and of their time."""
        reports = {name: member.report() for name, member in self._members.items()}
        known = [report for report in reports.values() if report is not None]
        cpu = time.process_time()
        return {
            "problems": [f"{m.name}: {m.problem!r}" for m in self._members.values() if m.problem is not None],
            "owned": {name: _started(report) for name, report in reports.items()},
            "commits": sum(report["events"].get("committed", 0) for report in known),
            "failed": sum(report["events"].get("commitFailed", 0) for report in known),
            "committing_ms": sum(report["timeMs"]["committing"] for report in known),
            "cpu_s": cpu,
        }

    def stop(self, names: Sequence[str]) -> None:
        """Stop these members, or all if there are no names."""
        leaving = [self._members.pop(name) for name in names or [*self._members]]
        threads = [threading.Thread(target=member.stop) for member in leaving]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _started(report: Mapping[str, Any] | None) -> int:
    """Return the number of a member's partitions that have a position."""
    if report is None:
        return 0
    return sum(at is not None for positions in report["assigned"].values() for at in positions.values())


def main(settings: str) -> None:
    """Run the commands from standard input."""
    members = Members(**json.loads(settings))
    for line in sys.stdin:
        command, *names = line.split()
        answer: Any = "done"
        match command:
            case "start":
                members.start()
            case "state":
                answer = members.state()
            case "stop":
                members.stop(names)
        print(json.dumps(answer), flush=True)
    members.stop([])


@contextlib.contextmanager
def member_process(
    names: Sequence[str], options: Mapping[str, str], folder: Path, trigger_s: float = TRIGGER_S
) -> Iterator[subprocess.Popen[str]]:
    """Run a process with these members, which have not started yet.  It ends with this process, or with the block."""
    settings = json.dumps({"names": names, "options": options, "folder": str(folder), "trigger_s": trigger_s})
    # The process ends at the end of its input, so it cannot outlive this process.
    command = [sys.executable, "-m", "benchmarks.group_members", settings]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def ask(process: subprocess.Popen[str], line: str) -> Any:
    """Send a command to a process of members, and return its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(line, file=process.stdin, flush=True)
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"a process of members has ended at {line!r}")
    return json.loads(answer)


if __name__ == "__main__":
    main(sys.argv[1])
