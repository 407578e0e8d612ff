"""What is done to applications, brokers and the network during a soak: each fault with its recovery.

A fault is drawn by the seed: kind, victim and durations of the n-th fault depend on the seed and on n alone.  If its
victim is down just then, the next one in order takes its place; a kind that cannot be done is drawn again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from integration.processes import Part
from integration.soak.supervisor import Supervised, Supervisor
from pyspark_kafka_group.testing import LocalKafka

_REJOIN_PATIENCE_S = 120.0

# An application stops, is down for a while, and Spark takes ten seconds and more to start: the batch of the other one
# still runs when it joins.
_DRAIN_NAP_S = 60.0


@dataclass
class Done:
    """A fault that was done; ``end`` is when its cause was over."""

    number: int
    kind: str
    victim: str
    detail: str
    begin: float
    end: float = 0.0


@dataclass
class Scene:
    """What faults are done to.

    Attributes
    ----------
    broker_lock, proxy_lock : Lock
        Held while a broker, or the network, is in trouble: one at a time.
    over : Event
        Set when the run ends: what waits, waits no longer.
    """

    kafka: LocalKafka
    brokers: int
    proxied: bool
    supervisor: Supervisor
    over: threading.Event = field(default_factory=threading.Event)
    broker_lock: threading.Lock = field(default_factory=threading.Lock)
    proxy_lock: threading.Lock = field(default_factory=threading.Lock)

    def up(self, start: int) -> Supervised | None:
        """Return an application that is up, beginning the search at ``start``."""
        order = [*self.supervisor.applications[start:], *self.supervisor.applications[:start]]
        return next((one for one in order if one.up), None)


Fault = Callable[[Scene, random.Random, Done], bool]
"""Does the fault and its recovery, and fills in what it did; False if it could not be done."""


def on_application(act: Callable[[Scene, Supervised, random.Random], str]) -> Fault:
    """Make a fault of one application, which others leave alone meanwhile."""

    def fault(scene: Scene, draw: random.Random, done: Done) -> bool:
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
    """Kill parts of an application with SIGKILL, or all of it."""

    def act(_scene: Scene, one: Supervised, _draw: random.Random) -> str:
        return f"{len(one.application.send(SIGKILL, *parts))} processes"

    return on_application(act)


def terminate(part: Part) -> Fault:
    """Ask a part of an application to end with SIGTERM."""

    def act(_scene: Scene, one: Supervised, _draw: random.Random) -> str:
        one.begin_stop(lambda: one.application.send(SIGTERM, part))
        return ""

    return on_application(act)


def pause(*parts: Part, shortest_s: float = 2.0, longest_s: float = 20.0) -> Fault:
    """Freeze parts of an application for a while."""

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
    """Let one batch take longer than a session, a drain, and sometimes ``max.poll.interval.ms``."""
    seconds, before = draw.uniform(5.0, 25.0), draw.random() < 0.5
    one.application.slow_down(**({"before_s": seconds} if before else {"after_s": seconds}))
    scene.over.wait(seconds)
    return f"{seconds:.1f} s {'before' if before else 'after'} its rows are written"


def slow_drain(scene: Scene, draw: random.Random, done: Done) -> bool:
    """Let a batch outlast the drain: its application is slow while another one goes and comes back."""
    slow = scene.up(draw.randrange(len(scene.supervisor.applications)))
    other = next((one for one in scene.supervisor.applications if one.up and one is not slow), None)
    if slow is None or other is None:
        return False
    slow.under_fault = True
    try:
        for one in (slow, other):
            one.faults.append(done.kind)
        done.victim = slow.name
        done.detail = f"{_DRAIN_NAP_S:g} s after its rows are written, while {other.name} goes and comes back"
        starts = other.starts
        slow.application.slow_down(after_s=_DRAIN_NAP_S)
        other.begin_stop(other.application.begin_stop)
        wait(scene, lambda: other.starts > starts and other.joined)
    finally:
        slow.under_fault = False
    return True


def roll(scene: Scene, _draw: random.Random, done: Done) -> bool:
    """Restart one application after the other, each when the one before is back."""
    if not all(one.up for one in scene.supervisor.applications):
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


def wait(scene: Scene, condition: Callable[[], bool]) -> bool:
    """Wait for ``condition``, unless the run ends."""
    deadline = time.monotonic() + _REJOIN_PATIENCE_S
    while not condition():
        if time.monotonic() > deadline or scene.over.wait(0.2):
            return False
    return True


def on_broker(act: Callable[[Scene, int, random.Random], str]) -> Fault:
    """Make a fault of one broker; one at a time, so that three brokers keep their majority."""

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
    """End a broker cleanly and start it again."""
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
    """Freeze a broker for a while."""
    seconds = draw.uniform(1.0, 12.0)
    scene.kafka.pause(broker)
    scene.over.wait(seconds)
    scene.kafka.resume(broker)
    return f"{seconds:.1f} s"


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
    """Let nothing pass, longer or shorter than a session."""
    seconds = draw.uniform(1.0, 10.0)
    for proxy in scene.kafka.proxies.values():
        proxy.blackhole()
    scene.over.wait(seconds)
    return f"{seconds:.1f} s"


FAULTS: dict[str, tuple[int, Fault]] = {
    "kill application": (3, kill()),
    "kill driver": (2, kill(Part.DRIVER)),
    "kill jvm": (2, kill(Part.JVM)),
    "kill source": (2, kill(Part.SOURCE)),
    "kill worker": (1, kill(Part.WORKER)),
    "pause source": (4, pause(Part.SOURCE)),
    "pause source past its session": (1, pause(Part.SOURCE, shortest_s=9.0, longest_s=14.0)),
    "pause jvm": (2, pause(Part.JVM)),
    "pause application": (2, pause()),
    "stop cleanly": (3, on_application(stop_cleanly)),
    "terminate driver": (2, terminate(Part.DRIVER)),
    "terminate source": (1, terminate(Part.SOURCE)),
    "slow batch": (4, on_application(slow_batch)),
    "slow batch past its drain": (1, slow_drain),
    "rolling restart": (2, roll),
    "restart broker": (2, on_broker(restart_broker)),
    "kill broker": (2, on_broker(kill_broker)),
    "pause broker": (2, on_broker(pause_broker)),
    "cut network": (2, on_network(cut)),
    "slow network": (2, on_network(delay)),
    "silent network": (2, on_network(blackhole)),
}
"""How often each kind is drawn in relation to the others, and what it does."""

LETHAL = frozenset(kind for kind in FAULTS if kind.startswith("kill ") and "broker" not in kind) | {"terminate source"}
"""What ends an application; all others must leave its query alive, or let it end well."""


class Chaos:
    """Does faults, each on a thread of its own because recoveries take time.

    Attributes
    ----------
    done : list of Done
        Every fault that was done, in order.
    problems : list of str
        Faults whose recovery failed: the run proves nothing then.
    """

    def __init__(self, scene: Scene, seed: int, tell: Callable[[str], None]) -> None:
        self.done: list[Done] = []
        self.problems: list[str] = []
        self._scene = scene
        self._seed = seed
        self._tell = tell
        self._threads: list[threading.Thread] = []

    def draw(self, number: int) -> None:
        """Begin the fault with this number; returns at once."""
        draw = random.Random(f"{self._seed}:{number}")
        self._begin(number, [draw.choices(list(FAULTS), [w for w, _ in FAULTS.values()])[0] for _ in range(20)], draw)

    def do(self, number: int, kind: str) -> None:
        """Begin a fault of this kind; returns at once."""
        self._begin(number, [kind], random.Random(f"{self._seed}:{number}"))

    def wait(self) -> None:
        """Wait until the causes of all faults are over."""
        for thread in self._threads:
            thread.join(3 * _REJOIN_PATIENCE_S)
            if thread.is_alive():
                self.problems.append(f"{thread.name} is not over")

    def _begin(self, number: int, kinds: list[str], draw: random.Random) -> None:
        thread = threading.Thread(target=self._run, args=(number, kinds, draw), name=f"fault {number}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, number: int, kinds: list[str], draw: random.Random) -> None:
        for kind in kinds:
            done = Done(number, kind, "", "", time.time())
            self.done.append(done)
            try:
                if FAULTS[kind][1](self._scene, draw, done):
                    done.end = time.time()
                    self._tell(f"fault {number}: {kind}, {done.victim} {done.detail}".rstrip())
                    return
            except Exception as problem:
                done.end = time.time()
                self.problems.append(f"fault {number} ({kind}, {done.victim}) failed: {problem!r}")
                return
            self.done.remove(done)
