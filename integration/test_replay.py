"""A query restarts with an unfinished batch, after the group has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from confluent_kafka.admin import AdminClient

from integration.cluster import Stream, committed, lag, members, produce
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
def test_killed_query_waits_for_the_session_of_its_former_process_and_replays_what_spark_logged(
    kafka: Kafka, topic: TopicFactory, application: Callable[..., Application], pipeline: Pipelines
) -> None:
    """No member owns the partitions until then.  To skip them would repeat records that the sink already has.

    The next process is one of the test's own session, with the checkpoint of the killed application.
    """
    name = topic(2)
    app = application(name, "app").start()
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    wait_for(lambda: len(app.rows) >= 20, "20 rows")
    with Stream(kafka.bootstrap_servers, {name: 2}, per_second=100) as stream:
        seen = len(app.rows)
        wait_for(lambda: len(app.rows) > seen + 100, "batches run")
        app.kill()
        # As on another host: the former process must not count as another query.
        again = pipeline(name, name="app", **{"kafka.client.id": "another-host"}).start(processingTime="1 second")
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
