"""A query restarts with an unfinished batch, after the group has changed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient

from integration.cluster import Stream, committed, lag, members, produce, reset
from integration.pipelines import (
    PATIENCE_S,
    Application,
    Pipeline,
    Row,
    assert_exactly_once,
    assert_orderly,
    wait_for,
)
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


class FailingOnce:
    """Fails one batch once, before the sink has written anything."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._failed = False

    def __call__(self, batch: int) -> None:
        if batch == self._batch and not self._failed:
            self._failed = True
            raise RuntimeError("the sink is down")


class HeldThenFailing:
    """Blocks a batch until the test releases it, and then fails it.

    Meanwhile the query owns the partitions and writes nothing.
    """

    def __init__(self) -> None:
        self.released = threading.Event()

    def __call__(self, _batch: int) -> None:
        assert self.released.wait(PATIENCE_S)
        raise RuntimeError("the sink is down")


def produce_one_batch(bootstrap: str, topic: str, counts: Mapping[int, int], query: Pipeline, *, start: int) -> None:
    """Stop the query, produce, and start it.  A running query might plan a batch before all records have arrived."""
    query.stop()
    produce(bootstrap, topic, counts, start=start)
    query.start()


def once_per_batch(rows: Iterable[Row]) -> set[Row]:
    """Return the rows in a sink that replaces a batch when it runs again, as Spark's contract requires."""
    return {row._replace(time=0.0) for row in rows}


@either_protocol
def test_a_batch_that_failed_is_replayed_with_its_id_and_its_range(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """A query alone in its group replays exactly the logged range, although more records have arrived since."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    query = pipeline(name, before_batch=FailingOnce(1)).start()
    query.wait_for_rows(20)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    query.failure()
    wait_for(lambda: not members(kafka.bootstrap_servers, group), "the member has left", timeout_s=20)
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 10}, "what failed is not committed"
    produce(kafka.bootstrap_servers, name, {0: 7, 1: 7}, start=15)
    query.start()
    query.wait_for_rows(39)
    replayed = [row.offset for row in query.rows if row.batch == 1]
    assert replayed == [10, 11, 12, 13, 14]
    assert_exactly_once(query.rows, {(name, 0): 22, (name, 1): 17})
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")


@either_protocol
def test_the_first_batch_is_replayed_as_it_was(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Spark does not store the start of batch 0.  The end offset contains it."""
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    query = pipeline(name, before_batch=FailingOnce(0)).start()
    query.failure()
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    query.start()
    query.wait_for_rows(15)
    assert [row.offset for row in query.rows if row.batch == 0] == list(range(10))
    assert_exactly_once(query.rows, {(name, 0): 15})


@either_protocol
def test_ranges_that_another_query_has_taken_over_are_left_to_it(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    first = pipeline(name, name="first", before_batch=FailingOnce(1)).start()
    first.wait_for_rows(20)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    produce_one_batch(kafka.bootstrap_servers, name, {0: 5, 1: 5}, first, start=10)
    first.failure()
    second = pipeline(name, name="second").start()
    second.wait_for_rows(10)
    first.start()
    replayed = wait_for(lambda: first.events("replayed"), "the batch runs again")[0]
    assert replayed["ranges"] == {}, "the second query had read everything"
    assert replayed["skipped"], "the second query still owned a part of it"
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=15)
    wait_for(lambda: len(first.rows) + len(second.rows) >= 40, "everything is read")
    first.stop_cleanly()
    first.start()
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=20)
    wait_for(lambda: len(first.rows) + len(second.rows) >= 50, "everything is read")
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    assert_exactly_once([*first.rows, *second.rows], {(name, 0): 25, (name, 1): 25})
    assert_orderly(second.events())


@either_protocol
def test_skipped_range_is_read_when_its_new_owner_gives_it_back_unread(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Spark's log says that the first query has finished the range.  Only the skip marker shows that it has not."""
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    first = pipeline(name, name="first", before_batch=FailingOnce(1)).start()
    first.wait_for_rows(10)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, [0]) == 0, "lag 0")
    produce_one_batch(kafka.bootstrap_servers, name, {0: 5}, first, start=10)
    first.failure()
    second_batch = HeldThenFailing()
    # Deliberate: without a warm-up.  The first query may still be a member, and the warm-up would run a blocked batch.
    second = pipeline(name, name="second", before_batch=second_batch, warmUp="false").start()
    second.wait_for_ownership(1)
    first.start()
    wait_for((first.checkpoint / "commits" / "1").exists, "Spark has finished the batch that was skipped")
    assert first.events("replayed")[0]["skipped"] == {f"{name}-0": [10, 15]}
    first.stop()
    second_batch.released.set()
    second.failure()
    first.start()
    first.wait_for_rows(15)
    assert [row.offset for row in first.rows] == list(range(15))


def test_killed_query_waits_for_the_session_of_its_former_process_and_replays_what_spark_logged(
    kafka: Kafka, topic: TopicFactory, application: Callable[..., Application], pipeline: Pipelines, protocol: str
) -> None:
    """No member owns the partitions until then.  To skip them would repeat records that the sink already has.

    The next process is one of the test's own session, with the checkpoint of the killed application.
    """
    name = topic(2)
    session = {"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}  # KIP-848: the broker decides
    app = application(name, "app", **session).start()
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    wait_for(lambda: len(app.rows) >= 20, "20 rows")
    with Stream(kafka.bootstrap_servers, {name: 2}, per_second=100) as stream:
        seen = len(app.rows)
        wait_for(lambda: len(app.rows) > seen + 100, "batches run")
        app.kill()
        # As on another host: under KIP-848, the former process must not count as another query.
        host = {"kafka.client.id": "another-host"} if protocol == "consumer" else {}
        again = pipeline(name, name="app", **session, **host).start(processingTime="1 second")
        again.wait_for_rows(100)
    produced = {key: 10 + count for key, count in stream.produced.items()}
    before = app.rows
    wait_for(lambda: len(once_per_batch([*before, *again.rows])) >= sum(produced.values()), "everything is read")
    assert {replayed["skipped"] == {} for replayed in again.events("replayed")} <= {True}
    assert_exactly_once(once_per_batch([*before, *again.rows]), produced)


@either_protocol
def test_a_query_that_is_stopped_while_it_waits_to_replay_does_not_run_its_batch(
    kafka: Kafka, topic: TopicFactory, group: str, application: Callable[..., Application], pipeline: Pipelines
) -> None:
    """Regression: stop() returned True, then the batch ran, and the next query read the same records."""
    name = topic(1)
    classic = {"kafka.group.protocol": "classic", "kafka.session.timeout.ms": "30000"}
    app = application(name, "app", **classic)
    produce(kafka.bootstrap_servers, name, {0: 10})
    app.slow_down(before_s=PATIENCE_S)
    app.start()
    wait_for(lambda: app.has_logged_a_batch, "a batch runs")
    wait_for(lambda: app.events("planned"), "it has records")
    app.kill()
    again = pipeline(name, name="app", **classic).start()  # in the test's own session, which is quick: see the timeout
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def joining() -> int:  # both processes have one client id
        return len(admin.describe_consumer_groups([group], request_timeout=10)[group].result().members)

    wait_for(lambda: joining() == 2, "it waits for the session of its old process")
    again.stop_cleanly()
    assert again.rows == []
    assert app.finished_batch is None
    assert [event["clean"] for event in again.events("left")] == [True]
    other = pipeline(name, name="other", **classic).start()
    other.wait_for_rows(10)
    again.start()
    wait_for(lambda: again.events("replayed"), "the batch is decided again")
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, [0]) == 0, "lag 0")
    assert_exactly_once([*again.rows, *other.rows], {(name, 0): 10})


@either_protocol
def test_reset_is_somebodys_decision(kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines) -> None:
    """A reset ends the query, and the error names the ranges that would repeat.  A restart undoes or follows it.

    The first reset is to an offset within the last run, and the second one to an offset before it.

    Regression: the query compared the offset with the one *seen* at the start of its last run.  So it did not notice a
    reset to an offset within that run.
    """
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    pipeline(name).run_available()
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    pipeline(name).run_available()

    def reset_to(at: int) -> None:
        reset(kafka.bootstrap_servers, group, name, {0: at})
        text = pipeline(name).start().failure()
        assert f"{name}-0: the committed offset of group '{group}' is back at {at}" in text
        assert f"onOffsetRewind=group to process [{at}, 15) again" in text
        assert "onOffsetRewind=checkpoint" in text

    reset_to(12)
    restoring = pipeline(name, onOffsetRewind="checkpoint").run_available()
    assert restoring.rows == []
    assert restoring.events("rewound")[-1]["position"] == 15
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 15}
    reset_to(4)
    following = pipeline(name, onOffsetRewind="group").run_available()
    assert [row.offset for row in following.rows] == list(range(4, 15))
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 15}
    assert pipeline(name).run_available().rows == []


def files(folder: Path) -> list[Path]:
    """Return the numbered files of one of Spark's logs, newest last."""
    return sorted((file for file in folder.iterdir() if file.name.isdecimal()), key=lambda file: int(file.name))


def forget_commit(checkpoint: Path) -> int:
    """Delete the newest file of Spark's commit log, as after a restore from a copy; return its number."""
    newest = files(checkpoint / "commits")[-1]
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    return int(newest.name)


@either_protocol
def test_batch_that_runs_again_gives_what_spark_has_logged_although_it_was_committed(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Regression: the group's offset was this query's own commit of the same batch, so the replay was empty.

    A sink that replaces batches then lost the records.
    """
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    query = pipeline(name).run_available()
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=10)
    query.rows.clear()
    query.run_available()
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    before = {(row.batch, row.partition, row.offset) for row in query.rows}
    assert len(before) == 10
    batch = forget_commit(query.checkpoint)
    again = pipeline(name).run_available()
    assert {(row.batch, row.partition, row.offset) for row in again.rows} == {r for r in before if r[0] == batch}
    assert committed(kafka.bootstrap_servers, group, name, range(2)) == {0: 15, 1: 15}


class Replacing:
    """Counts the calls of a sink that replaces batches: each call would overwrite rows."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, batch: int) -> None:
        self.batches.append(batch)


@either_protocol
def test_old_copy_of_a_checkpoint_is_refused_before_it_overwrites_a_batch_though_others_have_gone_on(
    kafka: Kafka, topic: TopicFactory, pipeline: Pipelines, tmp_path: Path
) -> None:
    """Regression: the warm-up batch had a number that the sink already had, and records were silently lost."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5})
    sink = Replacing()
    first = pipeline(name, name="first", before_batch=sink).run_available()
    copy = tmp_path / "copy"
    shutil.copytree(first.checkpoint, copy)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=10)
    first.run_available()
    other = pipeline(name, name="other").start()
    other.wait_for_ownership(2)
    calls = len(sink.batches)

    def start_from_the_copy() -> str:
        shutil.rmtree(first.checkpoint)
        shutil.copytree(copy, first.checkpoint)
        text = first.start().failure()
        assert len(sink.batches) == calls, "no batch may run"
        return text

    text = start_from_the_copy()  # the other query owns the partitions, but this query made the newest commit
    assert "OutdatedCheckpointError" in text
    assert "this query has committed 10" in text
    assert "but its checkpoint ends at 5" in text
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=20)
    other.wait_for_rows(10)
    wait_for(lambda: sum(len(e["offsets"]) for e in other.events("committed")) >= 2, "the other query has committed")
    text = start_from_the_copy()
    assert "this query has committed 10" in text
    assert_exactly_once([*first.rows, *other.rows], {(name, n): 15 for n in range(2)})
