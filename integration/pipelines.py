"""Queries for tests: a stream of ``kafka-group``, and a sink that remembers every record.

:class:`Pipeline` runs in the session of the test.  :class:`Application` is a Spark application in a process of its
own.  Both have the same rows and events, so the same oracles judge them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration.processes import Part, Process, send, session
from integration.sink import BatchFolder, Delivery
from pyspark_kafka_group import stop
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.batch_offset import BatchOffset

T = TypeVar("T")

PATIENCE_S = 180.0
"""The longest wait for anything that must happen.  Only a hang or a slow machine comes near it."""

_ASK_AGAIN_S = 0.05
_ASK_AGAIN_AT_THE_LATEST_S = 0.5

# How long a JVM may take to write the stacks of its threads.
_STACKS_S = 3.0

BATCHES_APART = "1 second"
"""The time between batches of an application, unless a test sets another."""

SMALL = "--master local[1] --driver-memory 512m --conf spark.ui.enabled=false pyspark-shell"
"""``PYSPARK_SUBMIT_ARGS`` for examples.  An example does not set where Spark runs: its user decides that."""

TOO_BUSY = "Python worker failed to connect back"
"""The error of a query if a Python process does not start within Spark's 10 s.  Only a busy machine needs longer."""


class Row(NamedTuple):
    """One delivered record."""

    time: float
    batch: int
    topic: str
    partition: int
    offset: int


def wait_for(condition: Callable[[], Any], what: str, *, timeout_s: float = PATIENCE_S) -> Any:
    """Wait until ``condition`` returns a true value, and return that value.

    Call a slow condition less often, to leave the processor to the processes under test.
    """
    deadline = time.monotonic() + timeout_s
    while (begin := time.monotonic()) < deadline:
        result = condition()
        if result:
            return result
        took_s = time.monotonic() - begin
        time.sleep(min(max(_ASK_AGAIN_S, 4 * took_s), _ASK_AGAIN_AT_THE_LATEST_S))
    raise AssertionError(f"not within {timeout_s:g} s: {what}")


def answered(ask: Callable[[], T]) -> T:
    """Return the first answer of a coordinator.  Retry until then, because a new cluster must first create one."""
    answers: list[T] = []

    def answers_now() -> bool:
        with contextlib.suppress(TryAgainError):
            answers.append(ask())
        return bool(answers)

    wait_for(answers_now, "a coordinator answers", timeout_s=30)
    return answers[0]


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of an event log, oldest first, without an incomplete last line.

    Tests read a log many times, and queries only append to it.  So this function keeps the events that it has read.
    """
    with _READ_LOCK:
        size, events = _READ.get(path, (0, []))
        if not path.exists() or path.stat().st_size < size:  # no log yet, or another one
            size, events = 0, []
        if path.exists():
            with path.open("rb") as log:
                log.seek(size)
                new = log.read()
            whole = new[: new.rfind(b"\n") + 1]
            events += [json.loads(line) for line in whole.splitlines()]
            _READ[path] = (size + len(whole), events)
        return list(events)


_READ: dict[Path, tuple[int, list[dict[str, Any]]]] = {}
_READ_LOCK = threading.Lock()


SPARK_PASSES_START = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark is 4.2 or newer, and so passes the start of a batch and a limit to a source."""


@dataclass
class Pipeline:
    """One query in the test's own session.

    Parameters
    ----------
    spark : SparkSession
        The session.
    folder : Path
        The folder for checkpoint and event log.  A pipeline with the same folder and name is a restart.
    options : mapping
        The options of the source.
    name : str
        Distinguishes queries in one folder.
    before_batch : callable, optional
        Called with the batch id before the sink takes a batch's rows.  It may block, or raise to fail the batch.
    """

    spark: SparkSession
    folder: Path
    options: Mapping[str, str]
    name: str = "query"
    before_batch: Callable[[int], None] | None = None
    rows: list[Row] = field(default_factory=list)
    query: StreamingQuery | None = None

    @property
    def event_log(self) -> Path:
        return self.folder / f"{self.name}.events.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"{self.name}.checkpoint"

    def load(self) -> DataFrame:
        options = {"kafka.client.id": self.name, "eventLog": str(self.event_log), **self.options}
        if not SPARK_PASSES_START:
            # Spark 4.0 and 4.1 do not report to a source that the last batch of a run is finished.
            options.setdefault("checkpointLocation", str(self.checkpoint))
        return self.spark.readStream.format("kafka-group").options(**options).load()

    def start(self, **trigger: Any) -> Pipeline:
        """Start the query; ``trigger`` as for ``writeStream.trigger``."""
        writer = self.load().writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        self.query = writer.start()
        return self

    def run_available(self) -> Pipeline:
        """Run the query with ``availableNow`` to its end."""
        self.start(availableNow=True)
        assert self.started.awaitTermination(int(PATIENCE_S)), "the run does not end"
        if not SPARK_PASSES_START:  # the source process commits the last batch while it ends
            wait_for(lambda: len(self.events("left")) == len(self.events("joined")), "the source process has left")
        return self

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        if self.before_batch is not None:
            self.before_batch(batch_id)
        found = batch.select("topic", "partition", "offset").collect()
        now = time.time()
        self.rows.extend(Row(now, batch_id, r.topic, r.partition, r.offset) for r in found)

    @property
    def started(self) -> StreamingQuery:
        """The query, after its start."""
        assert self.query is not None
        return self.query

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def stop_cleanly(self) -> None:
        """Stop the query between two batches, and fail if that does not work."""
        assert stop(self.started), f"{self.name} was not stopped between two batches"

    def failure(self) -> str:
        """Wait until the query has failed, and return why."""
        return str(wait_for(self.started.exception, f"{self.name} fails"))

    def progress(self) -> dict[str, Any]:
        """Return the source's part of the last progress, with ``latestOffset`` as an object."""
        last = self.started.lastProgress
        if last is None:
            return {}
        source = json.loads(last.json)["sources"][0] if hasattr(last, "json") else dict(last["sources"][0])
        latest = source.get("latestOffset")
        source["latestOffset"] = json.loads(latest) if isinstance(latest, str) else latest
        return dict(source)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return all events of the member, or only the events with these names."""
        return [event for event in read_events(self.event_log) if not names or event["event"] in names]

    def owned(self) -> set[str]:
        """Return the partitions that the member owns, according to its events."""
        return owned_after(self.events())

    def wait_for_rows(self, count: int) -> None:
        def enough() -> bool:
            problem = self.started.exception()
            assert problem is None, f"{self.name} failed: {problem}"
            return len(self.rows) >= count

        wait_for(enough, f"{count} rows of {self.name}")

    def wait_for_ownership(self, count: int) -> None:
        wait_for(lambda: len(self.owned()) == count, f"{self.name} owns {count} partitions")


def has_logged_a_batch(checkpoint: Path) -> bool:
    """Return whether Spark's log contains a batch: batch 0, or a later one after Spark has deleted the oldest.

    A query that stops or dies while it writes batch 0 leaves a file behind.  Spark 4.3 refuses to start with this file
    (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY), with any source.
    """
    return any(file.name.isdecimal() for file in (checkpoint / "offsets").glob("*"))


def newest_batch(folder: Path) -> int | None:
    """Return the highest batch number in one of Spark's logs."""
    return max((int(file.name) for file in folder.glob("*") if file.name.isdecimal()), default=None)


def finished_in(checkpoint: Path) -> dict[str, int]:
    """Return the processed offset of each partition in the newest batch that Spark has logged as finished."""
    batch = newest_batch(checkpoint / "commits")
    if batch is None:
        return {}
    document = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
    return {str(tp): entry.range.until for tp, entry in BatchOffset.from_json(document).entries.items()}


def owned_after(events: Iterable[dict[str, Any]]) -> set[str]:
    """Replay events, and return the partitions that the member owns after them."""
    owned: set[str] = set()
    for event in events:
        match event["event"]:
            case "started":
                owned |= event["positions"].keys()
            case "released" | "lost" | "draining" | "logChanged":
                owned -= set(event["partitions"])
            case "expired":
                owned -= event["ranges"].keys()
            case "left":
                owned.clear()
    return owned


class Application:
    """One Spark application, in a process group of its own.

    Parameters
    ----------
    folder : Path
        The folder for checkpoint, rows, events and log.  An application with the same folder and name is a restart.
    name : str
        The name of the member.
    options : mapping
        The options of the source.
    trigger : str
        The time between two batches.  Without a pause, the batches of three applications fill two cores.
    worker_python : path
        The program with which Spark starts its Python processes, including the source process.

    Attributes
    ----------
    signals_sent : list of (int, int)
        The process id and number of each signal that :meth:`send` has sent.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        options: Mapping[str, str],
        *,
        trigger: str = BATCHES_APART,
        worker_python: str | os.PathLike[str] = sys.executable,
    ) -> None:
        self.name = name
        self.signals_sent: list[tuple[int, int]] = []
        self._worker_python = os.fspath(worker_python)
        self._sink = BatchFolder(folder / f"{name}.rows", name)
        self._nap = folder / f"{name}.nap"
        self.event_log = folder / f"{name}.events.jsonl"
        self._log = folder / f"{name}.log"
        self.config = folder / f"{name}.json"
        self._checkpoint = folder / f"{name}.checkpoint"
        self.config.write_text(
            json.dumps(
                {
                    "name": name,
                    "rows": str(folder / f"{name}.rows"),
                    "nap": str(self._nap),
                    "trigger": trigger,
                    "checkpoint": str(self._checkpoint),
                    "options": {"kafka.client.id": name, "eventLog": str(self.event_log), **options},
                }
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, **switches: Any) -> Application:
        """Set switches of ``application.py``, before the start."""
        self.config.write_text(json.dumps({**json.loads(self.config.read_text()), **switches}))
        return self

    def start(self) -> Application:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.home,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self.environment(),
            )
        return self

    def command(self) -> list[str]:
        """Return the command that starts the application."""
        return [sys.executable, "-m", "integration.application", str(self.config)]

    def environment(self) -> dict[str, str]:
        """Return the environment of the application."""
        # Spark starts the source process with the second variable if it is set, and the Makefile sets it.
        python = {"PYSPARK_PYTHON": self._worker_python, "PYSPARK_DRIVER_PYTHON": self._worker_python}
        return {**os.environ, **python, "SPARK_LOCAL_IP": "127.0.0.1"}

    @property
    def home(self) -> Path:
        """The working directory of the application."""
        return Path(__file__).parents[1]

    @property
    def deliveries(self) -> list[Delivery]:
        """The contents of the sink, as ranges."""
        return self._sink.read()

    @property
    def rows(self) -> list[Row]:
        """The contents of the sink, record by record."""
        return [Row(d.time, d.batch, d.topic, d.partition, o) for d in self.deliveries for o in range(d.start, d.until)]

    @property
    def started(self) -> bool:
        """Whether the application has a process, running or ended."""
        return self._process is not None

    @property
    def has_logged_a_batch(self) -> bool:
        """Whether Spark's log contains a batch; see :func:`has_logged_a_batch`."""
        return has_logged_a_batch(self._checkpoint)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the application; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    @property
    def log_size(self) -> int:
        """The size of the log, a position for :meth:`log_since`."""
        return self._log.stat().st_size if self._log.exists() else 0

    def log_since(self, position: int) -> str:
        """Return the log from ``position`` on."""
        with self._log.open(errors="replace") as log:
            log.seek(position)
            return log.read()

    def processes(self, *parts: Part) -> list[Process]:
        """Return the living processes of the application, or only those of these parts."""
        assert self._process is not None
        return [process for process in session(self._process.pid) if not parts or process.part in parts]

    def send(self, number: signal.Signals, *parts: Part) -> list[Process]:
        """Send a signal to parts of the application, or to all of it; return the processes."""
        found = self.processes(*parts)
        # Before sending: a test that sees a process end of a signal must find the signal here.
        self.signals_sent += [(process.pid, int(number)) for process in found]
        send(number, found)
        return found

    def copy_checkpoint(self, target: Path) -> int | None:
        """Copy the checkpoint of the running query, like a backup; return the newest finished batch in the copy."""
        # Commits first: Spark never writes a checkpoint with a commit and without its offsets.
        for part in ("commits", "offsets", "metadata", "sources", "state"):
            source = self._checkpoint / part
            if source.is_dir():
                shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("*.tmp", ".*.tmp.crc"))
            elif source.exists():
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target / part)
        return newest_batch(target / "commits")

    def exchange_checkpoint(self, other: Path) -> None:
        """Exchange the checkpoint for another one.  The application must not run."""
        aside = other.with_name(f"{other.name}.aside")
        self._checkpoint.rename(aside)
        other.rename(self._checkpoint)
        aside.rename(other)

    @property
    def finished_batch(self) -> int | None:
        """The newest batch that Spark has logged as finished."""
        return newest_batch(self._checkpoint / "commits")

    def configure_source(self, **options: str | None) -> None:
        """Set options of the source for the next start.  None removes an option."""
        config = json.loads(self.config.read_text())
        given = {**config["options"], **options}
        self.configure(options={key: value for key, value in given.items() if value is not None})

    def slow_down(self, *, before_s: float = 0.0, after_s: float = 0.0) -> None:
        """Make the next batch sleep before and after it is written, until :meth:`wake_up` at most."""
        self._nap.with_suffix(".over").unlink(missing_ok=True)
        unfinished = self._nap.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"before": before_s, "after": after_s}))
        unfinished.rename(self._nap)

    def wake_up(self) -> None:
        """Wake a sleeping batch, so that it continues."""
        self._nap.with_suffix(".over").touch()

    def events(self, *names: str) -> list[dict[str, Any]]:
        return [event for event in read_events(self.event_log) if not names or event["event"] in names]

    def owned(self) -> set[str]:
        return owned_after(self.events())

    def check(self) -> None:
        """Fail if the application has ended."""
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"{self.name} ended with {code}:\n{self.log_tail()}"

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def wait_for_ownership(self, count: int) -> None:
        def reached() -> bool:
            self.check()
            return len(self.owned()) == count

        wait_for(reached, f"{self.name} owns {count} partitions")

    def begin_stop(self) -> None:
        """Ask the application to stop between two batches, and return at once."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    def stop(self) -> None:
        """Stop the query and then the application, like a user, and fail if that does not work."""
        assert self._process is not None
        self.check()
        self.begin_stop()
        code = self._process.wait(PATIENCE_S)
        assert code == 0, f"{self.name} ended with {code}:\n{self.log_tail()}"
        self._process = None

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait until the application's own process has ended; return its exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    @property
    def pid(self) -> int:
        """The process id of the driver's Python."""
        assert self._process is not None
        return self._process.pid

    def log_stacks(self) -> None:
        """Write into the log what each thread of the driver and of its JVM is doing."""
        self.send(signal.SIGUSR1, Part.DRIVER)
        self.send(signal.SIGQUIT, Part.JVM)
        time.sleep(_STACKS_S)

    def kill(self) -> None:
        """Kill all processes of the application that still run."""
        if self._process is not None:
            self.send(signal.SIGKILL)
            self._process.wait()
            # Again, for a process that was just starting.
            wait_for(lambda: not self.send(signal.SIGKILL), f"the processes of {self.name} are gone")
            self._process = None


# ------------------------------------------------------------------------------------------ oracles


def offsets_of(rows: Iterable[Row]) -> dict[tuple[str, int], list[int]]:
    """Return the delivered offsets of each partition, in the order of delivery."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        offsets.setdefault((row.topic, row.partition), []).append(row.offset)
    return offsets


def assert_exactly_once(rows: Iterable[Row], produced: Mapping[tuple[str, int], int]) -> None:
    """Fail unless each record was delivered exactly once.

    Parameters
    ----------
    rows : iterable of Row
        The rows of all sinks together.
    produced : mapping of (topic, partition) to int
        The number of records in each partition, from offset 0.
    """
    delivered = Counter((row.topic, row.partition, row.offset) for row in rows)
    expected = {(topic, partition, o) for (topic, partition), count in produced.items() for o in range(count)}
    lost = sorted(expected - delivered.keys())
    twice = sorted(key for key, count in delivered.items() if count > 1)
    foreign = sorted(delivered.keys() - expected)
    assert not lost, f"{len(lost)} lost, as {lost[:5]}"
    assert not twice, f"{len(twice)} delivered more than once, as {twice[:5]}"
    assert not foreign, f"{len(foreign)} were never produced, as {foreign[:5]}"


def assert_orderly(events: Iterable[dict[str, Any]]) -> None:
    """Fail if one member broke a rule.

    A member may plan only partitions that it owns, without gaps.  It may commit only finished records.  The oracle
    forgets partitions that are released, expired or lost, and no others.

    ``events`` belong to one membership.  For a query with several starts, split them with
    :func:`integration.oracles.memberships`.
    """
    position: dict[str, int] = {}
    finished: dict[str, int] = {}
    committed: dict[str, int] = {}
    for event in events:
        match event["event"]:
            case "started":
                for tp, offset in event["positions"].items():
                    position[tp] = finished[tp] = offset
            case "planned":
                for tp, (start, until) in event["ranges"].items():
                    assert tp in position, f"{tp} was planned and not owned: {event}"
                    assert start == position[tp], f"{tp} was at {position[tp]}: {event}"
                    position[tp] = until
            case "replayed":
                for tp, (start, until) in event["ranges"].items():
                    if tp in position and tp not in event["not_owned"]:
                        # A lower start is fine: the query reads again what it has, or may have, committed itself.
                        assert start <= position[tp], f"{tp} was at {position[tp]}: {event}"
                        position[tp] = max(position[tp], until)
            case "finished":
                for tp, (_, until) in event["ranges"].items():
                    if tp in finished:
                        finished[tp] = until
            case "committed":
                for tp, offset in event["offsets"].items():
                    assert offset <= finished.get(tp, offset), f"{tp} finished {finished.get(tp)}: {event}"
                    assert offset >= committed.get(tp, 0), f"{tp} had {committed.get(tp)} committed: {event}"
                    committed[tp] = offset
            case "released" | "lost":
                for tp in event["partitions"]:
                    position.pop(tp, None)
                    finished.pop(tp, None)
            case "expired":
                for tp in event["ranges"]:
                    position.pop(tp, None)
                    finished.pop(tp, None)
