"""``commitMode=plain`` while the group's coordinator is away, and after the group has given up on a member."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from integration.cluster import committed, produce
from integration.pipelines import wait_for
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover.inputs import PlannedRange
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.start_inputs import RewindPolicy, StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OffsetRange
from pyspark_kafka_group.testing import LocalKafka

# How long the group thread may be busy with anything but the member.
SERVES_WITHIN_S = 1.0

SESSION_MS = 3000


@pytest.fixture(scope="module")
def proxied() -> Iterator[LocalKafka]:
    """Yield a cluster of the module's own, behind a proxy."""
    short = {"group.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": str(SESSION_MS)}
    short |= {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.heartbeat.interval.ms": "500"}
    short |= {"group.consumer.min.heartbeat.interval.ms": "100"}
    with LocalKafka(proxied=True, properties=short) as cluster:
        yield cluster


Join = Callable[[str, str], Membership]


@pytest.fixture
def join(group: str, protocol: str) -> Iterator[Join]:
    """Yield a maker of members with plain commits: ``join(servers, topic)``."""
    made: list[Membership] = []

    def make(servers: str, topic: str) -> Membership:
        name = f"member{len(made)}"
        properties = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol}
        if protocol == "classic":
            properties["session.timeout.ms"] = str(SESSION_MS)
        settings = GroupSettings(
            properties=properties,
            group_id=group,
            topics=(topic,),
            commit_mode=CommitMode.PLAIN,
            drain_timeout_s=60.0,
            read_committed=True,
            start=StartPolicy(
                group_id=group,
                default=StartingOffset.EARLIEST,
                explicit={},
                fail_on_data_loss=True,
                on_rewind=RewindPolicy.FAIL,
            ),
        )
        one = Membership(settings, start=INITIAL, query_id=name, client_id=name, event_log=EventLog(name, None))
        made.append(one)
        one.start()
        return one

    yield make
    for one in made:
        one.begin_stop(1.0)
    for one in made:
        one.join(60.0)


def plan(member: Membership, until: int) -> BatchOffset:
    """Plan everything up to ``until``, of all partitions that the member owns."""
    wait_for(lambda: bool(member.state.plannable()), "the member may plan")  # each time of the newest state
    ranges = {
        tp: PlannedRange(position.epoch, OffsetRange(position.offset, Offset(until)), position.leader_epoch)
        for tp, position in member.state.plannable().items()
    }
    end = member.plan(ranges, always=False)
    assert end is not None
    return end


def topic_of(cluster: LocalKafka, group: str) -> str:
    name = f"{group}-topic"
    cluster.create_topic(name, partitions=1)
    produce(cluster.bootstrap_servers, name, {0: 100})
    return name


def test_group_thread_goes_on_while_the_coordinator_does_not_answer_a_plain_commit(
    proxied: LocalKafka, group: str, join: Join
) -> None:
    """A revoked partition that waits for the thread would hold up the whole group."""
    name = topic_of(proxied, group)
    member = join(proxied.bootstrap_servers, name)
    end = plan(member, 10)
    proxied.pause(1)
    try:
        member.finish(end)
        asked = Thread(target=member.plan, args=({},), kwargs={"always": False}, daemon=True)
        asked.start()
        asked.join(SERVES_WITHIN_S)
        served, uncommitted = not asked.is_alive(), member.state.uncommitted
    finally:
        proxied.resume(1)
    asked.join(60.0)
    assert uncommitted, "the commit was not outstanding"
    assert served
    wait_for(lambda: committed(proxied.bootstrap_servers, group, name, [0]) == {0: 10}, "it is committed in the end")


@pytest.mark.parametrize("then", ["stays", "leaves"])
@pytest.mark.parametrize("fault", ["silent", "gone"])
def test_member_that_was_evicted_does_not_commit_plainly(
    proxied: LocalKafka, group: str, join: Join, fault: str, then: str
) -> None:
    """Its commit is on its way when it is cut off; the group gives its partition to another member.

    If that one has left when the first one is back, the group is empty, and takes commits from anybody.
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
