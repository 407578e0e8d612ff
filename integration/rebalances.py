"""Planned rebalances: queries join a group and leave it cleanly, one at a time, while records keep coming.

``python -m integration.rebalances``: see ``docs/how-we-test.md``.  All queries run in one Spark session, so that a
hundred rebalances take minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import pyspark_kafka_group
from integration.arguments import new_folder
from integration.cluster import Stream
from integration.database_sink import WITH_TABLE, WITHOUT, DatabaseSink, rows_of, tables
from integration.hand_overs import outside, pauses, percentile
from integration.monitor import GroupMonitor, read_commits
from integration.oracles import Member, Window
from integration.pipelines import TOO_BUSY, Pipeline, wait_for
from integration.report import Recording, Report, judge, shown
from integration.sink import Delivery, runs
from pyspark_kafka_group.testing import LocalKafka

TOPIC = "planned"
GROUP = "planned"

# A machine that is busy with other work may add this much to any pause.
_BUSY_MACHINE_S = 5.0
_LONGEST_STANDSTILL_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Rebalances:
    """The settings of a run.

    Attributes
    ----------
    count : int
        The number of joins and leaves.
    fewest, most : int
        The smallest and the largest number of members.
    trigger_ms : int
        The time between two batches.  With 0, batches have no pause between them.
    folder : Path or None
        The folder that keeps event logs and checkpoints.  None means a temporary folder.
    database : str or None
        A PostgreSQL database.  Its tables with and without an offset table also get every batch.
    """

    count: int = 100
    seed: int = 0
    protocol: str = "classic"
    fewest: int = 2
    most: int = 4
    partitions: int = 6
    per_second: float = 240.0
    trigger_ms: int = 250
    folder: Path | None = None
    database: str | None = None


@dataclass
class DatabasePipeline(Pipeline):
    """A query whose sink also writes each batch to the database."""

    sink: DatabaseSink | None = None

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        super()._take(batch, batch_id)
        if self.sink is not None:
            self.sink.write(batch, batch_id)


class Members:
    """The present and former members of the group."""

    def __init__(self, plan: Rebalances, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.problems: list[str] = []
        self.too_busy = 0
        self._plan = plan
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.group.id": GROUP,
            "kafka.group.protocol": plan.protocol,
            "startingOffsets": "earliest",
            "subscribe": TOPIC,
        }
        self._all = [DatabasePipeline(spark, folder, options, f"member{n}") for n in range(plan.most)]
        for one in self._all:
            one.sink = None if plan.database is None else DatabaseSink(plan.database, GROUP)
        self._active: list[Pipeline] = []

    def __len__(self) -> int:
        return len(self._active)

    def join(self, draw: random.Random) -> str:
        """Start a query that is not a member.  Wait until the members share the partitions and it has written rows."""
        one = draw.choice([one for one in self._all if one not in self._active])
        had = len(one.rows)
        self._start(one)
        self._active.append(one)
        self._settle()
        self._wait(lambda: len(one.rows) > had, f"rows of {one.name}")
        return f"{one.name} joins"

    def leave(self, draw: random.Random) -> str:
        """Stop a member between two batches, and wait until the others have its partitions."""
        one = draw.choice(self._active)
        assert one.query is not None
        if not pyspark_kafka_group.stop(one.query):
            self.problems.append(f"{one.name} was not stopped between two batches")
        self._active.remove(one)
        self._settle()
        return f"{one.name} leaves"

    def stop(self) -> None:
        """Stop all remaining members cleanly."""
        while self._active:
            one = self._active.pop()
            if one.query is not None and not pyspark_kafka_group.stop(one.query):
                self.problems.append(f"{one.name} was not stopped between two batches at the end")

    def kill(self) -> None:
        """Stop all queries that run."""
        for one in self._all:
            one.stop()

    def recorded(self) -> list[Member]:
        """Return the rows and events of all queries."""
        return [Member(one.name, one.events(), list(_deliveries(one))) for one in self._all]

    def _start(self, one: Pipeline) -> None:
        """Start a query.  Retry if the machine was too busy: Spark gives a Python process 10 s to start."""
        memberships = len(one.events("joined"))
        for _ in range(3):
            query = one.start(processingTime=f"{self._plan.trigger_ms} milliseconds").query
            assert query is not None
            wait_for(lambda: query.exception() or len(one.events("joined")) > memberships, f"{one.name} joins")  # noqa: B023
            failure = query.exception()
            if failure is None or TOO_BUSY not in str(failure):
                return
            self.too_busy += 1

    def _settle(self) -> None:
        share = self._plan.partitions // len(self._active)

        def shared() -> bool:
            owned = [one.owned() for one in self._active]
            return sum(map(len, owned)) == self._plan.partitions and min(map(len, owned)) >= share

        self._wait(shared, f"{len(self._active)} members share {self._plan.partitions} partitions")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def reached() -> bool:
            for one in self._active:
                failure = one.query.exception() if one.query is not None else None
                assert failure is None, f"{one.name} failed: {failure}"
            return condition()

        wait_for(reached, what)


def run(plan: Rebalances, spark: SparkSession, tell: Callable[[str], None] = print) -> Report:
    """Run the rebalances and return their report."""
    begin = time.time()
    draw = random.Random(plan.seed)
    every = [(TOPIC, n) for n in range(plan.partitions)]
    windows: list[Window] = []
    with tempfile.TemporaryDirectory(prefix="rebalances-") as temporary, LocalKafka() as kafka:
        kafka.create_topic(TOPIC, partitions=plan.partitions)
        folder = plan.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        members = Members(plan, spark, kafka.bootstrap_servers, folder)
        try:
            with (
                Stream(kafka.bootstrap_servers, {TOPIC: plan.partitions}, per_second=plan.per_second) as stream,
                GroupMonitor(kafka.bootstrap_servers, GROUP, every) as monitor,
            ):
                try:
                    while len(members) < plan.fewest:
                        members.join(draw)
                    for number in range(plan.count):
                        joins = len(members) == plan.fewest or (len(members) < plan.most and draw.random() < 0.5)
                        since = time.time()
                        what = (members.join if joins else members.leave)(draw)
                        windows.append(Window(since, time.time()))
                        tell(f"{time.time() - begin:7.1f} s  rebalance {number + 1}: {what}, {len(members)} members")
                        time.sleep(draw.uniform(0.0, 1.0))  # next: anywhere in a batch
                    stream.close()
                    wait_for(lambda: monitor.lag == 0, "lag 0")
                    members.stop()
                except AssertionError as problem:
                    stream.close()
                    members.problems.append(str(problem))
            commits = read_commits(kafka.bootstrap_servers, GROUP, {TOPIC})
        finally:
            members.kill()
        recorded = members.recorded()
    unmoved = pauses(recorded)
    quiet = outside(unmoved, windows)
    during = [p for p in unmoved if p not in set(quiet)]
    problems = [
        *members.problems,
        *(
            f"{p.tp} stayed with {p.member} and had no rows for {p.seconds:.2f} s at {p.begin:.3f}"
            for p in during
            if p.seconds > _BUSY_MACHINE_S + 3 * max((q.seconds for q in quiet), default=0.0)
        ),
    ]
    report = judge(
        Recording(
            produced=stream.produced,
            ends_of_logs=stream.produced,
            members=recorded,
            samples=monitor.committed,
            ends=monitor.ends,
            commits=commits,
            ready=windows[0].end if windows else time.time(),
            longest_standstill_s=_LONGEST_STANDSTILL_S,
            planned_only=True,
            problems=problems,
        )
    )
    report["run"] = {
        **{key: value for key, value in dataclasses.asdict(plan).items() if key not in ("folder", "database")},
        "rebalances": len(windows),
        "starts that timed out": members.too_busy,
        "took_seconds": round(time.time() - begin),
        **({} if plan.database is None else _judged_rows(plan.database, sum(stream.produced.values()), report)),
        "pause p50/p99 in rebalances": _told([p.seconds for p in during]),
        "pause p50/p99 otherwise": _told([p.seconds for p in quiet]),
    }
    return report


def _judged_rows(database: str, produced: int, report: Report) -> dict[str, int]:
    """Return the number of rows in both tables.  Add a violation unless the first has each record exactly once."""
    found, different, total = rows_of(database, WITH_TABLE)
    if (found, different, total) != (produced, produced, produced * (produced - 1) // 2):
        report["violations"].append(f"{produced} records, but {found} rows of {different} records, sum {total}")
    return {"rows with the offset table": found, "rows without it": rows_of(database, WITHOUT)[0]}


def _told(values: list[float]) -> str:
    p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
    return "-" if p50 is None or p99 is None else f"{p50:.2f} s / {p99:.2f} s, longest {max(values):.2f} s"


def _deliveries(one: Pipeline) -> Iterator[Delivery]:
    """Yield a pipeline's rows as ranges; rows of one batch have one time."""
    batches: dict[tuple[float, int, str, int], list[int]] = {}
    for row in one.rows:
        batches.setdefault((row.time, row.batch, row.topic, row.partition), []).append(row.offset)
    for (at, batch, topic, partition), offsets in batches.items():
        yield from (Delivery(one.name, at, batch, topic, partition, *ends) for ends in runs(offsets))


@contextmanager
def session() -> Iterator[SparkSession]:
    """Yield a Spark session for this process."""
    found = (
        SparkSession.builder.master("local[4]")
        .appName("rebalances")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    found.sparkContext.setLogLevel("ERROR")
    try:
        yield found
    finally:
        found.stop()


def main() -> int:
    defaults = Rebalances()
    parser = argparse.ArgumentParser(prog="python -m integration.rebalances", description=__doc__)
    parser.add_argument("--count", type=int, default=defaults.count, help="how many rebalances (%(default)d)")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default=defaults.protocol, help="of the group")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="decides who joins and leaves (%(default)d)")
    parser.add_argument("--members", type=int, default=defaults.most, help="at most so many (%(default)d)")
    parser.add_argument("--partitions", type=int, default=defaults.partitions, help="of the topic (%(default)d)")
    parser.add_argument("--trigger-ms", type=int, default=defaults.trigger_ms, help="between batches (%(default)d)")
    parser.add_argument("--per-second", type=float, default=defaults.per_second, help="records (%(default)g)")
    parser.add_argument("--database", action="store_true", help="write to PostgreSQL, too, exactly once")
    parser.add_argument("--report", type=Path, help="where to write the report as JSON")
    parser.add_argument("--folder", type=new_folder, help="a new folder that keeps the event logs")
    given = parser.parse_args()
    plan = Rebalances(
        count=given.count,
        protocol=given.protocol,
        seed=given.seed,
        most=given.members,
        partitions=given.partitions,
        trigger_ms=given.trigger_ms,
        folder=given.folder,
        per_second=given.per_second,
    )
    with session() as spark, tables() if given.database else nullcontext() as database:
        plan = dataclasses.replace(plan, database=database)
        report = run(plan, spark, lambda line: print(line, flush=True))
    return shown(report, given.report)


if __name__ == "__main__":
    sys.exit(main())
