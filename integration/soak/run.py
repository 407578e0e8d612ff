"""One soak: real applications in one group on a real Kafka, faults on a schedule, and a verdict at the end."""

from __future__ import annotations

import dataclasses
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.cluster import Stream, log_ends
from integration.hand_overs import Window
from integration.monitor import GroupMonitor, read_commits
from integration.oracles import Member
from integration.pipelines import TOO_BUSY, Application, wait_for
from integration.report import Recording, Report, judge
from integration.soak.faults import LETHAL, Chaos, Done, Scene
from integration.soak.supervisor import Ending, Supervised, Supervisor
from pyspark_kafka_group.testing import LocalKafka

TOPIC = "soak"
GROUP = "soak"

# What clients and brokers need after the cause of a fault is over, until rows come again without a pause.
_GRACE_S = 20.0
_END_PATIENCE_S = 240.0
_FIRST_START_PATIENCE_S = 180.0


@dataclass(frozen=True, kw_only=True)
class Soak:
    """What to run.

    Attributes
    ----------
    longest_down_s : float
        How long an application that has ended may stay down.
    kinds : sequence of str
        Faults in this order instead of drawn ones; the run ends after the last.
    folder : Path or None
        Where event logs, logs, checkpoints and sinks stay; None: a temporary folder.
    """

    seed: int
    seconds: float = 1800.0
    applications: int = 4
    brokers: int = 1
    protocol: str = "classic"
    proxied: bool = False
    fault_interval_s: float = 10.0
    per_second: float = 300.0
    partitions: int = 12
    longest_down_s: float = 15.0
    kinds: Sequence[str] = ()
    folder: Path | None = None


def run(soak: Soak, tell: Callable[[str], None] = print) -> Report:
    """Run a soak and return its report."""
    begin = time.time()

    def say(text: str) -> None:
        tell(f"{time.time() - begin:7.1f} s  {text}")

    # A dead member must be noticed while the run lasts; the broker decides that for KIP-848.
    properties = {"group.consumer.session.timeout.ms": "6000", "group.consumer.heartbeat.interval.ms": "500"}
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as temporary,
        LocalKafka(soak.brokers, proxied=soak.proxied, properties=properties) as kafka,
    ):
        kafka.create_topic(TOPIC, partitions=soak.partitions)
        folder = soak.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        supervisor = Supervisor(_applications(soak, kafka, folder))
        scene = Scene(kafka, soak.brokers, soak.proxied, supervisor)
        chaos = Chaos(scene, soak.seed, say)
        every = [(TOPIC, n) for n in range(soak.partitions)]
        problems: list[str] = []
        try:
            with (
                Stream(kafka.bootstrap_servers, {TOPIC: soak.partitions}, per_second=soak.per_second) as stream,
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
                ends = log_ends(kafka.bootstrap_servers, every)
                say("the producer has stopped")
                late = expect(lambda: monitor.lag == 0, "lag 0")
                problems += late or expect(lambda: delivered(supervisor) >= sum(ends.values()), "all is delivered")
                supervisor.stop_all()
                say("all applications have ended")
            commits = read_commits(kafka.bootstrap_servers, GROUP, {TOPIC})
        finally:
            scene.over.set()
            supervisor.close()
        problems += [*chaos.problems, *supervisor.problems, *unexpected(supervisor.endings)]
        members = [
            Member(one.name, one.application.events(), one.application.deliveries) for one in supervisor.applications
        ]
        report = judge(
            Recording(
                produced=stream.produced,
                ends_of_logs=ends,
                members=members,
                samples=monitor.committed,
                ends=monitor.ends,
                commits=commits,
                ready=ready,
                disturbed=_disturbed(chaos.done),
                brokers_back=[f.end for f in chaos.done if f.victim.startswith("broker") and soak.brokers == 1],
                problems=problems,
            )
        )
    report["run"] = {
        **{key: value for key, value in dataclasses.asdict(soak).items() if key not in ("kinds", "folder")},
        "took_seconds": round(time.time() - begin),
        "starts of applications": sum(one.starts for one in supervisor.applications),
        "failed samples": monitor.failures,
        "samples without offsets": monitor.vanished,
        "faults": [dataclasses.asdict(done) for done in chaos.done],
        "endings": [
            {"kind": f"exit {e.code}: {e.kind}", **dataclasses.asdict(e)} for e in supervisor.endings if e.code
        ],
    }
    return report


def _applications(soak: Soak, kafka: LocalKafka, folder: Path) -> list[Supervised]:
    servers = kafka.proxied_bootstrap_servers if soak.proxied else kafka.bootstrap_servers
    found = []
    for n in range(soak.applications):
        draw = random.Random(f"{soak.seed}:application:{n}")
        options = {
            "kafka.bootstrap.servers": servers,
            "kafka.group.id": GROUP,
            "kafka.group.protocol": soak.protocol,
            "kafka.max.poll.interval.ms": "20000",
            # Shorter than the slowest batches, so that drains expire; for some shorter than most.
            "drainTimeoutMs": str(draw.choice((5000, 15000))),
            "startingOffsets": "earliest",
            "subscribe": TOPIC,
        }
        if soak.protocol == "classic":
            options |= {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "1500"}
        trigger = f"{draw.choice((500, 1000))} milliseconds"
        found.append(Supervised(Application(folder, f"app{n}", options, trigger=trigger), draw, soak.longest_down_s))
    return found


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
    """Do faults until the time is over, or all of a given order."""
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
    while time.monotonic() + soak.fault_interval_s < end:
        clock.wait(soak.fault_interval_s)
        chaos.draw(number)
        number += 1


def expect(condition: Callable[[], object], what: str) -> list[str]:
    """Wait for ``condition``; return what is wrong if it does not come."""
    try:
        wait_for(condition, what, timeout_s=_END_PATIENCE_S)
    except AssertionError as late:
        return [str(late)]
    return []


def delivered(supervisor: Supervisor) -> int:
    """Return how many records all sinks hold, each counted once."""
    held: dict[str, set[int]] = {}
    for one in supervisor.applications:
        for delivery in one.application.deliveries:
            held.setdefault(delivery.tp, set()).update(range(delivery.start, delivery.until))
    return sum(map(len, held.values()))


def unexpected(endings: Sequence[Ending]) -> list[str]:
    """Return the failures that no fault explains: what only slows a query down must not end it.

    Deliberate exception: Spark gives a Python process 10 s to come up, and a busy machine needs longer.
    """
    return [
        f"{e.application} ended with {e.code} at {e.time:.3f} after {e.faults or 'no fault'}: {e.text}"
        for e in endings
        if e.code and not LETHAL.intersection(e.faults) and TOO_BUSY not in e.text
    ]


def _disturbed(faults: Sequence[Done]) -> list[Window]:
    return [
        Window(f.begin, f.end + _GRACE_S, f.victim if f.victim.startswith("app") else None)
        for f in faults
        if f.kind != "rolling restart"
    ]
