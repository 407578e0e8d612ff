"""One soak: real applications in one group on a real Kafka, faults on a schedule, and a verdict at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.cluster import Stream, log_ends
from integration.compatibility.lake_writer import settings as lake_settings
from integration.landing_tables import deliveries, rows_of
from integration.monitor import GroupMonitor, read_commits
from integration.oracles import Member, Window
from integration.pipelines import TOO_BUSY, Application, wait_for
from integration.report import Recording, Report, judge
from integration.soak import lake
from integration.soak.chaos import COORDINATOR_AWAY, LETHAL, Chaos
from integration.soak.faults import Done, Scene
from integration.soak.growth import GrowthWatch, judge_growth, summary
from integration.soak.source_ends import SourceWatch, unaccounted
from integration.soak.supervisor import Ending, Supervised, Supervisor
from integration.spark_cluster import JAVA_OPTIONS, SparkCluster
from integration.transactional_stream import TransactionalStream, visible_offsets
from pyspark_kafka_group.testing import LocalKafka

TOPIC = "soak"
TRANSACTIONS = "soak-transactions"
GROUP = "soak"

# After the cause of a fault is over, clients and brokers need this long until rows flow again without a pause.
_GRACE_S = 20.0
_END_PATIENCE_S = 240.0
_FIRST_START_PATIENCE_S = 180.0
_END_SEEN_S = 20.0

# An application has one executor with one core on each worker.
_SPARK_WORKERS = 2
_EXECUTOR_MB = 512


@dataclass(frozen=True, kw_only=True)
class Soak:
    """The settings of a soak.

    Attributes
    ----------
    spark_cluster : bool
        Whether applications run on a standalone Spark cluster, instead of in local mode.
    lake : bool
        Whether the applications also write to a lake table.
    landing : str
        The format of the table in which the applications land, instead of their sinks; empty for sinks.
    longest_down_s : float
        How long an ended application may stay down.
    coordinator_away_s : float
        How long the broker is away that coordinates the transactions of an application.  No other takes its place,
        because the topic of that state then has one replica.
    only : sequence of str
        The kinds of faults to draw; empty for all.
    kinds : sequence of str
        Faults to do in this order, instead of drawn ones.  The run ends after the last fault.
    folder : Path or None
        The folder that keeps event logs, logs, checkpoints and sinks.  None means a temporary folder.
    """

    seed: int
    seconds: float = 1800.0
    applications: int = 4
    brokers: int = 1
    protocol: str = "classic"
    proxied: bool = False
    spark_cluster: bool = False
    lake: bool = False
    landing: str = ""
    fault_interval_s: float = 10.0
    per_second: float = 300.0
    partitions: int = 12
    transactional_partitions: int = 4
    transactions_per_second: float = 4.0
    longest_down_s: float = 15.0
    coordinator_away_s: float = 0.0
    only: Sequence[str] = ()
    kinds: Sequence[str] = ()
    folder: Path | None = None


def run(soak: Soak, tell: Callable[[str], None] = print) -> Report:
    """Run a soak and return its report."""
    begin = time.time()

    def say(text: str) -> None:
        tell(f"{time.time() - begin:7.1f} s  {text}")

    # The group must notice a dead member during the run.  Under KIP-848, the broker decides when.
    properties = {"group.consumer.session.timeout.ms": "6000", "group.consumer.heartbeat.interval.ms": "500"}
    if soak.coordinator_away_s:
        properties |= {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as temporary,
        LocalKafka(soak.brokers, proxied=soak.proxied, properties=properties) as kafka,
        contextlib.ExitStack() as stack,
    ):
        # A single replica would be away with its coordinator, and the producer would give up.
        replicas = soak.brokers if soak.coordinator_away_s else 1
        kafka.create_topic(TOPIC, partitions=soak.partitions, replication_factor=replicas)
        # Replicated: Kafka 4.3 forgets the marker of a transaction for a partition without a leader (KAFKA-20734).
        kafka.create_topic(TRANSACTIONS, soak.transactional_partitions, replication_factor=soak.brokers)
        folder = soak.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        spark = _spark_cluster(soak, folder / "spark", stack) if soak.spark_cluster else None
        # Only in local mode: parents in a Spark cluster may die, and this run must not adopt their processes.
        watched = spark is None and sys.platform == "linux"
        watch = stack.enter_context(SourceWatch(folder)) if watched else None
        growth = stack.enter_context(GrowthWatch(watch.ends)) if watch is not None else None
        supervisor = Supervisor(_applications(soak, kafka, folder, spark, watch))
        landed = folder / "landing" / soak.landing if soak.landing else None
        if landed is not None:
            landed.parent.mkdir()
            for one in supervisor.applications:
                one.application.configure(landing=str(landed))
        if soak.lake:
            name, settings = lake.create(folder / "lake"), lake_settings(folder / "lake")
            for one in supervisor.applications:
                one.application.configure(lake=name, spark=settings)
        scene = Scene(
            kafka, soak.brokers, soak.proxied, supervisor, spark, GROUP, TOPIC, soak.partitions, folder / "copies"
        )
        scene.coordinator_away_s = soak.coordinator_away_s
        chaos = Chaos(scene, soak.seed, say, soak.only)
        plain = [(TOPIC, n) for n in range(soak.partitions)]
        transactional = [(TRANSACTIONS, n) for n in range(soak.transactional_partitions)]
        every = [*plain, *transactional]
        problems: list[str] = []
        try:
            with (
                Stream(kafka.bootstrap_servers, {TOPIC: soak.partitions}, per_second=soak.per_second) as stream,
                TransactionalStream(
                    kafka.bootstrap_servers,
                    TRANSACTIONS,
                    soak.transactional_partitions,
                    per_second=soak.transactions_per_second,
                    seed=soak.seed,
                ) as transactions,
                GroupMonitor(kafka.bootstrap_servers, GROUP, every) as monitor,
            ):
                _start(supervisor)
                ready = time.time()
                say(f"{soak.applications} applications are members of the group")
                _disturb(soak, chaos)
                scene.over.set()
                chaos.wait()
                problems += expect(lambda: all(one.up for one in supervisor.applications), "all applications are up")
                stream.close()
                transactions.close()
                ends = log_ends(kafka.bootstrap_servers, every)
                visible = visible_offsets(kafka.bootstrap_servers, transactional)
                say("the producers have stopped")
                late = expect(lambda: monitor.lag == 0, "lag 0")
                count = sum(ends[tp] for tp in plain) + sum(map(len, visible.values()))
                problems += late or expect(lambda: delivered(supervisor, landed) >= count, "all is delivered")
                supervisor.stop_all()
                say("all applications have ended")
                if spark is not None:
                    problems += expect(lambda: not spark.executors(), "the executors end with their applications")
            commits = read_commits(kafka.bootstrap_servers, GROUP, {TOPIC, TRANSACTIONS})
        finally:
            scene.over.set()
            supervisor.close()
        of_spark = _of_spark(spark, supervisor) if spark is not None else {}
        ends_of_sources = _ends_of_sources(watch, supervisor, problems) if watch is not None else "not watched"
        sizes = growth.sizes if growth is not None else {}
        problems += [*chaos.problems, *supervisor.problems, *unexpected(supervisor.endings), *judge_growth(sizes)]
        members = [
            Member(one.name, one.application.events(), one.application.deliveries) for one in supervisor.applications
        ]
        in_lake = lake.deliveries(folder / "lake") if soak.lake else None
        if landed is not None:  # its rows are in no sink
            in_lake = deliveries(landed)
            members.append(Member("the table", (), in_lake))
        report = judge(
            Recording(
                produced={**stream.produced, **{tp: ends[tp] for tp in transactional}},
                ends_of_logs=ends,
                members=members,
                samples=monitor.committed,
                ends=monitor.ends,
                commits=commits,
                ready=ready,
                disturbed=_disturbed(chaos.done),
                away=[*supervisor.away, *(Window(f.begin, f.end) for f in chaos.done if _stops_all(f, soak.brokers))],
                late=[Window(f.begin, f.end + _GRACE_S) for f in chaos.done if _delays_a_plain_commit(f)],
                resets=scene.resets,
                problems=problems,
                transactions=transactions.transactions,
                visible=visible,
                lake=in_lake,
            )
        )
    report["run"] = {
        **{key: value for key, value in dataclasses.asdict(soak).items() if key not in ("only", "kinds", "folder")},
        "took_seconds": round(time.time() - begin),
        "starts of applications": sum(one.starts for one in supervisor.applications),
        "aborted transactions": transactions.aborted,
        "transactions in doubt": transactions.in_doubt,
        **of_spark,
        "ends of source processes": ends_of_sources,
        "source processes": summary(sizes),
        "failed samples": monitor.failures,
        "samples without offsets": monitor.vanished,
        "faults": [dataclasses.asdict(done) for done in chaos.done],
        "endings": [
            {"kind": f"exit {e.code}: {e.kind}", **dataclasses.asdict(e)} for e in supervisor.endings if e.code
        ],
    }
    return report


def _spark_cluster(soak: Soak, folder: Path, stack: contextlib.ExitStack) -> SparkCluster:
    folder.mkdir()
    spark = SparkCluster(folder)
    stack.callback(spark.close)
    for _ in range(_SPARK_WORKERS):
        spark.add_worker(cores=soak.applications, memory=f"{soak.applications * _EXECUTOR_MB}m")
    return spark


def _of_spark(spark: SparkCluster, supervisor: Supervisor) -> Report:
    """Return the cost of the faults to Spark, according to its logs."""
    workers = spark.worker_logs()
    return {
        "starts of Spark workers": len(workers),
        "starts of executors": sum(log.count("Asked to launch executor") for log in workers),
        "failed attempts of tasks": sum(
            one.application.log_since(0).count("Lost task ") for one in supervisor.applications
        ),
    }


def _ends_of_sources(watch: SourceWatch, supervisor: Supervisor, problems: list[str]) -> str:
    """Count how source processes have ended, and add unexpected ends to the problems."""
    seen_by = time.monotonic() + _END_SEEN_S
    while any(end.code is None for end in watch.ends()) and time.monotonic() < seen_by:
        time.sleep(0.1)
    ends = watch.ends()
    sent = {one.name: one.application.signals_sent for one in supervisor.applications}
    problems += unaccounted(ends, sent, supervisor.endings)
    if not ends:
        problems.append("no source process was watched")
    return ", ".join(f"{count} {kind}" for kind, count in Counter(end.kind for end in ends).most_common())


def _applications(
    soak: Soak, kafka: LocalKafka, folder: Path, spark: SparkCluster | None, watch: SourceWatch | None
) -> list[Supervised]:
    servers = kafka.proxied_bootstrap_servers if soak.proxied else kafka.bootstrap_servers
    found = []
    for n in range(soak.applications):
        draw = random.Random(f"{soak.seed}:application:{n}")
        options = {
            "kafka.bootstrap.servers": servers,
            "kafka.group.id": GROUP,
            "kafka.group.protocol": soak.protocol,
            "kafka.max.poll.interval.ms": "20000",
            # Shorter than the slowest batches, so that drains expire.  For some applications, shorter than most.
            "drainTimeoutMs": str(draw.choice((5000, 15000))),
            "startingOffsets": "earliest",
            "subscribe": f"{TOPIC},{TRANSACTIONS}",
        }
        if soak.protocol == "classic":
            options |= {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "1500"}
        if n % 3 == 1:
            options["kafka.group.instance.id"] = f"app{n}"
        elif n % 3 == 2:
            options["commitMode"] = "plain"
        if spark is not None:
            options["minRecordsPerTask"] = "50"  # so that most batches run in both executors
        # Each batch of a landing is a commit to the table, and one with thousands of commits is slow.
        trigger = f"{draw.choice((500, 1000)) * (5 if soak.landing else 1)} milliseconds"
        python = sys.executable if watch is None else watch.python_of(f"app{n}")
        application = Application(folder, f"app{n}", options, trigger=trigger, worker_python=python)
        if spark is not None:
            application.configure(spark=_settings(spark))
        found.append(Supervised(application, draw, soak.longest_down_s))
    return found


def _settings(spark: SparkCluster) -> dict[str, object]:
    return {
        "spark.master": spark.url,
        "spark.cores.max": _SPARK_WORKERS,
        "spark.executor.cores": 1,
        "spark.executor.memory": f"{_EXECUTOR_MB}m",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    }


def _start(supervisor: Supervisor) -> None:
    for one in supervisor.applications:
        one.start()
    supervisor.start()
    wait_for(
        lambda: all(one.up for one in supervisor.applications),
        "all applications are members of the group",
        timeout_s=_FIRST_START_PATIENCE_S,
    )


def _disturb(soak: Soak, chaos: Chaos) -> None:
    """Do faults until the time is over, or do all faults of a given order."""
    clock = threading.Event()
    for number, kind in enumerate(soak.kinds):
        clock.wait(soak.fault_interval_s)
        chaos.do(number, kind)
        chaos.wait()
    if soak.kinds:
        clock.wait(soak.fault_interval_s)
        return
    end = time.monotonic() + soak.seconds
    number = 0
    if soak.coordinator_away_s:
        chaos.do(number, COORDINATOR_AWAY)
        number += 1
    while time.monotonic() + soak.fault_interval_s < end:
        clock.wait(soak.fault_interval_s)
        chaos.draw(number)
        number += 1


def expect(condition: Callable[[], object], what: str) -> list[str]:
    """Wait until ``condition`` is true, and return the problem if it stays false."""
    try:
        wait_for(condition, what, timeout_s=_END_PATIENCE_S)
    except AssertionError as late:
        return [str(late)]
    return []


def delivered(supervisor: Supervisor, landed: Path | None = None) -> int:
    """Return the number of different records in all sinks, or in the table of a landing."""
    if landed is not None:
        return len(rows_of(landed))
    held: dict[str, set[int]] = {}
    for one in supervisor.applications:
        for delivery in one.application.deliveries:
            held.setdefault(delivery.tp, set()).update(range(delivery.start, delivery.until))
    return sum(map(len, held.values()))


def unexpected(endings: Sequence[Ending]) -> list[str]:
    """Return the failures that no fault explains.  A fault that only slows a query down must not end it.

    Deliberate exception: Spark gives a Python process 10 s to start, and a busy machine needs longer.
    """
    return [
        f"{e.application} ended with {e.code} at {e.time:.3f} after {e.faults or 'no fault'}: {e.text}"
        for e in endings
        if e.code and not LETHAL.intersection(e.faults) and TOO_BUSY not in e.text
    ]


def _stops_all(fault: Done, brokers: int) -> bool:
    """Return whether the fault stopped all applications."""
    return fault.kind in ("reset offsets", COORDINATOR_AWAY) or (fault.victim.startswith("broker") and brokers == 1)


def _delays_a_plain_commit(fault: Done) -> bool:
    return fault.kind == "late commit" and fault.detail.startswith("request 8 ")


def _disturbed(faults: Sequence[Done]) -> list[Window]:
    return [
        Window(f.begin, f.end + _GRACE_S, f.victim if f.victim.startswith("app") else None)
        for f in faults
        if f.kind != "rolling restart"
    ]
