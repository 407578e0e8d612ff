"""The leader of a partition is down: the query reports the partition, keeps its lag, and reads it later."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from integration.cluster import produce
from integration.pipelines import Pipeline, assert_exactly_once, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group import metrics
from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.tools.analysis.documents import group_document
from pyspark_kafka_group.tools.analysis.group_view import GroupView, view_group
from pyspark_kafka_group.tools.commands import kafka_group
from pyspark_kafka_group.tools.texts import group_text

Pipelines = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def three() -> Iterator[LocalKafka]:
    """Yield a cluster of three brokers.  Its topics have one replica, except Kafka's internal topics."""
    with LocalKafka(brokers=3) as cluster:
        yield cluster


def health(group: str) -> Result:
    return CliRunner().invoke(kafka_group, ["health", "--within", "2m", group])


def leaders(cluster: LocalKafka, topic: str) -> dict[int, int]:
    """Return the id of each partition's leader; -1 if the partition has no leader."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return {n: part.leader for n, part in admin.list_topics(topic, timeout=20).topics[topic].partitions.items()}


def seen_from_outside(cluster: LocalKafka, group: str) -> GroupView:
    inspection = connect({"bootstrap.servers": cluster.bootstrap_servers}, client_id="observer")
    assert inspection is not None
    try:
        return view_group(inspection, group)
    finally:
        inspection.close()


@either_protocol
def test_a_partition_without_a_leader_is_named_and_its_lag_stays(
    three: LocalKafka, group: str, pipeline: Pipelines, protocol: str
) -> None:
    """Regression: the query reported nothing, the lag fell, and `describe` called the partition OK."""
    name = f"orders-{protocol}"
    three.create_topic(name, partitions=3)
    servers = three.bootstrap_servers
    produce(servers, name, dict.fromkeys(range(3), 10))
    options = {"kafka.bootstrap.servers": servers, "minOffsetsPerTrigger": "20", "maxTriggerDelay": "1h"}
    query = pipeline(name, **options).start()
    query.wait_for_rows(30)
    produce(servers, name, {0: 7}, start=10)  # too few for a batch

    def lag() -> int:
        (report,) = metrics.current(query.started) or ({"totalLag": -1},)
        return int(report["totalLag"])

    wait_for(lambda: lag() == 7, "the lag is known")
    leader = leaders(three, name)[0]
    three.kill(leader)
    (held,) = wait_for(lambda: query.events("heldBack"), "it is told that the partition is held back")
    assert f"{name}-0" in held["partitions"]
    # The dead broker stays the leader until the controllers detect its failure.
    assert held["reason"].startswith(("it has no leader", "its broker does not tell where the log ends"))
    assert lag() == 7
    (report,) = metrics.current(query.started)
    assert report["heldBack"][name].keys() == {str(n) for n, of in leaders(three, name).items() if of < 0}
    view = seen_from_outside(three, group)
    status = {part.tp.partition: part.status for part in view.partitions}
    assert status[0] is not None
    assert (status[0].name, view.status and view.status.name) == ("HELDBACK", "ERR")
    assert any(f"held back, and not part of the lag: {name}-0" in line for line in group_text(group_document(view)))
    stalled = wait_for(lambda: (seen := health(group)).exit_code == 1 and seen, "the probe sees it")
    assert f"held back: {name}-" in stalled.stdout
    query.stop()
    query.start()  # this run cannot find out where the partition starts
    wait_for(lambda: len(query.events("heldBack")) > 1, "the next run tells it, too")
    assert "LEADER_NOT_AVAILABLE" in query.events("heldBack")[1]["reason"]
    three.restart(leader)
    wait_for(lambda: query.events("heldBackEnded"), "it is told that this is over")
    wait_for(lambda: health(group).exit_code == 0, "the query is well")
    produce(servers, name, {1: 20}, start=10)
    query.wait_for_rows(57)
    assert_exactly_once(query.rows, {(name, 0): 17, (name, 1): 30, (name, 2): 10})
    for broker in (1, 2, 3):
        three.kill(broker)
    dead = wait_for(lambda: (seen := health(group)).exit_code == 1 and seen, "no broker answers")
    assert f"held back: {name}-" in dead.stdout or "the group does not answer" in dead.stdout
