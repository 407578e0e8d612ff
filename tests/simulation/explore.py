"""Explores every schedule of a small world up to a depth, without random choices.

The exploration continues only from new states.  So it covers far more schedules than it visits states.  Every state
must settle without a violation.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from typing import NamedTuple

from tests.simulation.schedule import parse
from tests.simulation.violation import Violation
from tests.simulation.world import Action, Config, World


class Scope(NamedTuple):
    """A small world: its first actions, the actions that may follow, and how many of them follow at most."""

    name: str
    config: Config
    prefix: str
    actions: str
    depth: int


class Explored(NamedTuple):
    """The number of visited states, and the violating run if there is one."""

    states: int
    violation: Violation | None = None
    actions: Sequence[Action] = ()


def explore(scope: Scope) -> Explored:
    """Visit every state that ``scope`` can reach."""
    prefix, choices = parse(scope.prefix), parse(scope.actions)
    world = World(scope.config)
    for action in prefix:
        world.do(action)
    frontier: list[tuple[bytes, tuple[Action, ...]]] = [(pickle.dumps(world), ())]
    seen = {_fingerprint(frontier[0][0])}
    for _ in range(scope.depth):
        reached: list[tuple[bytes, tuple[Action, ...]]] = []
        for frozen, path in frontier:
            for action in choices:
                world = pickle.loads(frozen)
                taken = (*path, action)
                try:
                    if not world.do(action):
                        continue
                    state = pickle.dumps(world)
                    key = _fingerprint(state)
                    if key in seen:
                        continue
                    seen.add(key)
                    world.settle()
                    world.judge_end()
                except Violation as found:
                    return Explored(len(seen), found, [*prefix, *taken])
                reached.append((state, taken))
        frontier = reached
    return Explored(len(seen))


def _fingerprint(state: bytes) -> bytes:
    return hashlib.blake2b(state, digest_size=16).digest()
