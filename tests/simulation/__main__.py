"""Runs the simulation on all cores: ``python -m tests.simulation --schedules 1000000 --seed 0 --deeper 2``.

It runs random schedules and explores the exhaustive scopes.  One seed in five also runs with the real shell.  If an
invariant is violated, it shrinks the run, prints it step by step, and ends with status 1.
With ``--mutants`` it lists instead which seeds catch each wrong version of the state machine.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator

from tests.simulation.explore import Scope, explore
from tests.simulation.kept import KEPT
from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.schedule import check, from_seed, parse, shrink, tell
from tests.simulation.scopes import SCOPES
from tests.simulation.speed import quick

REAL_SHELL_EVERY = 5
"""One seed out of so many also runs with the real shell, which takes four times as long."""

CHUNK = 250
"""Number of seeds in one job: small, so that all cores end at about the same time."""

SEEDS_FOR_MUTANTS = 3000

Job = range | Scope


def run(job: Job) -> tuple[int, int, str]:
    """Run one job.  Return its number of schedules, its number of explored states, and the text of a violation."""
    with quick():
        if isinstance(job, Scope):
            explored = explore(job)
            told = "" if explored.violation is None else f"{job.name}\n{tell(job.config, explored.actions)}"
            return 0, explored.states, told
        for seed in job:
            config, actions = from_seed(seed)
            for real_shell in (False, True)[: 1 + (seed % REAL_SHELL_EVERY == 0)]:
                found = check(config, actions, real_shell=real_shell)
                if found is not None:
                    small = shrink(config, actions, found.kind, real_shell=real_shell)
                    told = tell(*small, real_shell=real_shell)
                    return seed - job.start + 1, 0, f"seed {seed}{', real shell' if real_shell else ''}\n{told}"
        return len(job), 0, ""


def jobs(first: int, schedules: int, deeper: int) -> Iterator[Job]:
    """Yield the exhaustive scopes, which take longest, and then the random schedules."""
    for scope in SCOPES:
        yield scope._replace(depth=scope.depth + deeper)
    for begin in range(first, first + schedules, CHUNK):
        yield range(begin, min(begin + CHUNK, first + schedules))


def killers(number: int) -> str:
    """Return a table row with the runs that catch a mutant: the first three seeds, and the names of kept schedules."""
    mutant = MUTANTS[number]
    with planted(mutant), quick():
        kept = [kept.name for kept in KEPT if check(kept.config, parse(kept.actions)) is not None]
        seeds = (str(seed) for seed in range(SEEDS_FOR_MUTANTS) if check(*from_seed(seed)) is not None)
        found = [*itertools.islice(seeds, 3), *kept]
    return f"| {mutant.name} | {', '.join(found)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000, help="how many random schedules")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--deeper", type=int, default=0, help="how many steps deeper to explore")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes")
    parser.add_argument("--mutants", action="store_true", help="only list what catches each mutant")
    given = parser.parse_args()
    if given.mutants:
        with multiprocessing.Pool(given.jobs) as pool:
            print("| mutant | caught by seed, or kept schedule |\n|---|---|")
            for line in pool.imap(killers, range(len(MUTANTS))):
                print(line)
        return 0
    began = time.monotonic()
    schedules = states = 0
    with multiprocessing.Pool(given.jobs) as pool:
        for ran, explored, violation in pool.imap_unordered(run, jobs(given.seed, given.schedules, given.deeper)):
            schedules += ran
            states += explored
            if violation:
                print(violation)
                return 1
    seconds = time.monotonic() - began
    print(
        f"{schedules:,} schedules and {states:,} states of {len(SCOPES)} small worlds, no violation, {seconds:.0f} s "
        f"on {given.jobs} cores"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
