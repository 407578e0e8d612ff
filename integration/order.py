"""In which order the integration tests begin where several workers share them.

Each worker takes whole files, so that what a file sets up is set up once.  Long files begin early: one that began last
would leave the other workers with nothing to do.  Files that run several applications, as those of faults, begin apart
from each other, with others between them that use the worker's own session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

FIRST = (
    "test_faults",
    "test_two_sources",
    "test_replay",
    "test_changed_logs",
    "test_shared_group",
    "test_rolling_changes",
    "test_parity_batch",
    "test_sink",
    "test_planned_rebalances",
    "test_exit",
    "test_spark_cluster",
    "test_parity_stream",
    "test_migration",
    "test_spark_connect",
    "test_secrets",
    "test_available_now",
    "test_exactly_once_example",
    "test_parity_sink",
    "test_demo_cluster",
    "test_rights",
    "test_exactly_once",
    "test_forensics",
    "test_lake_example",
    "test_bad_input",
    "test_offset_table",
    "test_brokers",
    "test_group_changes",
    "test_static_membership",
    "test_held_back",
)
"""The files in which a worker is busy for most of a minute or longer; ``--durations=0`` tells the times."""


def long_ones_first(files: Iterable[str], first: Sequence[str] = FIRST) -> dict[str, int]:
    """Return the place of each file: those of ``first`` in that order, and behind them the others as they come.

    Parameters
    ----------
    files : iterable of str
        Paths, each as often as it has tests.
    """
    places = {name: place for place, name in enumerate(first)}
    different = dict.fromkeys(files)
    ordered = sorted(different, key=lambda file: places.get(PurePath(file).stem, len(places)))
    return {file: place for place, file in enumerate(ordered)}
