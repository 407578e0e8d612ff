"""The faults of a standalone Spark cluster during a soak: of its workers, the executors, and their Python.

A fault kills processes of Spark.  The processes that these had started must end without help.  A process that stays
behind is a violation.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from signal import SIGKILL

from integration.pipelines import wait_for
from integration.processes import alive, kill
from integration.soak.faults import Done, Fault, Scene
from integration.spark_cluster import Daemon, Executor


def on_executor(act: Callable[[Executor, random.Random], str]) -> Fault:
    """Make a fault of one of the executors that have read."""

    def fault(scene: Scene, draw: random.Random, done: Done) -> bool:
        executors = at_work(scene)
        if not executors:
            return False
        name, executor = draw.choice(executors)
        done.victim = f"{executor.application} on {name}"
        done.detail = act(executor, draw)
        return True

    return fault


def at_work(scene: Scene) -> list[tuple[str, Executor]]:
    """Return the executors that have Python workers, and so have read, with the names of their Spark workers.

    Deliberate: faults hurt no other executors.  An executor needs seconds to start, and longer on a busy machine.  If
    no executor could read before the next fault, the run would show nothing.
    """
    workers = scene.spark.workers if scene.spark is not None and scene.up(0) is not None else []
    return [(worker.name, one) for worker in workers for one in worker.executors() if one.workers]


def kill_executor(executor: Executor, _draw: random.Random) -> str:
    """Kill the JVM of an executor, and wait until its Python processes notice that and end."""
    kill(SIGKILL, [executor.jvm])
    python = [*executor.daemons, *executor.workers]
    wait_for(lambda: not alive(python), f"the Python of the dead executor {executor.jvm} ends")
    return f"with {len(executor.workers)} Python workers"


def kill_python(executor: Executor, draw: random.Random) -> str:
    """Kill an executor's Python workers, and in half of the cases also the daemon that forks them."""
    daemons = executor.daemons if draw.random() < 0.5 else []
    kill(SIGKILL, [*daemons, *executor.workers])
    return f"{len(executor.workers)} workers, {len(daemons)} daemons"


def wait_for_the_end_of(workers: Sequence[Daemon], timeout_s: float = 30) -> str:
    """Wait until dead workers have no process left, and return a remark if that required killing executors.

    A new executor may try to connect to its worker after the worker has died.  It then never notices the death.  This
    is a defect of Spark, and its machine must come back anyway.  Python without an executor is a defect of this
    project.
    """
    try:
        wait_for(
            lambda: not any(one.processes() for one in workers), "dead workers' executors end", timeout_s=timeout_s
        )
    except AssertionError:
        left = sum(len(worker.executors()) for worker in workers)
        if not left:
            raise
        for worker in workers:
            worker.destroy()
        return f", with {left} executors that did not notice"
    return ""


def kill_workers(*, every: bool) -> Fault:
    """Kill one worker or every worker of Spark, alone or with all processes of its machine, and start it again."""

    def fault(scene: Scene, draw: random.Random, done: Done) -> bool:
        if scene.spark is None or not at_work(scene) or not scene.spark_lock.acquire(blocking=False):
            return False
        try:
            chosen = list(scene.spark.workers) if every else [draw.choice(scene.spark.workers)]
            machine, seconds, begin = draw.random() < 0.5, draw.uniform(0.5, 10.0), time.monotonic()
            done.victim = " and ".join(worker.name for worker in chosen)
            for worker in chosen:
                worker.destroy() if machine else worker.kill()
            scene.over.wait(seconds)
            what = "with its machine" if machine else "alone"
            try:
                what += wait_for_the_end_of(chosen)
            finally:
                for worker in chosen:
                    scene.spark.restart(worker)
            done.detail = f"{what}, back after {time.monotonic() - begin:.1f} s"
        finally:
            scene.spark_lock.release()
        return True

    return fault
