"""``commitMode=plain`` while the group's coordinator does not answer, and after the group has evicted a member."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Protocol

import pytest

from integration.cluster import committed, produce, reset
from integration.pipelines import wait_for
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import PlannedRange
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.coordinator.start_up import start_up
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.start_inputs import RewindPolicy, StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
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


class Kept(EventLog):
    """An event log that also keeps its events in a list."""

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id, None)
        self.said: list[events.Event] = []

    def __call__(self, event: events.Event) -> None:
        super().__call__(event)
        self.said.append(event)


class Join(Protocol):
    """A function that makes a member with plain commits, or a query with ``assign``: ``join(servers, topic)``."""

    def __call__(
        self, servers: str, topic: str, *, on_rewind: RewindPolicy = RewindPolicy.FAIL, start: BatchOffset = INITIAL
    ) -> Membership: ...


@contextmanager
def joining(group: str, protocol: str | None) -> Iterator[Join]:
    """Yield a function that makes members or, without a protocol, queries with ``assign``."""
    made: list[Membership] = []

    def make(
        servers: str, topic: str, *, on_rewind: RewindPolicy = RewindPolicy.FAIL, start: BatchOffset = INITIAL
    ) -> Membership:
        name = f"member{len(made)}"
        properties = {"bootstrap.servers": servers, "group.id": group}
        if protocol is not None:
            properties["group.protocol"] = protocol
        if protocol == "classic":
            properties["session.timeout.ms"] = str(SESSION_MS)
        settings = GroupSettings(
            properties=properties,
            group_id=group,
            topics=(topic,),
            commit_mode=CommitMode.PLAIN,
            drain_timeout_s=60.0,
            read_committed=True,
            partitions=(TopicPartition(topic, 0),) if protocol is None else (),
            start=StartPolicy(
                group_id=group,
                default=StartingOffset.EARLIEST,
                explicit={},
                fail_on_data_loss=True,
                on_rewind=on_rewind,
                keeps_offsets=protocol is not None,
            ),
        )
        one = start_up(settings, start=start, query_id=start.query_id or name, client_id=name, event_log=Kept(name))
        made.append(one)
        one.start()
        return one

    yield make
    for one in made:
        one.begin_stop(1.0)
    for one in made:
        one.join(60.0)


@pytest.fixture
def join(group: str, protocol: str) -> Iterator[Join]:
    with joining(group, protocol) as make:
        yield make


@pytest.fixture
def assign(group: str) -> Iterator[Join]:
    with joining(group, None) as make:
        yield make


def plan(member: Membership, until: int) -> BatchOffset:
    """Plan a batch up to ``until`` in all partitions that the member owns, and return its end."""
    wait_for(lambda: bool(member.state.plannable()), "the member may plan")  # the state changes meanwhile
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


@pytest.mark.parametrize(("fault", "then"), [("silent", "stays"), ("gone", "leaves")])
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


def check_late_commit(cluster: LocalKafka, group: str, join: Join, then: str) -> None:
    """Let a commit arrive late, and check that the newer offset returns."""
    name, servers = topic_of(cluster, group), cluster.bootstrap_servers
    one = join(cluster.proxied_bootstrap_servers, name)
    commit_late(cluster, group, name, one)
    if then == "hands over":
        other = join(servers, name)
        one.begin_stop(10.0)
        wait_for(lambda: bool(other.state.plannable()), "the next owner")
        assert [position.offset for position in other.state.plannable().values()] == [30]
        return
    if then == "leaves":
        one.begin_stop(10.0)
        one.join(60.0)
        assert one.state.clean
        assert committed(servers, group, name, [0]) == {0: 30}
    wait_for(lambda: committed(servers, group, name, [0]) == {0: 30}, "it is committed again")


@pytest.mark.parametrize(
    ("protocol", "then"),
    [("classic", "stays"), ("consumer", "leaves"), ("classic", "hands over"), ("consumer", "hands over")],
    indirect=["protocol"],
)
def test_commit_that_arrives_after_its_successor_does_not_stay(
    proxied: LocalKafka, group: str, join: Join, then: str
) -> None:
    """Regression: the late commit moved the group's offset back, on an idle partition for ever.

    The next owner repeated committed records, and no event reported this.
    """
    check_late_commit(proxied, group, join, then)


@pytest.mark.parametrize("policy", [RewindPolicy.FAIL, RewindPolicy.GROUP])
def test_a_reset_has_no_effect_on_a_query_with_assign(
    proxied: LocalKafka, group: str, assign: Join, policy: RewindPolicy
) -> None:
    """The checkpoint decides, while the query runs and at its next start.  The next commit replaces the reset."""
    name, servers = topic_of(proxied, group), proxied.bootstrap_servers
    one = assign(servers, name, on_rewind=policy)
    end = plan(one, 30)
    one.finish(end)
    wait_for(lambda: not one.state.uncommitted, "the commit")
    reset(servers, group, name, {0: 5})
    one.finish(plan(one, 40))
    wait_for(lambda: committed(servers, group, name, [0]) == {0: 40}, "the next commit")
    one.begin_stop(5.0)
    one.join(60.0)
    reset(servers, group, name, {0: 5})
    again = assign(servers, name, on_rewind=policy, start=end)
    wait_for(lambda: [p.offset for p in again.state.plannable().values()] == [30], "it resumes there")
    assert committed(servers, group, name, [0]) == {0: 30}
