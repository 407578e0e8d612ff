"""SPARK-22968: several Spark applications in one consumer group, which used to die at the first rebalance."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.cluster import Stream, lag
from integration.pipelines import Application, assert_exactly_once, assert_orderly, wait_for
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Applications = Callable[[str, str], Application]

pytestmark = pytest.mark.timeout(900)  # Spark is started four times in each


def test_three_applications_with_different_topics_and_one_group_come_and_go(
    kafka: Kafka, topic: TopicFactory, group: str, application: Applications
) -> None:
    """The situation of the ticket: each start and stop is a rebalance for all, and nobody's partitions change."""
    topics = [topic(2) for _ in range(3)]
    with Stream(kafka.bootstrap_servers, dict.fromkeys(topics, 2), per_second=200) as stream:
        apps = [application(name, f"app{n}") for n, name in enumerate(topics)]
        for app in apps:
            app.start()
            app.wait_for_ownership(2)
        apps[0].stop()
        for app in apps[1:]:
            app.check()
        apps[0].start()
        apps[0].wait_for_ownership(2)
        stream.close()
        wait_for(lambda: sum(lag(kafka.bootstrap_servers, group, name, range(2)) for name in topics) == 0, "lag 0")
        for app in apps:
            app.stop()
    assert_exactly_once([row for app in apps for row in app.rows], stream.produced)
    for app, name in zip(apps, topics, strict=True):
        assert_orderly(app.events())
        assert {row.topic for row in app.rows} == {name}
        assert not app.events("draining", "expired", "lost"), "somebody else's start or stop moved a partition"


def test_three_applications_share_one_topic_and_hand_partitions_over(
    kafka: Kafka, topic: TopicFactory, group: str, application: Applications
) -> None:
    """Partitions move to an application that joins, and to the others when one leaves."""
    name = topic(6)
    with Stream(kafka.bootstrap_servers, {name: 6}, per_second=200) as stream:
        first, second, third = (application(name, f"app{n}") for n in range(3))
        first.start()
        first.wait_for_ownership(6)
        second.start()
        second.wait_for_ownership(3)
        third.start()
        third.wait_for_ownership(2)
        first.stop()
        wait_for(lambda: len(second.owned() | third.owned()) == 6, "the others own everything")
        second.check()
        third.check()
        stream.close()
        wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(6)) == 0, "lag 0")
        second.stop()
        third.stop()
    apps = (first, second, third)
    assert_exactly_once([row for app in apps for row in app.rows], stream.produced)
    for app in apps:
        assert app.rows, f"{app.name} was idle: the partitions were not shared"
        assert_orderly(app.events())
        assert not app.events("expired", "lost")
