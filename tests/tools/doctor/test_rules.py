"""Each rule: the facts that it reports, and those that it ignores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyspark_kafka_group.cluster.group_description import GroupProtocol
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.lag_judgement import Status
from pyspark_kafka_group.tools.doctor.examination import RULES, diagnose
from pyspark_kafka_group.tools.doctor.facts import (
    ClusterFacts,
    Finding,
    GroupFacts,
    OpenTransaction,
    PartitionFacts,
    Severity,
    SlowBatch,
)
from pyspark_kafka_group.tools.doctor.recent_records import RecentRecords, Timeouts
from pyspark_kafka_group.wire.describe_requests import DescribedMember

TP = TopicPartition("orders", 0)
HOUR = 3600.0
WELL = PartitionFacts(committed_offset=5, log_start=0, log_end=9, lag_seconds=3.0)
BROKER = {
    "offsets.retention.minutes": "10080",
    "transaction.max.timeout.ms": "900000",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.heartbeat.interval.ms": "5000",
}


def member(name: str, *partitions: int, subscription: frozenset[str] = frozenset({"orders"})) -> DescribedMember:
    assigned = frozenset(TopicPartition("orders", p) for p in partitions)
    return DescribedMember(name, None, f"app-{name}", "/10.0.0.1", assigned, None, None, subscription)


USUAL = Timeouts(45_000, 300_000, None)


HEALTHY = GroupFacts(
    group="etl",
    state="Stable",
    protocol=GroupProtocol.CLASSIC,
    assignor="cooperative-sticky",
    members=(member("a", 0), member("b", 1)),
    partitions={TP: WELL},
    partition_counts={"orders": 2},
    recent=RecentRecords(
        rebalances=3,
        assignors=frozenset({"cooperative-sticky"}),
        instances={"i": ("app at /10.0.0.1", "app at /10.0.0.2")},
        timeouts={"a": USUAL, "b": USUAL},
        idle_seconds=1.0,
    ),
    batches=(SlowBatch(TP, 20.0, "a"),),
    cluster=ClusterFacts(
        servers="localhost:9092",
        may_read_group=True,
        may_read_topics={"orders": True},
        broker=BROKER,
        topics={"orders": {"retention.ms": "604800000", "cleanup.policy": "delete"}},
    ),
)


def found(**changes: Any) -> list[Finding]:
    return diagnose(replace(HEALTHY, **changes))


def one(**changes: Any) -> Finding:
    (finding,) = found(**changes)
    assert finding.evidence
    assert finding.remedy
    assert "group.id" not in finding.evidence or finding.severity
    return finding


def cluster(**changes: Any) -> ClusterFacts:
    return replace(HEALTHY.cluster, **changes)


def partition(**changes: Any) -> dict[TopicPartition, PartitionFacts]:
    return {TP: replace(WELL, **changes)}


def lately(**changes: Any) -> RecentRecords:
    assert HEALTHY.recent is not None
    return replace(HEALTHY.recent, **changes)


def timeouts(**of: Timeouts) -> RecentRecords:
    return lately(timeouts=of)


def test_a_healthy_group_is_left_alone() -> None:
    assert diagnose(HEALTHY) == []
    consumer = tuple(replace(m, speaks_classic=False) for m in HEALTHY.members)
    recent = timeouts(a=Timeouts(None, 300_000, "uniform"), b=Timeouts(None, 300_000, "uniform"))
    assert found(protocol=GroupProtocol.CONSUMER, assignor="", members=consumer, recent=recent) == []


def test_what_is_not_known_is_judged_by_nothing() -> None:
    nothing = GroupFacts(group="etl", state="Stable", protocol=GroupProtocol.CLASSIC, members=(member("a"),))
    blind = replace(nothing, partitions={TP: PartitionFacts()}, cluster=ClusterFacts(broker={}))
    assert diagnose(blind) == []
    bare = replace(member("a"), subscription=None)
    assert found(members=(bare, bare), recent=None) == []


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_eager_assignors(assignor: str) -> None:
    finding = one(assignor=assignor, recent=None)
    assert (finding.code, finding.subject) == ("EAGER_ASSIGNOR", "group etl")
    assert repr(assignor) in finding.evidence
    assert "cooperative-sticky" in finding.remedy
    alone = one(assignor=assignor, recent=None, members=HEALTHY.members[:1])
    assert (alone.severity, alone.code) == (Severity.NOTE, "EAGER_ASSIGNOR"), "nobody to take from"
    assert "app-a at /10.0.0.1" in alone.evidence
    assert "refused" in alone.evidence
    assert found(assignor=assignor, recent=None, members=(), partitions=partition(committed_offset=9)) == []


def test_assignors_of_other_programs_are_no_finding() -> None:
    """Regression: each application of Kafka Streams was told to set cooperative-sticky, which it cannot."""
    for assignor in ("stream", "sessioned"):
        assert found(assignor=assignor, recent=None) == []


def test_nobody_reads() -> None:
    """Regression: right after its only query was killed, a group with lag was well."""
    empty: dict[str, Any] = {"state": "Empty", "members": ()}
    at_once = one(**empty)
    assert (at_once.severity, at_once.code) == (Severity.NOTE, "NO_MEMBERS")
    assert "orders-0" in at_once.evidence
    old = partition(lag_seconds=61.0)
    assert one(**empty, partitions=old).severity is Severity.WARNING
    assert one(**empty, partitions=old, recent=lately(own_expiry=True)).severity is Severity.NOTE, "a bookmark"
    assert found(**empty, partitions=partition(committed_offset=9)) == []
    stopped = one(**empty, partitions=partition(lag_seconds=61.0, status=Status.STOP))
    assert stopped.code == "COMMITS_STOPPED", "and only that"


def test_members_of_partitions_that_no_longer_exist() -> None:
    """Regression: a topic was created again with one of four partitions, and nothing was wrong."""
    finding = one(members=(member("a", 0, 1, 2, 3),), partition_counts={"orders": 1})
    assert (finding.severity, finding.code) == (Severity.ERROR, "PARTITIONS_GONE")
    assert finding.subject == "orders-1, orders-2, orders-3"
    assert "app-a at /10.0.0.1" in finding.evidence
    gone = cluster(missing_topics=frozenset({"orders"}))
    assert [f.code for f in found(members=(member("a", 0),), partition_counts={}, cluster=gone)] == ["UNKNOWN_TOPIC"]


def test_mixed_assignors() -> None:
    finding = one(recent=lately(assignors=frozenset({"cooperative-sticky", "range"})))
    assert finding.code == "MIXED_ASSIGNORS"
    assert "cooperative-sticky, range" in finding.evidence
    asked = timeouts(a=USUAL._replace(assignor="range"), b=USUAL._replace(assignor="uniform"))
    assert one(protocol=GroupProtocol.CONSUMER, recent=asked).code == "MIXED_ASSIGNORS"


def test_mixed_protocols() -> None:
    half = (replace(HEALTHY.members[0], speaks_classic=True), replace(HEALTHY.members[1], speaks_classic=False))
    finding = one(protocol=GroupProtocol.CONSUMER, assignor="", members=half)
    assert finding.code == "MIXED_PROTOCOLS"
    assert "1 of 2 members" in finding.evidence
    assert "app-a at /10.0.0.1" in finding.evidence


def test_a_group_id_that_is_used_twice() -> None:
    other = member("b", 1, subscription=frozenset({"refunds"}))
    finding = one(members=(HEALTHY.members[0], other), partition_counts={"orders": 2, "refunds": 2})
    assert (finding.severity, finding.code) == (Severity.WARNING, "GROUP_USED_TWICE")
    for said in ("app-a at /10.0.0.1 read orders", "app-b at /10.0.0.1 read refunds"):
        assert said in finding.evidence


def test_different_subscriptions_that_hang_together() -> None:
    topics = [{"orders"}, {"refunds"}, {"orders", "refunds"}]
    members = tuple(member(str(n), n, subscription=frozenset(names)) for n, names in enumerate(topics))
    finding = one(members=members, partition_counts={"orders": 3, "refunds": 3})
    assert finding.code == "DIFFERENT_SUBSCRIPTIONS"
    assert "orders; orders, refunds; refunds" in finding.evidence


def test_more_members_than_partitions() -> None:
    idle = (*HEALTHY.members, member("c"))
    finding = one(members=idle)
    assert finding.code == "MORE_MEMBERS_THAN_PARTITIONS"
    assert "3 members for 2 partitions" in finding.evidence
    assert "app-c at /10.0.0.1" in finding.evidence
    assert found(members=idle, state="PreparingRebalance") == [], "nobody has anything just now"
    assert found(members=idle, partition_counts={"orders": 3}) == [], "it has only just joined"


def test_duplicate_instance_ids() -> None:
    a, b = "app at /10.0.0.1", "app at /10.0.0.2"
    finding = one(recent=lately(instances={"i": (a, b, a, b)}))
    assert (finding.severity, finding.code) == (Severity.ERROR, "DUPLICATE_INSTANCE_ID")
    assert finding.subject == "group.instance.id i"
    for moved in ((a,), (a, b), (a, b, a), (a, b, "app at /10.0.0.3")):
        assert found(recent=lately(instances={"i": moved})) == [], "it has moved, or a deployment was undone"


def test_short_session_timeouts() -> None:
    finding = one(recent=timeouts(a=USUAL._replace(session_ms=6000), b=USUAL))
    assert (finding.code, finding.subject) == ("SESSION_TIMEOUT_SHORT", "member app-a at /10.0.0.1")
    assert "session.timeout.ms is 6000." in finding.evidence
    both = one(recent=timeouts(a=USUAL._replace(session_ms=6000), b=USUAL._replace(session_ms=8000)))
    assert both.subject == "member app-a at /10.0.0.1, app-b at /10.0.0.1"
    short = {**BROKER, "group.consumer.session.timeout.ms": "14999"}
    assert one(cluster=cluster(broker=short)).subject == "group.consumer.session.timeout.ms"


def test_rare_heartbeats() -> None:
    """Only under KIP-848 the brokers decide.  The settings of the group count more than those of the brokers."""
    broker = {
        **BROKER,
        "group.consumer.min.heartbeat.interval.ms": "2000",
        "group.consumer.assignment.interval.ms": "1000",
    }
    rare: dict[str, Any] = {
        "protocol": GroupProtocol.CONSUMER,
        "assignor": "uniform",
        "cluster": cluster(broker=broker),
    }
    finding = one(**rare)
    assert (finding.severity, finding.code) == (Severity.NOTE, "HEARTBEATS_RARE")
    assert finding.evidence.startswith("it is 5000: a partition")
    assert "waits 1000 ms between two assignments" in finding.evidence
    assert finding.remedy.startswith("Set it to 2000 for this group (group.consumer.min.heartbeat.interval.ms")
    assert finding.remedy.endswith("Set consumer.assignment.interval.ms=0 for this group")
    group = {"consumer.heartbeat.interval.ms": "2000", "consumer.assignment.interval.ms": "0"}
    least = one(**rare, settings=group)
    assert least.remedy.startswith("It cannot be below 2000")
    assert "assignment" not in least.evidence + least.remedy
    assert found(**rare, settings={"consumer.heartbeat.interval.ms": "500"}) == []
    assert found(cluster=cluster(broker=broker)) == [], "a classic group"


def test_short_poll_intervals() -> None:
    finding = one(batches=(SlowBatch(TP, 151.0, "a"), SlowBatch(TP, 20.0, "a"), SlowBatch(TP, 999.0, "gone")))
    assert (finding.code, finding.subject) == ("POLL_INTERVAL_SHORT", "member app-a at /10.0.0.1")
    assert "a batch of orders-0 took 151 s" in finding.evidence
    assert found(batches=(SlowBatch(TP, 149.0, "a"),)) == []
    both = one(batches=(SlowBatch(TP, 151.0, "a"), SlowBatch(TP, 200.0, "b")))
    assert both.subject == "member app-b at /10.0.0.1 and 1 more"


def test_rebalances() -> None:
    assert one(recent=lately(rebalances=11)).code == "REBALANCES_OFTEN"
    assert found(recent=lately(rebalances=10)) == []


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.STOP, "COMMITS_STOPPED"), (Status.STALL, "OFFSET_STALLED"), (Status.REWIND, "OFFSET_REWOUND")],
)
def test_a_lag_that_describe_calls_a_problem_is_a_finding(status: Status, code: str) -> None:
    finding = one(partitions=partition(status=status))
    assert (finding.severity, finding.code, finding.subject) == (Severity.ERROR, code, "orders-0")
    assert f"STATUS {status.name}" in finding.evidence
    assert found(partitions=partition(status=Status.WARN)) == []


def test_each_topic_of_a_finding_is_named() -> None:
    """Regression: a finding named only eight partitions, so ``doctor ... | grep TOPIC`` missed the other topics."""
    (facts,) = partition(status=Status.STOP).values()
    many = {TopicPartition("orders", n): facts for n in range(12)} | {TopicPartition("returns", 0): facts}
    assert one(partitions=many).subject == "orders (12 partitions), returns (1 partition)"


def test_a_partition_without_a_leader_is_a_finding() -> None:
    finding = one(partitions=partition(log_end=None, lag_seconds=None, problem="LEADER_NOT_AVAILABLE"))
    assert (finding.code, finding.subject) == ("NO_LEADER", "orders-0")
    assert "LEADER_NOT_AVAILABLE" in finding.evidence


def test_records_that_are_gone() -> None:
    finding = one(partitions=partition(log_start=7))
    assert (finding.severity, finding.code, finding.subject) == (Severity.ERROR, "RECORDS_DELETED", "orders-0")
    assert "2 offsets were deleted" in finding.evidence
    beyond = one(partitions=partition(log_end=4))
    assert beyond.code == "OFFSET_BEYOND_END"
    for remedy in (finding.remedy, beyond.remedy):
        assert "--topics orders:0" in remedy, "regression: the reset would have moved all partitions of the group"
    assert found(partitions=partition(committed_offset=None, log_start=7)) == []


def test_records_that_go_soon() -> None:
    finding = one(partitions=partition(lag_seconds=6 * 24 * HOUR))
    assert finding.code == "RETENTION_CLOSE"
    assert "6.0 days old" in finding.evidence
    for kept in ({"retention.ms": "-1"}, {"retention.ms": "1000", "cleanup.policy": "compact"}, {}):
        topics = {"orders": kept}
        assert found(partitions=partition(lag_seconds=6 * 24 * HOUR), cluster=cluster(topics=topics)) == []


def test_open_transactions() -> None:
    finding = one(partitions=partition(open_transaction=OpenTransaction(6, 500.0, 77)))
    assert (finding.severity, finding.code, finding.subject) == (Severity.ERROR, "OPEN_TRANSACTION", "orders-0")
    for said in ("of producer 77", "since offset 6", "for at least 500 s", "3 offsets before the end"):
        assert said in finding.evidence
    assert "--start-offset 6 --topic orders --partition 0" in finding.remedy
    assert found(partitions=partition(open_transaction=OpenTransaction(6, 30.0, 77))) == []


def test_an_open_transaction_that_hides_commits() -> None:
    finding = one(recent=None, cluster=cluster(offsets_topic_held=(TopicPartition("__consumer_offsets", 19), 70)))
    assert (finding.severity, finding.code) == (Severity.ERROR, "OPEN_TRANSACTION")
    assert finding.subject == "__consumer_offsets-19"
    assert "open since offset 70" in finding.evidence
    assert "--start-offset 70 --topic __consumer_offsets --partition 19" in finding.remedy


def test_offsets_that_go_soon() -> None:
    assert one(cluster=cluster(broker={**BROKER, "offsets.retention.minutes": "60"})).code == "OFFSETS_RETENTION_SHORT"
    idle = lately(idle_seconds=6 * 24 * HOUR)
    read = partition(committed_offset=9)
    finding = one(state="Empty", members=(), recent=idle, partitions=read)
    assert finding.code == "OFFSETS_EXPIRE_SOON"
    assert found(recent=idle) == [], "it has members, and is only quiet"
    bookmark = replace(idle, own_expiry=True)
    assert found(state="Empty", members=(), recent=bookmark, partitions=read) == [], "regression"


def test_missing_rights() -> None:
    finding = one(cluster=cluster(may_read_group=False))
    assert (finding.severity, finding.code, finding.subject) == (Severity.ERROR, "NO_RIGHT", "group etl")
    assert one(cluster=cluster(may_read_topics={"orders": False, "refunds": True})).subject == "topic orders"
    finding = one(cluster=cluster(transactional_id_problem="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"))
    assert finding.subject == "transactional ids kafka-group-etl-*"
    assert "commitMode=plain" in finding.remedy


def test_topics_that_do_not_exist() -> None:
    finding = one(cluster=cluster(missing_topics=frozenset({"ordres"})))
    assert (finding.code, finding.subject) == ("UNKNOWN_TOPIC", "topic ordres")


def test_transactions_that_brokers_do_not_allow() -> None:
    finding = one(cluster=cluster(broker={**BROKER, "transaction.max.timeout.ms": "5000"}))
    assert (finding.code, finding.severity) == ("TRANSACTION_TIMEOUT", Severity.ERROR)
    assert "commitMode=plain" in finding.remedy


@pytest.mark.parametrize(
    ("lack", "code", "option"),
    [
        ({"has_transactions": False}, "NO_TRANSACTIONS", "commitMode=plain"),
        ({"has_consumer_protocol": False}, "NO_CONSUMER_PROTOCOL", "kafka.group.protocol at classic"),
        ({"has_topic_ids": False}, "NO_TOPIC_IDS", "new checkpoint"),
        ({"offsets_topic_problem": "UNKNOWN_TOPIC_OR_PART"}, "OFFSETS_TOPIC_UNREADABLE", "history --poll"),
        ({"broker": None}, "SETTINGS_UNREADABLE", "DescribeConfigs"),
    ],
)
def test_what_the_cluster_lacks_is_a_note(lack: dict[str, Any], code: str, option: str) -> None:
    finding = one(cluster=cluster(**lack))
    assert (finding.severity, finding.code, finding.subject) == (Severity.NOTE, code, "cluster")
    assert option in finding.remedy


@pytest.mark.parametrize(
    ("servers", "service"),
    [
        ("ns.servicebus.windows.net:9093", "cluster (Azure Event Hubs)"),
        ("pkc-1.eu-west-1.aws.confluent.cloud:9092", "cluster (Confluent Cloud)"),
        ("b-1.x.kafka.eu-west-1.amazonaws.com:9098", "cluster (Amazon MSK)"),
        ("boot-x.c2.kafka-serverless.eu-west-1.amazonaws.com:9098", "cluster (Amazon MSK Serverless)"),
        ("broker.kafka.svc:9092", "cluster"),
    ],
)
def test_services_are_known_by_their_names(servers: str, service: str) -> None:
    assert one(cluster=cluster(servers=servers, has_topic_ids=False)).subject == service


def test_the_worst_comes_first() -> None:
    findings = found(
        assignor="range",
        recent=None,
        partitions=partition(log_start=7),
        cluster=cluster(has_transactions=False),
    )
    assert [finding.severity for finding in findings] == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


def test_every_rule_is_asked() -> None:
    assert len({*RULES}) == len(RULES) == 24
