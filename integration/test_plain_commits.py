"""``commitMode=plain`` while the group's coordinator does not answer, and after the group has evicted a member."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from integration.cluster import committed, produce
from integration.memberships import memberships, plan
from integration.pipelines import wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.testing import LocalKafka

# The longest time that the group thread may be busy with other work than the member's, on a busy machine too.
SERVES_WITHIN_S = 2.0

SESSION_MS = 3000


@pytest.fixture(scope="module")
def proxied() -> Iterator[LocalKafka]:
    """Yield a cluster behind a proxy that only this module uses."""
    short = {"group.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": str(SESSION_MS)}
    short |= {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.heartbeat.interval.ms": "500"}
    short |= {"group.consumer.min.heartbeat.interval.ms": "100"}
    with LocalKafka(proxied=True, properties=short) as cluster:
        yield cluster


# Kafka's API key.
OFFSET_COMMIT = 8


Join = Callable[[str, str], Membership]


@pytest.fixture
def join(group: str, protocol: str) -> Iterator[Join]:
    """Yield a function that makes members with plain commits: ``join(servers, topic)``."""
    short = {"kafka.session.timeout.ms": str(SESSION_MS)} if protocol == "classic" else {}
    names = map("member{}".format, itertools.count())

    def make(servers: str, topic: str) -> Membership:
        options = {"kafka.bootstrap.servers": servers, "kafka.group.id": group, "subscribe": topic, **short}
        return start({**options, "kafka.group.protocol": protocol, "commitMode": "plain"}, next(names))

    with memberships() as start:
        yield make


def topic_of(cluster: LocalKafka, group: str) -> str:
    name = f"{group}-topic"
    cluster.create_topic(name, partitions=1)
    produce(cluster.bootstrap_servers, name, {0: 100})
    return name


@either_protocol
def test_group_thread_goes_on_while_the_coordinator_does_not_answer_a_plain_commit(
    proxied: LocalKafka, group: str, join: Join
) -> None:
    """The whole group would wait if a revoked partition waited for the thread."""
    name = topic_of(proxied, group)
    member = join(proxied.bootstrap_servers, name)
    end = plan(member, 10)
    proxied.pause(1)
    try:
        member.finish(end)
        wait_for(lambda: member.state.committing is not None, "the commit is outstanding")
        asked = Thread(target=member.plan, args=({},), kwargs={"always": False}, daemon=True)
        asked.start()
        asked.join(SERVES_WITHIN_S)
        served, outstanding = not asked.is_alive(), member.state.committing is not None
    finally:
        proxied.resume(1)
    asked.join(60.0)
    assert served
    assert outstanding
    wait_for(lambda: committed(proxied.bootstrap_servers, group, name, [0]) == {0: 10}, "it is committed in the end")


@pytest.mark.parametrize(
    ("protocol", "fault", "then"),
    [("consumer", "silent", "stays"), ("classic", "gone", "leaves")],
    indirect=["protocol"],
)
def test_member_that_was_evicted_does_not_commit_plainly(
    proxied: LocalKafka, group: str, join: Join, fault: str, then: str
) -> None:
    """The network cuts off a member during a commit, and the group gives its partition to another member.

    If the other member leaves before the first one is back, the group is empty.  Then it accepts any commit.
    """
    name = topic_of(proxied, group)
    member = join(proxied.proxied_bootstrap_servers, name)
    end = plan(member, 10)
    proxy = proxied.proxy
    if fault == "silent":
        proxy.blackhole()
    else:
        proxy.refuse()
        proxy.cut()
    try:
        member.finish(end)
        other = join(proxied.bootstrap_servers, name)
        other.finish(plan(other, 50))
        wait_for(lambda: committed(proxied.bootstrap_servers, group, name, [0]) == {0: 50}, "the next owner commits")
        if then == "leaves":
            other.begin_stop(1.0)
            other.join(60.0)
    finally:
        proxy.heal()
    for _ in range(30):
        assert committed(proxied.bootstrap_servers, group, name, [0]) == {0: 50}, "an old offset took its place"
        time.sleep(0.1)


def commit_late(cluster: LocalKafka, group: str, topic: str, one: Membership) -> None:
    """Commit 10, 20 and 30.  The network delays the request of 20 until 30 is committed."""

    def offset() -> int:
        return committed(cluster.bootstrap_servers, group, topic, [0])[0]

    one.finish(plan(one, 10))
    wait_for(lambda: not one.state.uncommitted, "the first commit")
    late = cluster.proxy.hold(OFFSET_COMMIT)
    try:
        one.finish(plan(one, 20))
        assert late.wait(20.0)
        one.finish(plan(one, 30))
        wait_for(lambda: not one.state.uncommitted, "the commit after the one that is held")
        assert offset() == 30
        late.release()
        wait_for(lambda: offset() == 20, "the late commit takes the place of the newer one")
    finally:
        cluster.proxy.heal()


@pytest.mark.parametrize(
    ("protocol", "then"), [("classic", "leaves"), ("consumer", "hands over")], indirect=["protocol"]
)
def test_commit_that_arrives_after_its_successor_does_not_stay(
    proxied: LocalKafka, group: str, join: Join, then: str
) -> None:
    """Regression: the late commit moved the group's offset back, on an idle partition for ever.

    The next owner repeated committed records, and no event reported this.
    """
    name, servers = topic_of(proxied, group), proxied.bootstrap_servers
    one = join(proxied.proxied_bootstrap_servers, name)
    commit_late(proxied, group, name, one)
    if then == "hands over":
        other = join(servers, name)
        one.begin_stop(10.0)
        wait_for(lambda: bool(other.state.plannable()), "the next owner")
        assert [position.offset for position in other.state.plannable().values()] == [30]
        return
    one.begin_stop(10.0)
    one.join(60.0)
    assert one.state.clean
    assert committed(servers, group, name, [0]) == {0: 30}, "the newer offset is back"
