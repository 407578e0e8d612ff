"""Decide which fault a soak does, and when.

The seed draws the faults.  The kind, victim and durations of the n-th fault depend only on the seed and on n.  If the
victim is down at that time, the next one in order takes its place.  If a kind is not possible, another one is drawn.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from integration.processes import Part
from integration.soak.faults import (
    REJOIN_PATIENCE_S,
    Done,
    Fault,
    Scene,
    blackhole,
    coordinator_away,
    cut,
    delay,
    kill,
    kill_broker,
    late_commit,
    on_application,
    on_broker,
    on_network,
    pause,
    pause_broker,
    reset_offsets,
    restart_broker,
    restore_checkpoint,
    roll,
    slow_batch,
    slow_drain,
    stop_cleanly,
    terminate,
)
from integration.soak.spark_faults import kill_executor, kill_python, kill_workers, on_executor

COORDINATOR_AWAY = "coordinator away"
"""Takes minutes, so it is never drawn: ``--coordinator-away`` does it once, at the beginning."""

SPARK_FAULTS: dict[str, tuple[int, Fault]] = {
    "kill executor": (4, on_executor(kill_executor)),
    "kill executor's Python": (4, on_executor(kill_python)),
    "kill Spark worker": (3, kill_workers(every=False)),
    "kill all Spark workers": (1, kill_workers(every=True)),
}
"""Faults of a standalone Spark cluster.  None of them may end a query, because Spark retries the tasks."""

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
    "stop cleanly": (3, on_application(stop_cleanly, ends=True)),
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
    "late commit": (3, on_network(late_commit)),
    "restore checkpoint": (3, on_application(restore_checkpoint, ends=True)),
    "reset offsets": (1, reset_offsets),
    COORDINATOR_AWAY: (0, coordinator_away),
    **SPARK_FAULTS,
}
"""The relative frequency of each kind of fault, and the function that does it."""

DRAWN = [kind for kind, (weight, _) in FAULTS.items() if weight]
"""The kinds of faults that a seed may draw."""

LETHAL = frozenset(
    kind for kind in FAULTS if kind.startswith("kill ") and "broker" not in kind and kind not in SPARK_FAULTS
) | {"terminate source", "restore checkpoint", "reset offsets"}
"""The kinds that may end an application with an error.  After all others, its query must live or end well."""


class Chaos:
    """A runner of faults.  Each fault has a thread of its own, because recoveries take time.

    Attributes
    ----------
    done : list of Done
        Every fault that was done, in order.
    problems : list of str
        Faults whose recovery failed.  The run then proves nothing.
    """

    def __init__(self, scene: Scene, seed: int, tell: Callable[[str], None], only: Sequence[str] = ()) -> None:
        self._weights = {kind: weight for kind, (weight, _) in FAULTS.items() if not only or kind in only}
        self.done: list[Done] = []
        self.problems: list[str] = []
        self._scene = scene
        self._seed = seed
        self._tell = tell
        self._threads: list[threading.Thread] = []

    def draw(self, number: int) -> None:
        """Draw the fault with this number, begin it, and return at once."""
        draw = random.Random(f"{self._seed}:{number}")
        self._begin(number, draw.choices([*self._weights], [*self._weights.values()], k=20), draw)

    def do(self, number: int, kind: str) -> None:
        """Begin a fault of this kind, and return at once."""
        self._begin(number, [kind], random.Random(f"{self._seed}:{number}"))

    def wait(self) -> None:
        """Wait until the causes of all faults are over."""
        for thread in self._threads:
            thread.join(3 * REJOIN_PATIENCE_S)
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
