"""The order in which the integration tests begin if several workers share them.

Each worker takes whole files, so that the setup of a file runs once.  Long files begin early: a long file at the end
would leave the other workers idle.  Files that run several applications, such as the fault tests, do not begin
together.  Between them begin files that use the worker's own session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

FIRST = (
    "test_faults",
    "test_two_sources",
    "test_replay",
    "test_changed_logs",
    "test_rolling_changes",
    "test_parity_batch",
    "test_sink",
    "test_planned_rebalances",
    "test_exit",
    "test_table_care",
    "test_spark_cluster",
    "test_parity_stream",
    "test_landing",
    "test_migration",
    "test_spark_connect",
    "test_readme",
    "test_token_providers",
    "test_secrets",
    "test_available_now",
    "test_exactly_once_example",
    "test_quick_start",
    "test_parity_sink",
    "test_mistakes",
    "test_demo_cluster",
    "test_rights",
    "test_exactly_once",
    "test_run_until_signal",
    "test_forensics",
    "test_docs_blocks",
    "test_lake_example",
    "test_offset_table",
    "test_brokers",
    "test_group_changes",
    "test_static_membership",
    "test_held_back",
)
"""The files that keep a worker busy for most of a minute or longer.  ``--durations=0`` shows the times."""


def long_ones_first(files: Iterable[str], first: Sequence[str] = FIRST) -> dict[str, int]:
    """Return the place of each file: the files of ``first`` in that order, and then the others in the order given.

    Parameters
    ----------
    files : iterable of str
        The path of each test, so that a file with several tests occurs several times.
    """
    places = {name: place for place, name in enumerate(first)}
    different = dict.fromkeys(files)
    ordered = sorted(different, key=lambda file: places.get(PurePath(file).stem, len(places)))
    return {file: place for place, file in enumerate(ordered)}
