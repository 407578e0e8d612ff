"""Each record's rows are written once, in every order of replays, late writers and double owners that was tried.

The simulation is in `writers.py`; the same runs on a real PostgreSQL in `integration/test_offset_table.py`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pyspark_kafka_group.stores import task_writes
from pyspark_kafka_group.stores.database import Database
from tests.stores.writers import CREATE_ROWS, ROWS, Faulty, Record, World

_SCHEDULES = 20
_UNTIL_CAUGHT = 60


@pytest.fixture
def database(tmp_path: Path) -> Database:
    found = Database.checked(f"sqlite:///{tmp_path}/rows.db", lock_timeout_s=0.0, idle_timeout_s=60.0)
    with found.transaction() as connection:
        connection.exec_driver_sql(CREATE_ROWS)
    return found


def run(seed: int, database: Database, faulty: Faulty, happened: Counter[str]) -> tuple[list[Record], list[Record]]:
    world = World(seed, database, faulty)
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
    # Otherwise nothing was put to the test.
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


@pytest.mark.parametrize("name", ["spread", "commits_early"])
def test_without_one_of_its_premises_rows_are_lost(name: str, database: Database) -> None:
    """All rows of a partition in one task, and a source that commits only what is finished."""
    assert any(run(seed, database, Faulty(**{name: True}), Counter())[0] for seed in range(_UNTIL_CAUGHT))
