"""Kafka to PostgreSQL, exactly once: the test kills and suspends applications of a group, and makes them replay."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.cluster import Stream, lag
from integration.database_sink import WITH_TABLE, WITHOUT, create_tables, rows_of
from integration.pipelines import Application, wait_for
from integration.postgres import execute
from integration.spark_fixtures import classic_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

_PARTITIONS = 4

# The transaction of the table with offsets.  The table without offsets must already have the rows that will repeat.
_IN_TRANSACTION = f"""
    SELECT count(*) FROM pg_stat_activity
    WHERE state = 'idle in transaction' AND application_name = 'app0' AND query LIKE '%{WITH_TABLE}%'
"""


@pytest.fixture
def database(url: str) -> str:
    """Return a schema for this test alone, with both tables."""
    return create_tables(url)


def forget_newest_commit(checkpoint: Path) -> None:
    """Remove the newest entry of Spark's commit log, so that its batch runs again at the next start."""
    commits = [file for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()]
    newest = max(commits, key=lambda file: int(file.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


@pytest.mark.timeout(600)  # starts Spark four times
@classic_protocol  # its clients choose the session timeout
def test_every_record_is_in_the_table_once(
    kafka: Kafka,
    topic: TopicFactory,
    group: str,
    application: Callable[..., Application],
    database: str,
    tmp_path: Path,
) -> None:
    """One application sleeps past its session, and one is killed in its transaction.  Both repeat their last batch."""
    name = topic(_PARTITIONS)
    session = {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "1500"}
    first, second = (
        application(name, f"app{n}", **session).configure(database=f"{database}&application_name=app{n}")
        for n in range(2)
    )
    repeated = [0]  # the number of duplicates in the table without offsets, after each fault

    def noted(fault: str) -> None:
        def more() -> bool:
            count, different, _ = rows_of(database, WITHOUT)
            return count - different > repeated[-1]

        wait_for(more, f"{fault} makes the table without offsets repeat records")
        count, different, _ = rows_of(database, WITHOUT)
        repeated.append(count - different)

    with Stream(kafka.bootstrap_servers, {name: _PARTITIONS}, per_second=200) as stream:
        for one in (first, second):
            one.start()
        for one in (first, second):
            one.wait_for_ownership(2)

        # A zombie: it is suspended in a batch before it writes.  It writes after the new owner has read the records.
        wait_for(lambda: first.events("finished") and len(second.events("finished")) > 1, "both have written")
        second.slow_down(before_s=3.0)
        wait_for(lambda: not (tmp_path / "app1.nap").exists(), "a batch sleeps")
        second.send(signal.SIGSTOP)
        first.wait_for_ownership(_PARTITIONS)
        # Deliberate: of these partitions.  A new owner with a lag first writes the rows of its others.
        asleep = second.events("planned")[-1]["ranges"]

        def written() -> bool:
            rows = execute(database, 'SELECT "partition", next_offset FROM kafka_offsets')
            offsets = {f"{name}-{number}": offset for number, offset in rows}
            return all(offsets.get(tp, 0) >= until for tp, (_, until) in asleep.items())

        wait_for(written, "the new owner writes what the zombie has not")
        second.send(signal.SIGCONT)
        noted("the late batch")
        wait_for(lambda: re.search("rows of .* below the stored offset", second.log_since(0)), "it is filtered")
        second.wait_for_ownership(2)

        # The kill comes between the rows and their commit, or just after it.  Spark does not finish this batch.
        first.slow_down(after_s=20.0)
        wait_for(lambda: not (tmp_path / "app0.nap").exists(), "a batch is slow")
        wait_for(lambda: execute(database, _IN_TRANSACTION)[0][0], "a transaction is open")
        first.kill()
        first.start()
        noted("the replay after the kill")
        second.wait_for_ownership(2)
        first.wait_for_ownership(2)

    first.stop()
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(_PARTITIONS)) == 0, "lag 0")
    second.stop()
    forget_newest_commit(tmp_path / "app1.checkpoint")
    second.start()
    noted("the newest batch without its entry in Spark's commit log")
    second.wait_for_ownership(_PARTITIONS)
    second.stop()

    produced = sum(stream.produced.values())
    assert rows_of(database, WITH_TABLE) == (produced, produced, produced * (produced - 1) // 2)
    count, different, _ = rows_of(database, WITHOUT)
    assert different == produced
    assert count > produced
    print(f"{produced} records; without the offset table {repeated[1:]} rows too many after each fault")
