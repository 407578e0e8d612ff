"""Queries of one group, in Spark applications that are started, stopped and killed while brokers restart."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from os import kill
from pathlib import Path
from signal import SIGABRT

from integration.cluster import Stream
from integration.oracles import DeliveryVerdict, Member, judge_deliveries
from integration.pipelines import Application, wait_for
from integration.processes import Part
from integration.restarts.source_ends import SourceWatch, unaccounted
from integration.soak.chaos import Chaos
from integration.soak.faults import Scene
from integration.soak.run import delivered, expect, unexpected
from integration.soak.supervisor import Supervised, Supervisor
from pyspark_kafka_group.testing import LocalKafka

GROUP, TOPIC = "restarts", "restarts"
_PARTITIONS = 6

ACTIONS = {"stop cleanly": 4, "kill source": 3, "kill driver": 3, "kill jvm": 1, "terminate driver": 1}
"""What is done to queries (``integration.soak.chaos``), and how often each in relation to the others."""

# What a restart waits for after the one before, and how often in relation to the others.  Half of them come so soon
# that the group is in the middle of its recovery.  With nothing else, no query that was ended would ever join again.
_WAITS = {"soon": 2, "some query reads again": 1, "two queries are up": 1}
_SOON_S = 1.0
_RECOVERY_PATIENCE_S = 60.0

# Deliberate: shorter than it takes a group to recover.  A coordinator that is back gives each member a new session, the
# dead ones, too; with longer ones the group would wait for them from restart to restart, and nobody would join or read.
_SESSION_MS = 3000
_FIRST_START_PATIENCE_S = 300.0
_END_SEEN_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """What to run.

    Attributes
    ----------
    action_interval_s : float
        The time between two starts, stops and kills of queries; what has ended is started again up to
        ``longest_down_s`` later.
    abort_one : bool
        Whether to send SIGABRT to one source process and to tell nobody: the run must fail.
    folder : Path or None
        Where event logs, logs, checkpoints and sinks stay; None: a temporary folder.
    """

    seed: int
    queries: int = 3
    restarts: int = 100
    brokers: int = 1
    protocol: str = "classic"
    action_interval_s: float = 8.0
    longest_down_s: float = 3.0
    per_second: float = 50.0
    abort_one: bool = False
    folder: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it.

    Attributes
    ----------
    source_ends, actions : Counter of str
        How source processes ended, and what was done.
    starts : int
        How often an application was started.
    deliveries : DeliveryVerdict
        Every produced record, counted.
    violations : list of str
        What should not have happened.
    """

    source_ends: Counter[str]
    actions: Counter[str]
    starts: int
    deliveries: DeliveryVerdict
    violations: list[str]


def run(given: Run, tell: Callable[[str], None] = print) -> Outcome:
    """Restart brokers while queries come and go, and judge it."""
    begin = time.time()

    def say(text: str) -> None:
        tell(f"{time.time() - begin:7.1f} s  {text}")

    # A dead member must be noticed while the run lasts; the broker decides that for KIP-848.
    properties = {"group.consumer.session.timeout.ms": str(_SESSION_MS), "group.consumer.heartbeat.interval.ms": "500"}
    with (
        tempfile.TemporaryDirectory(prefix="restarts-") as temporary,
        LocalKafka(given.brokers, properties=properties) as kafka,
    ):
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        kafka.create_topic(TOPIC, _PARTITIONS, replication_factor=given.brokers)
        with SourceWatch(folder) as watch:
            supervisor = Supervisor(_applications(given, kafka, folder, watch))
            scene = Scene(kafka, given.brokers, False, supervisor)
            chaos = Chaos(scene, given.seed, say)
            problems: list[str] = []
            try:
                with Stream(kafka.bootstrap_servers, {TOPIC: _PARTITIONS}, per_second=given.per_second) as stream:
                    _start(supervisor)
                    say(f"{given.queries} queries are members of the group")
                    _restart(given, scene, chaos, say)
                    problems += expect(lambda: all(one.up for one in supervisor.applications), "all queries are up")
                    calm = time.time()
                    problems += expect(lambda: all(_read_on(supervisor, calm)), "every query is given records again")
                    stream.close()
                    produced = sum(stream.produced.values())
                    problems += expect(lambda: delivered(supervisor) >= produced, "all is delivered")
                    supervisor.stop_all()
                    say("all applications have ended")
            finally:
                scene.over.set()
                supervisor.close()
            # A missing end is told by the oracle below.
            ended_by = time.monotonic() + _END_SEEN_S
            while any(end.code is None for end in watch.ends()) and time.monotonic() < ended_by:
                time.sleep(0.1)
        applications = [one.application for one in supervisor.applications]
        ends = watch.ends()
        problems += unaccounted(ends, {one.name: one.signals_sent for one in applications}, supervisor.endings)
        problems += [*chaos.problems, *supervisor.problems, *unexpected(supervisor.endings)]
        verdict = judge_deliveries(
            stream.produced, [Member(one.name, one.events(), one.deliveries) for one in applications]
        )
    return Outcome(
        source_ends=Counter(end.kind for end in ends),
        actions=Counter(done.kind for done in chaos.done),
        starts=sum(one.starts for one in supervisor.applications),
        deliveries=verdict,
        violations=[*problems, *verdict.violations],
    )


def _applications(given: Run, kafka: LocalKafka, folder: Path, watch: SourceWatch) -> list[Supervised]:
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.group.id": GROUP,
        "kafka.group.protocol": given.protocol,
        "startingOffsets": "earliest",
        "subscribe": TOPIC,
    }
    if given.protocol == "classic":
        options |= {"kafka.session.timeout.ms": str(_SESSION_MS), "kafka.heartbeat.interval.ms": "500"}
    found = []
    for n in range(given.queries):
        name = f"app{n}"
        application = Application(folder, name, options, worker_python=watch.python_of(name))
        draw = random.Random(f"{given.seed}:application:{n}")
        found.append(Supervised(application, draw, given.longest_down_s))
    return found


def _start(supervisor: Supervisor) -> None:
    for one in supervisor.applications:
        one.start()
    supervisor.start()
    wait_for(
        lambda: all(one.up for one in supervisor.applications),
        "all queries are members of the group",
        timeout_s=_FIRST_START_PATIENCE_S,
    )


def _restart(given: Run, scene: Scene, chaos: Chaos, say: Callable[[str], None]) -> None:
    """Restart one broker after the other, and meanwhile do to queries what the seed draws."""
    over, draw = threading.Event(), random.Random(f"{given.seed}:restarts")
    waits: Counter[str] = Counter()

    def act() -> None:
        draw, number = random.Random(f"{given.seed}:actions"), 0
        while not over.wait(given.action_interval_s):
            # Somebody has to meet the next restart.
            if len(_up(scene.supervisor)) >= _enough(scene.supervisor):
                (kind,) = draw.choices([*ACTIONS], [*ACTIONS.values()])
                chaos.do(number, kind)
                number += 1

    acting = threading.Thread(target=act, name="actions", daemon=True)
    acting.start()
    aborted = not given.abort_one
    try:
        for n in range(given.restarts):
            wait_for(lambda: _up(scene.supervisor), "a query is up")
            up = _up(scene.supervisor)
            if not aborted:
                aborted = _abort(up[0].application)
            begin = time.monotonic()
            scene.kafka.restart(n % given.brokers + 1)
            took_s = time.monotonic() - begin
            say(f"restart {n + 1} of {given.restarts}: {len(up)} of {given.queries} queries were up; {took_s:.1f} s")
            (waited,) = draw.choices([*_WAITS], [*_WAITS.values()])
            waits[waited] += 1
            _wait(scene.supervisor, waited, time.time())
        say("after restarts: " + ", ".join(f"{count} times {waited}" for waited, count in waits.items()))
    finally:
        over.set()
        acting.join()
        chaos.wait()


def _up(supervisor: Supervisor) -> list[Supervised]:
    return [one for one in supervisor.applications if one.up]


def _abort(application: Application) -> bool:
    """End a source process as a defect of a C library would; deliberate: not with ``send``, which would tell of it."""
    found = application.processes(Part.SOURCE)
    for process in found:
        kill(process.pid, SIGABRT)
    return bool(found)


def _wait(supervisor: Supervisor, what: str, since: float) -> None:
    if what == "soon":
        time.sleep(_SOON_S)
    elif what == "two queries are up":
        wait_for(lambda: len(_up(supervisor)) >= _enough(supervisor), what)
    else:
        wait_for(lambda: any(_read_on(supervisor, since)), what, timeout_s=_RECOVERY_PATIENCE_S)


def _enough(supervisor: Supervisor) -> int:
    return min(2, len(supervisor.applications))


def _read_on(supervisor: Supervisor, since: float) -> list[bool]:
    """Tell of each query whether it was given records after a time."""
    return [any(d.time > since for d in one.application.deliveries) for one in supervisor.applications]
