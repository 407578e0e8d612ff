"""A large group in the simulated world: ``python -m tests.simulation.large_group --members 100 --partitions 10000``.

All members join a group with committed offsets at the same time.  Then they read and commit, one member leaves, one
dies, and the world settles.  The judge of all simulated runs also judges this one.  It counts rounds, because there is
no clock.  In each round, each member takes one step of each kind, and commits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from pyspark_kafka_group.coordinator.handover.transitions import Phase
from tests.simulation.query import Stage
from tests.simulation.speed import quick
from tests.simulation.violation import Violation
from tests.simulation.world import Action, Config, World

_MOST_ROUNDS = 100


class Phases(NamedTuple):
    """The number of rounds of each phase, and the number of commits.

    Attributes
    ----------
    settle : int
        Until each partition has an owner that knows its start.
    commit : int
        Until all records that were produced after that are committed.
    leave, die : int
        Until the partitions of a member that left, or was evicted, have other owners.
    commits : int
        Commits of all members in all phases.
    """

    settle: int
    commit: int
    leave: int
    die: int
    commits: int


class LargeGroup:
    """A group whose members all take the same steps.

    Parameters
    ----------
    protocol : str
        ``classic`` or ``consumer``.
    members, partitions : int
        The number of members, and of partitions.
    """

    def __init__(self, protocol: str, members: int, partitions: int) -> None:
        # A member that fell back to `latest` would skip the two records behind the committed offset, and lose them.
        self.world = World(
            Config(
                protocol=protocol,
                topics=(partitions,),
                queries=("a",) * members,
                records=2,
                latest=True,
                known=True,
                slow=("",) * members,
                own=("",) * members,
            )
        )
        self.commits = 0

    def run(self) -> Phases:
        """Run all phases.

        Raises
        ------
        Violation
            If records were lost, repeated or invented, or if a phase does not end.
        """
        world = self.world
        for number in range(len(world.queries)):
            world.do(Action("start", number))
        settle = self._rounds(self._is_settled, "the group settles")
        for number in range(len(world.partitions)):
            world.do(Action("produce", number))
        commit = self._rounds(self._is_committed, "all is committed")
        world.do(Action("exit", 0))
        leave = self._rounds(self._is_settled, "the others have the partitions of the one that left")
        world.do(Action("crash", 1))
        world.do(Action("evict", 1))
        die = self._rounds(self._is_settled, "the others have the partitions of the one that died")
        world.settle()
        world.judge_end()
        return Phases(settle, commit, leave, die, self.commits)

    def _rounds(self, over: Callable[[], bool], what: str) -> int:
        for number in range(_MOST_ROUNDS):
            if over():
                return number
            for query in self.world.queries:
                self.commits += query.commit is not None  # this round answers it
                query.tick()
                for _stage in Stage:
                    if not query.engine(0):
                        break
                if query.running and query.state.ending and not (query.state.uncommitted or query.state.in_doubt):
                    query.leave()
        raise Violation("stuck", f"not within {_MOST_ROUNDS} rounds: {what}")

    def _is_settled(self) -> bool:
        running = [query for query in self.world.queries if query.running and not query.state.ending]
        known = [sum(p.phase is Phase.ACTIVE for p in query.state.owned.values()) for query in running]
        return sum(known) == len(self.world.partitions) and max(known) - min(known) <= 1

    def _is_committed(self) -> bool:
        store, logs = self.world.store, self.world.logs
        return all(store.committed[tp].offset == log.end for tp, log in logs.items())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.large_group", description=__doc__)
    parser.add_argument("--members", type=int, default=100, help="(default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=10_000, help="(default: %(default)s)")
    given = parser.parse_args()
    for protocol in ("classic", "consumer"):
        begin = time.monotonic()
        with quick():
            phases = LargeGroup(protocol, given.members, given.partitions).run()
        print(f"{protocol}: {phases}, {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
