"""The table gets each record's rows once, in every tried order of replays, late writers and double owners.

The simulation is in `writers.py`.  `integration/test_offset_table.py` runs it on a real PostgreSQL.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pyspark_kafka_group.errors import TableBehindError
from pyspark_kafka_group.stores import task_writes
from pyspark_kafka_group.stores.database import Database
from pyspark_kafka_group.stores.offset_rows import OffsetRows
from tests.stores.writers import CREATE_ROWS, ROWS, Faulty, Record, World

_SCHEDULES = 20
_UNTIL_CAUGHT = 60
_GONE_BACK = (8, 10, 25, 28, 32)
"""Schedules that lose rows if nothing notices that the database has gone back.  If the model changes, choose others."""


@pytest.fixture
def database(tmp_path: Path) -> Database:
    found = Database.checked(f"sqlite:///{tmp_path}/rows.db", lock_timeout_s=0.0, idle_timeout_s=60.0)
    with found.transaction() as connection:
        connection.exec_driver_sql(CREATE_ROWS)
    return found


def run(
    seed: int, database: Database, faulty: Faulty, happened: Counter[str], *, restores: bool = False
) -> tuple[list[Record], list[Record]]:
    world = World(seed, database, faulty, restores=restores)
    with database.transaction() as connection:
        world.offset_rows.create(connection)
    world.run()
    with database.transaction() as connection:
        found = connection.exec_driver_sql(f"SELECT * FROM {ROWS} WHERE topic = '{world.topic}'").all()
    happened.update(world.happened)
    return world.judge([(r[0], r[1], r[2], r[3]) for r in found])


def test_no_row_is_lost_or_doubled(database: Database) -> None:
    happened: Counter[str] = Counter()
    for seed in range(_SCHEDULES):
        assert run(seed, database, Faulty(), happened) == ([], []), f"seed {seed}"
    # Otherwise the schedules have tested too little.
    assert happened["finished"] > 5 * _SCHEDULES
    assert happened["filtered"] > 5 * _SCHEDULES
    assert happened["replay"] > _SCHEDULES / 2
    assert happened["rewound"] > _SCHEDULES / 10
    assert happened["waited"] > _SCHEDULES / 2
    assert happened["failed"] > _SCHEDULES / 2


@pytest.mark.parametrize("name", ["no_lock", "apart", "no_filter"])
def test_without_one_of_its_parts_rows_are_doubled(
    name: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "no_filter":
        monkeypatch.setattr(task_writes, "from_offset", lambda rows, _stored: rows)
    faulty = Faulty() if name == "no_filter" else Faulty(**{name: True})
    assert any(run(seed, database, faulty, Counter())[1] for seed in range(_UNTIL_CAUGHT))


def test_with_a_partition_in_two_tasks_rows_are_lost(database: Database) -> None:
    assert any(run(seed, database, Faulty(spread=True), Counter())[0] for seed in range(_UNTIL_CAUGHT))


def test_a_task_that_takes_the_end_of_its_connection_for_that_of_its_rows_loses_rows(database: Database) -> None:
    assert any(run(seed, database, Faulty(believes_the_end=True), Counter())[0] for seed in range(_UNTIL_CAUGHT))


def test_a_source_that_commits_what_is_not_finished_is_noticed(database: Database) -> None:
    noticed = 0
    for seed in range(_SCHEDULES):
        try:
            assert run(seed, database, Faulty(commits_early=True), Counter())[0] == []
        except TableBehindError:
            noticed += 1
    assert noticed > _SCHEDULES / 10


@pytest.mark.parametrize("compared", [True, False])
def test_a_database_that_has_gone_back_is_noticed(
    compared: bool, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer notices it, or no row was missing.  Without the comparison, the database loses rows."""
    if not compared:
        lock = OffsetRows.lock
        monkeypatch.setattr(OffsetRows, "lock", lambda rows, connection, tp, _planned: lock(rows, connection, tp))
    outcomes: dict[str, set[int]] = {"lost": set(), "noticed": set(), "right": set()}
    for seed in {*_GONE_BACK, *range(_SCHEDULES)} if compared else _GONE_BACK:
        try:
            lost, _ = run(seed, database, Faulty(), Counter(), restores=True)
            outcomes["lost" if lost else "right"].add(seed)
        except TableBehindError:
            outcomes["noticed"].add(seed)
    assert outcomes["noticed" if compared else "lost"] >= {*_GONE_BACK}
    assert not outcomes["lost" if compared else "noticed"]
