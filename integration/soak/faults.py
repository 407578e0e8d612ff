"""The faults of a soak in applications, brokers and the network, each with its recovery.

:mod:`integration.soak.chaos` decides when each fault happens.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any

from integration.cluster import committed
from integration.kafka_tools import TRANSACTIONS, run_tool
from integration.oracles import Reset
from integration.pipelines import finished_in
from integration.processes import Part
from integration.soak.supervisor import Supervised, Supervisor
from integration.spark_cluster import SparkCluster
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.tools.command_base import FOUND

REJOIN_PATIENCE_S = 120.0
"""The longest time that an application may need to become a member again."""

# Meanwhile another application stops, stays down, and joins again.  Spark alone needs ten seconds or more to start.
# The slow batch must still run then.
_DRAIN_NAP_S = 60.0

# API keys of OffsetCommit and TxnOffsetCommit.
_COMMITS = (8, 28)


@dataclass
class Done:
    """A fault that was done.  ``end`` is the time when its cause was over."""

    number: int
    kind: str
    victim: str
    detail: str
    begin: float
    end: float = 0.0


@dataclass
class Scene:
    """The targets of faults.

    Attributes
    ----------
    spark : SparkCluster or None
        The cluster that runs executors; None if applications run in local mode.
    group, topic : str
        The group of the applications, and the topic whose offsets a fault resets.
    partitions : int
        The number of partitions of the topic.
    copies : Path or None
        The folder for copies of checkpoints.
    resets : list of Reset
        The resets of the group's offsets.
    coordinator_away_s : float
        How long :func:`coordinator_away` keeps a broker away.
    broker_lock, proxy_lock, spark_lock : Lock
        Held during a fault of a broker, of the network, or of Spark's workers.  Each lock allows one fault at a time.
    over : Event
        Set when the run ends.  It ends all waits.
    """

    kafka: LocalKafka
    brokers: int
    proxied: bool
    supervisor: Supervisor
    spark: SparkCluster | None = None
    group: str = ""
    topic: str = ""
    partitions: int = 0
    copies: Path | None = None
    resets: list[Reset] = field(default_factory=list)
    coordinator_away_s: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)
    broker_lock: threading.Lock = field(default_factory=threading.Lock)
    proxy_lock: threading.Lock = field(default_factory=threading.Lock)
    spark_lock: threading.Lock = field(default_factory=threading.Lock)

    def up(self, start: int) -> Supervised | None:
        """Return the first application that is up, from ``start`` on; None if all are down."""
        order = [*self.supervisor.applications[start:], *self.supervisor.applications[:start]]
        return next((one for one in order if one.up), None)

    def may_lose_one(self) -> bool:
        """Return whether a fault may end an application.

        Deliberate: on a Spark cluster, one application always stays up.  On a busy machine, an application needs a
        minute or more to come back there.  If faults ended each one as soon as it is up, no application would read for
        minutes.
        """
        return self.spark is None or sum(one.up for one in self.supervisor.applications) > 1


Fault = Callable[[Scene, random.Random, Done], bool]
"""A function that does a fault and its recovery, and fills in ``Done``.  It returns False if this is not possible."""


def on_application(act: Callable[[Scene, Supervised, random.Random], str], *, ends: bool = False) -> Fault:
    """Make a fault of one application, which other faults leave alone meanwhile.

    Set ``ends`` if the fault ends the application's process.
    """

    def fault(scene: Scene, draw: random.Random, done: Done) -> bool:
        if ends and not scene.may_lose_one():
            return False
        one = scene.up(draw.randrange(len(scene.supervisor.applications)))
        if one is None:
            return False
        one.under_fault = True
        one.faults.append(done.kind)
        done.victim = one.name
        try:
            done.detail = act(scene, one, draw)
        finally:
            one.under_fault = False
        return True

    return fault


def kill(*parts: Part) -> Fault:
    """Kill parts of an application, or all of it, with SIGKILL."""

    def act(_scene: Scene, one: Supervised, _draw: random.Random) -> str:
        return f"{len(one.application.send(SIGKILL, *parts))} processes"

    return on_application(act, ends=True)


def terminate(part: Part) -> Fault:
    """Ask a part of an application to end, with SIGTERM."""

    def act(_scene: Scene, one: Supervised, _draw: random.Random) -> str:
        one.begin_stop(lambda: one.application.send(SIGTERM, part))
        return ""

    return on_application(act, ends=True)


def pause(*parts: Part, shortest_s: float = 2.0, longest_s: float = 20.0) -> Fault:
    """Suspend parts of an application for a while."""

    def act(scene: Scene, one: Supervised, draw: random.Random) -> str:
        seconds = draw.uniform(shortest_s, longest_s)
        frozen = one.application.send(SIGSTOP, *parts)
        scene.over.wait(seconds)
        if one.running:
            one.application.send(SIGCONT, *parts)
        return f"{len(frozen)} processes for {seconds:.1f} s"

    return on_application(act)


def stop_cleanly(_scene: Scene, one: Supervised, _draw: random.Random) -> str:
    """Stop an application between two batches."""
    one.begin_stop(one.application.begin_stop)
    return ""


def slow_batch(scene: Scene, one: Supervised, draw: random.Random) -> str:
    """Make one batch outlast a session, a drain, and sometimes ``max.poll.interval.ms``."""
    seconds, before = draw.uniform(5.0, 25.0), draw.random() < 0.5
    one.application.slow_down(**({"before_s": seconds} if before else {"after_s": seconds}))
    scene.over.wait(seconds)
    return f"{seconds:.1f} s {'before' if before else 'after'} its rows are written"


def slow_drain(scene: Scene, draw: random.Random, done: Done) -> bool:
    """Make a batch outlast the drain: its application is slow while another one leaves and comes back."""
    slow = scene.up(draw.randrange(len(scene.supervisor.applications)))
    other = next((one for one in scene.supervisor.applications if one.up and one is not slow), None)
    if slow is None or other is None:
        return False
    slow.under_fault = True
    try:
        for one in (slow, other):
            one.faults.append(done.kind)
        done.victim = slow.name
        done.detail = f"after its rows are written, while {other.name} goes and comes back"
        starts, expired = other.starts, len(slow.application.events("expired"))
        slow.application.slow_down(after_s=_DRAIN_NAP_S)
        nap_is_over = time.monotonic() + _DRAIN_NAP_S
        other.begin_stop(other.application.begin_stop)
        wait(scene, lambda: other.starts > starts and other.joined)
        # If the hand-over takes no partition that the batch reads, no drain expires.  Then wait for the end of the nap.
        wait(
            scene,
            lambda: len(slow.application.events("expired")) > expired or time.monotonic() > nap_is_over,
        )
    finally:
        slow.application.wake_up()
        slow.under_fault = False
    return True


def roll(scene: Scene, _draw: random.Random, done: Done) -> bool:
    """Restart the applications one after another, each after the previous one is back."""
    if not wait(scene, lambda: all(one.up for one in scene.supervisor.applications)):
        return False
    done.victim = "all"
    for one in scene.supervisor.applications:
        if not wait(scene, lambda one=one: one.up):  # type: ignore[misc]  # a lambda with a default
            return True
        starts = one.starts
        one.faults.append(done.kind)
        one.begin_stop(one.application.begin_stop)
        wait(scene, lambda one=one, starts=starts: one.starts > starts and one.joined)  # type: ignore[misc]
    return True


def restore_checkpoint(scene: Scene, one: Supervised, draw: random.Random) -> str:
    """Kill an application and start it with an older copy of its checkpoint.

    If the application refuses the copy, put the newest checkpoint back.  If the copy lacks nothing, the application may
    continue with it.  The sinks show whether that was right.

    Nothing in Kafka shows the age of a copy that lacks only batches which the query has not committed.  The sinks would
    skip the next batches with these numbers.  docs/guarantees.md names this, so the soak does not use such a copy.
    """
    assert scene.copies is not None
    copy = scene.copies / f"{one.name}-{one.starts}-{draw.randrange(10**6)}"
    of_copy = one.application.copy_checkpoint(copy)
    scene.over.wait(draw.uniform(2.0, 15.0))
    one.held = True
    try:
        one.faults.append("restore checkpoint")  # it may have ended and started meanwhile, of an earlier fault
        one.application.send(SIGKILL)
        wait(scene, lambda: not one.running)
        newest = one.application.finished_batch
        if of_copy != newest and not has_committed_beyond(one.application.events("committed"), finished_in(copy)):
            return f"batch {of_copy} of {newest}: not used, because the others are not committed"
        one.application.exchange_checkpoint(copy)
        one.start()
        one.faults.append("restore checkpoint")
        decided = wait(scene, lambda: not one.running or one.joined)
        if decided and one.running:
            return f"batch {of_copy} of {newest}: goes on"
        if not decided:  # the run ended before the decision
            one.application.send(SIGKILL)
            deadline = time.monotonic() + REJOIN_PATIENCE_S
            while one.running and time.monotonic() < deadline:
                time.sleep(0.2)
            one.application.exchange_checkpoint(copy)
            return f"batch {of_copy} of {newest}: the run was over before"
        one.application.exchange_checkpoint(copy)
        if "OutdatedCheckpointError" not in one.log:
            raise AssertionError(f"{one.name} ended, and does not say that its checkpoint is outdated")
        return f"batch {of_copy} of {newest}: refused"
    finally:
        one.held = False


def has_committed_beyond(commits: Iterable[Mapping[str, Any]], finished: Mapping[str, int]) -> bool:
    """Return whether a query has committed more of a partition than it had finished in a copy of its checkpoint."""
    return any(offset > finished.get(tp, offset) for event in commits for tp, offset in event["offsets"].items())


def reset_offsets(scene: Scene, _draw: random.Random, done: Done) -> bool:
    """Stop all applications, and set offsets back.  Let the applications refuse them, and then restore the old ones.

    Reset only partitions that all applications have read.  An application that has never read a partition cannot notice
    its reset.
    """
    every = scene.supervisor.applications
    if scene.spark is not None or not every:
        return False
    wait(scene, lambda: all(one.up for one in every))
    if not all(one.up for one in every) or not scene.broker_lock.acquire(blocking=False):
        return False
    try:
        kafka = scene.kafka.bootstrap_servers
        read = [{tp for event in one.application.events("planned") for tp in event["ranges"]} for one in every]
        known = [n for n in range(scene.partitions) if all(f"{scene.topic}-{n}" in tps for tps in read)][:2]
        if not known:
            return False
        done.victim = "group"
        for one in every:
            one.held = True
            one.application.configure_source(onOffsetRewind=None)
            one.faults.append(done.kind)
            one.begin_stop(one.application.begin_stop)
        wait(scene, lambda: not any(one.running for one in every))
        before = committed(kafka, scene.group, scene.topic, known)
        begin = time.time()
        _reset_to_start(scene, known)
        _restart_all(scene, done.kind)
        wait(scene, lambda: not any(one.running for one in every))
        told = [one.name for one in every if "OffsetRewindError" in one.log]
        for one in every:
            if not one.running:
                one.application.configure_source(onOffsetRewind="checkpoint")
        _restart_all(scene, done.kind)
        wait(scene, lambda: all(one.joined for one in every))
        wait(scene, lambda: _reached(kafka, scene, before))
        scene.resets += [Reset(f"{scene.topic}-{n}", begin, time.time()) for n in known]
        if _reached(kafka, scene, before):  # else a slow application still has to restore them
            for one in every:
                one.application.configure_source(onOffsetRewind=None)
        done.detail = f"{known} to 0; {len(told)} of {len(every)} have refused"
        if not told:
            raise AssertionError("no application has said that offsets were reset")
    finally:
        for one in every:
            one.held = False
        scene.broker_lock.release()
    return True


def _reset_to_start(scene: Scene, partitions: list[int]) -> None:
    """Reset the offsets with our own command.  It records each old offset, which ``checkpoint`` then restores.

    Kafka's tools record no old offset.  After a reset with them, the query that owns the partition restores its own
    offset.  It repeats the records above that offset that another query has finished.  docs/guarantees.md names this.
    So the soak does not test it.
    """
    wanted = f"{scene.topic}:{','.join(map(str, partitions))}"
    command = [sys.executable, "-m", "pyspark_kafka_group.tools", "reset", "-b", scene.kafka.bootstrap_servers]
    command += ["--to", "start", "--topics", wanted, "--execute", scene.group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    deadline = time.monotonic() + REJOIN_PATIENCE_S
    while done.returncode == FOUND and time.monotonic() < deadline and not scene.over.wait(1.0):
        # After its stop, a static member stays in the group until its session ends.
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise AssertionError(f"kafka-group reset has ended with {done.returncode}: {done.stdout}{done.stderr}")


def _restart_all(scene: Scene, kind: str) -> None:
    for one in scene.supervisor.applications:
        if not one.running:
            one.start()
            one.faults.append(kind)


def _reached(servers: str, scene: Scene, before: dict[int, int]) -> bool:
    now = committed(servers, scene.group, scene.topic, before)
    return all(now[n] >= offset for n, offset in before.items())


def late_commit(scene: Scene, draw: random.Random) -> str:
    """Hold the next commit back until its sender has abandoned it and committed again."""
    key, seconds = draw.choice(_COMMITS), draw.uniform(7.0, 20.0)
    for proxy in scene.kafka.proxies.values():
        proxy.hold(key)
    scene.over.wait(seconds)
    return f"request {key} for up to {seconds:.1f} s"


def wait(scene: Scene, condition: Callable[[], bool]) -> bool:
    """Wait until ``condition`` is true.  Return False if the time or the run ends before."""
    deadline = time.monotonic() + REJOIN_PATIENCE_S
    while not condition():
        if time.monotonic() > deadline or scene.over.wait(0.2):
            return False
    return True


def on_broker(act: Callable[[Scene, int, random.Random], str]) -> Fault:
    """Make a fault of one broker.  Only one runs at a time, so that three brokers keep their majority."""

    def fault(scene: Scene, draw: random.Random, done: Done) -> bool:
        if not scene.broker_lock.acquire(blocking=False):
            return False
        try:
            broker = draw.randint(1, scene.brokers)
            done.victim = f"broker {broker}"
            done.detail = act(scene, broker, draw)
        finally:
            scene.broker_lock.release()
        return True

    return fault


def restart_broker(scene: Scene, broker: int, _draw: random.Random) -> str:
    """Stop a broker cleanly, and start it again."""
    scene.kafka.restart(broker)
    return ""


def kill_broker(scene: Scene, broker: int, draw: random.Random) -> str:
    """Kill a broker and start it again a little later."""
    seconds = draw.uniform(0.5, 10.0)
    scene.kafka.kill(broker)
    scene.over.wait(seconds)
    scene.kafka.restart(broker)
    return f"gone for {seconds:.1f} s"


def pause_broker(scene: Scene, broker: int, draw: random.Random) -> str:
    """Suspend a broker for a while."""
    seconds = draw.uniform(1.0, 12.0)
    scene.kafka.pause(broker)
    scene.over.wait(seconds)
    scene.kafka.resume(broker)
    return f"{seconds:.1f} s"


def coordinator_away(scene: Scene, _draw: random.Random, done: Done) -> bool:
    """Keep the broker away that coordinates the commits of an application, and start it again after some minutes."""
    found: dict[str, int] = {}

    def known() -> bool:
        found.update(_coordinators(scene.kafka.bootstrap_servers))
        return bool(found)

    wait(scene, known)
    with scene.broker_lock:
        broker = min(found.values())
        kept = sum(coordinator == broker for coordinator in found.values())
        done.victim = f"broker {broker}"
        done.detail = f"coordinated the commits of {kept} applications, away for {scene.coordinator_away_s:.0f} s"
        scene.kafka.kill(broker)
        scene.over.wait(scene.coordinator_away_s)
        scene.kafka.restart(broker)
    return True


def _coordinators(servers: str) -> dict[str, int]:
    """Return the broker that coordinates the transactional id of each query."""
    lines = run_tool(TRANSACTIONS, "--bootstrap-server", servers, "list").splitlines()
    return {name: int(broker) for name, broker, *_ in map(str.split, lines[1:]) if name.startswith("kafka-group-")}


def on_network(act: Callable[[Scene, random.Random], str]) -> Fault:
    """Make a fault of the network between all applications and brokers."""

    def fault(scene: Scene, draw: random.Random, done: Done) -> bool:
        if not scene.proxied or not scene.proxy_lock.acquire(blocking=False):
            return False
        try:
            done.victim = "network"
            done.detail = act(scene, draw)
        finally:
            for proxy in scene.kafka.proxies.values():
                proxy.heal()
            scene.proxy_lock.release()
        return True

    return fault


def cut(scene: Scene, _draw: random.Random) -> str:
    """Reset all connections."""
    for proxy in scene.kafka.proxies.values():
        proxy.cut()
    return ""


def delay(scene: Scene, draw: random.Random) -> str:
    """Make the network slow."""
    seconds, how_long = draw.uniform(0.05, 0.4), draw.uniform(3.0, 15.0)
    for proxy in scene.kafka.proxies.values():
        proxy.delay(seconds)
    scene.over.wait(how_long)
    return f"{seconds:.2f} s more each way, for {how_long:.1f} s"


def blackhole(scene: Scene, draw: random.Random) -> str:
    """Let no data pass, for longer or shorter than a session."""
    seconds = draw.uniform(1.0, 10.0)
    for proxy in scene.kafka.proxies.values():
        proxy.blackhole()
    scene.over.wait(seconds)
    return f"{seconds:.1f} s"
