"""Wrong versions of the shell, each without one rule.  Runs with the real shell must catch them."""

from __future__ import annotations

from pyspark_kafka_group.coordinator import commits, group_thread, rebalances, start_up
from pyspark_kafka_group.query import query
from tests.simulation.mutants import Mutant

SHELL_MUTANTS = [
    Mutant(
        "a query with a checkpoint does not ask where topics begin that were added to its subscription",
        start_up,
        "_StartUp._others",
        "if tp not in self._start.entries]",
        "if not self._start.entries]",
        seed=269,
    ),
    Mutant(
        "does not drain",
        rebalances,
        "Rebalances._on_revoked",
        "while any(tp in self._loop.state.owned for tp in partitions):",
        "while False:",
    ),
    Mutant(
        "deadline of a drain is not fed",
        rebalances,
        "Rebalances._on_revoked",
        "self._loop.feed(inputs.Expire())",
        "pass",
        seed=102,
    ),
    Mutant("no retry", commits, "Commits.retry_due", "self._loop.feed(inputs.Retry())", "pass"),
    Mutant("eviction does not end a drain", commits, "Commits._hear", "elif problem.evicted:", "elif False:", seed=177),
    Mutant(
        "pattern is not followed",
        group_thread,
        "GroupThread._follow",
        "if matching and matching != self.topics:",
        "if False:",
        seed=204,
    ),
    Mutant(
        "a query that stop() has let leave runs its logged batch again",
        query,
        "Query._running_ranges",
        "self._wait_for_end()",
        "return logged.ranges()",
        seed=208,
    ),
]
