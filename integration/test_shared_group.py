"""SPARK-22968: several Spark applications share a consumer group.  In the ticket, they fail at the first rebalance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from integration.cluster import Stream, lag
from integration.pipelines import Application, assert_exactly_once, assert_orderly, wait_for
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Applications = Callable[..., Application]

SHARED = 6

APPLICATIONS = 2


def partitions(topic: str, count: int) -> set[str]:
    return {f"{topic}-{number}" for number in range(count)}


# The classic protocol, because its members compute the assignment.  test_planned_rebalances, test_faults and
# test_group_changes have both.
@pytest.mark.timeout(900)  # starts Spark three times
@pytest.mark.parametrize("protocol", ["classic"], indirect=True)
def test_applications_with_one_group_come_and_go(
    kafka: Kafka, topic: TopicFactory, group: str, application: Applications
) -> None:
    """As in the ticket, but each application also has its own topic, besides the shared one.

    Each start and stop causes a rebalance for all.  The partitions of the own topics do not move.  Each application
    hands over shared partitions when another joins, and gets more of them when another leaves.
    """
    own, shared = [topic(2) for _ in range(APPLICATIONS)], topic(SHARED)
    everything = {**dict.fromkeys(own, 2), shared: SHARED}
    with Stream(kafka.bootstrap_servers, everything, per_second=100) as stream:
        # Deliberate: a longer trigger interval than by default.  While two applications run without a pause, a third
        # one takes a minute to start on two cores.
        apps = [application(f"{name},{shared}", f"app{n}", trigger="2 seconds") for n, name in enumerate(own)]

        def all_have_shares(running: Sequence[int]) -> None:
            def settled() -> bool:
                for n in running:
                    apps[n].check()
                owned = {n: apps[n].owned() for n in running}
                common = [owned[n] - partitions(own[n], 2) for n in running]
                return (
                    all(partitions(own[n], 2) <= owned[n] for n in running)
                    and all(common)
                    and sorted(tp for part in common for tp in part) == sorted(partitions(shared, SHARED))
                )

            wait_for(settled, f"applications {running} have their own topics and share the other")

        for n, app in enumerate(apps):
            app.start()
            all_have_shares(range(n + 1))
        apps[0].stop()
        all_have_shares(range(1, len(apps)))
        apps[0].start()
        all_have_shares(range(len(apps)))
        stream.close()
        wait_for(
            lambda: sum(lag(kafka.bootstrap_servers, group, name, range(n)) for name, n in everything.items()) == 0,
            "lag 0",
        )
        for app in apps:
            app.begin_stop()
        assert {app.wait() for app in apps} == {0}
    assert_exactly_once([row for app in apps for row in app.rows], stream.produced)
    for app, name in zip(apps, own, strict=True):
        assert_orderly(app.events())
        assert {row.topic for row in app.rows} == {name, shared}
        assert not app.events("expired", "lost")
        handed_over = {tp for event in app.events("draining") for tp in event["partitions"]}
        assert handed_over <= partitions(shared, SHARED), "somebody else's start or stop moved a partition"
    assert any(app.events("draining") for app in apps), "nothing was handed over in the middle"
