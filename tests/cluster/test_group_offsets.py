"""Requests for the facts that decide where partitions start and who owns them, and the use of the answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from pyspark_kafka_group.cluster import group_offsets
from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset, EpochEnd, Look, TopicInfo
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import GroupMember
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import BrokerError, UnknownTopicError
from pyspark_kafka_group.offsets.notes import BookmarkNote
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.wire.describe_requests import CONSUMER_GROUP_HEARTBEAT, DescribedGroup, DescribedMember
from pyspark_kafka_group.wire.leaders import Leaders
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, PartitionMetadata, TopicMetadata
from tests.wire import answers
from tests.wire.fake_broker import Answer, FakeBroker
from tests.wire.fake_group import CLASSIC, CONSUMER, METADATA, fake_brokers

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
TPS = [TopicPartition("orders", n) for n in range(3)]


def member(member_id: str, client_id: str, *partitions: TopicPartition) -> GroupMember:
    return GroupMember(
        member_id=member_id, instance_id=None, client_id=client_id, host="h", assignment=frozenset(partitions)
    )


ETL = (member("a-1", "etl", TPS[0]), member("a-0", "etl", TPS[1]), member("b-1", "other", TPS[2]))


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_brokers() as (made,):
        made.answers[CONSUMER] = answers.consumer_group(DescribedGroup(0, "", "Stable", 1, ()))
        yield made


@pytest.fixture
def offsets(broker: FakeBroker) -> Iterator[GroupOffsets]:
    made = GroupOffsets({"bootstrap.servers": str(broker.address)}, group_id="etl", read_committed=True)
    yield made
    made.close()


def test_a_member_that_the_group_does_not_know_yet_has_to_ask_again(offsets: GroupOffsets) -> None:
    assert not offsets.rebalancing()
    with pytest.raises(TryAgainError, match="does not know this member"):
        offsets.members_of_others(client_id="etl", member_id="a-1")


def assigned(state: str, epoch: int) -> Answer:
    """Return the group with the members ``ETL``, whose targets are of epoch 1."""
    members = tuple(DescribedMember(m.member_id, None, m.client_id, m.host, m.assignment, m.assignment, 1) for m in ETL)
    return answers.consumer_group(DescribedGroup(0, "", state, epoch, members))


def test_members_of_other_queries_are_told_but_not_a_former_process_of_this_one(
    broker: FakeBroker, offsets: GroupOffsets
) -> None:
    broker.answers[CONSUMER] = assigned("Stable", 1)
    (other,) = offsets.members_of_others(client_id="etl", member_id="a-1")
    assert other.assignment == {TPS[2]}
    broker.answers[CONSUMER] = assigned("Assigning", 2)
    with pytest.raises(TryAgainError, match="the group is rebalancing"):
        offsets.members_of_others(client_id="etl", member_id="a-1")


@pytest.mark.parametrize(
    ("target", "subscription", "may"),
    [
        (None, None, True),
        (None, {"orders"}, True),
        (None, {"others"}, False),
        ({TPS[0]}, None, True),
        (set[TopicPartition](), None, False),
        (set[TopicPartition](), {"orders"}, True),
        (set[TopicPartition](), {"others"}, False),
    ],
)
def test_what_a_member_may_get(target: set[TopicPartition] | None, subscription: set[str] | None, *, may: bool) -> None:
    member = GroupMember(
        member_id="m",
        instance_id=None,
        client_id="c",
        host="",
        assignment=frozenset(),
        target=None if target is None else frozenset(target),
        subscription=None if subscription is None else frozenset(subscription),
    )
    assert member.may_get(TPS[0]) is may


def test_a_cluster_without_kip_848_is_an_error_and_not_a_long_wait(broker: FakeBroker, offsets: GroupOffsets) -> None:
    with pytest.raises(BrokerError, match=r"kafka\.group\.protocol=consumer needs Apache Kafka 4\.0.*use classic"):
        offsets.check_consumer_protocol()
    broker.offered[CONSUMER_GROUP_HEARTBEAT] = (0, 1)
    broker.disconnect()
    offsets.check_consumer_protocol()


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_between_two_generations_nobody_knows(broker: FakeBroker, offsets: GroupOffsets, state: str) -> None:
    del broker.answers[CONSUMER]
    broker.offered[CONSUMER] = (9, 9)
    broker.answers[CLASSIC] = answers.classic_group(DescribedGroup(0, "", state, None, (), "consumer"))
    assert offsets.rebalancing()
    with pytest.raises(TryAgainError, match="the group is rebalancing"):
        offsets.members_of_others(client_id="etl", member_id="a-1")


# -- info

A, B, C, D = (TopicPartition("orders", n) for n in range(4))
OTHER = TopicPartition("clicks", 0)

LEADERS = Leaders()

UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


def note(initial_partition_count: int = 4, topic_id: str | None = "id", query: str = "q") -> str:
    return CommitNote(query, topic_id, initial_partition_count, Offset(0), "l").encode()


def stored(offset: int, metadata: str = "", leader_epoch: int | None = None) -> CommittedOffset:
    return CommittedOffset(Offset(offset), leader_epoch, metadata)


class FakeRequests:
    """A fake cluster that notes the requests."""

    def __init__(self) -> None:
        self.looks: list[dict[str, TopicInfo]] = [{"orders": TopicInfo("id", dict.fromkeys(range(4), 7))}]
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self.unstable: set[TopicPartition] = set()
        self.refused: dict[TopicPartition, str] = {}
        self.ends: dict[tuple[TopicPartition, int], int] = {}
        self.silent: set[TopicPartition] = set()
        self.unlisted: set[TopicPartition] = set()
        self.high = count(100, 0)
        self.closed = False
        self.asked: list[tuple[str, Any]] = []

    def look(self, names: Collection[str]) -> Look:
        return Look(self.topics(names), LEADERS)

    def topics(self, names: Collection[str], *, timeout_s: float = 5.0) -> dict[str, TopicInfo]:
        """Return the next of `looks`.  The last one repeats."""
        self._ask("topics", set(names))
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return {name: topic for name, topic in look.items() if name in names}

    def committed(
        self, group_id: str, partitions: Collection[TopicPartition], *, require_stable: bool
    ) -> Answers[CommittedOffset]:
        self._ask("stable" if require_stable else "unstable", set(partitions))
        assert group_id == "etl"
        failed = {tp: UNSTABLE for tp in partitions if require_stable and tp in self.unstable}
        failed |= {tp: name for tp, name in self.refused.items() if tp in partitions}
        found = {tp: self.offsets[tp] for tp in partitions if tp in self.offsets and tp not in failed}
        return Answers(found, failed)

    def log_starts(self, partitions: Collection[TopicPartition], *, leaders: Leaders | None) -> Answers[Offset]:
        assert leaders is LEADERS
        self._ask("starts", set(partitions))
        return self._listed(partitions, 0)

    def log_ends(
        self,
        partitions: Collection[TopicPartition],
        *,
        read_committed: bool,
        leaders: Leaders | None,
    ) -> Answers[Offset]:
        """The last stable offset is 10 below the high watermark."""
        assert leaders is LEADERS
        self._ask("log ends", set(partitions))
        return self._listed(partitions, next(self.high) - (10 if read_committed else 0))

    def _listed(self, partitions: Collection[TopicPartition], offset: int) -> Answers[Offset]:
        found = {tp: Offset(offset) for tp in partitions if tp not in self.unlisted}
        return Answers(found, {tp: "NOT_LEADER_OR_FOLLOWER" for tp in partitions if tp in self.unlisted})

    def epoch_ends(self, epochs: Mapping[TopicPartition, int], *, leaders: Leaders | None) -> Answers[EpochEnd]:
        assert leaders is LEADERS
        self._ask("ends", dict(epochs))
        answer: Answers[EpochEnd] = Answers({}, {})
        for tp, epoch in epochs.items():
            if tp in self.silent:
                answer.failed[tp] = "no answer"
            elif (tp, epoch) in self.ends:
                answer.found[tp] = EpochEnd(epoch, Offset(self.ends[tp, epoch]))
        return answer

    def close(self) -> None:
        self.closed = True

    def of(self, kind: str) -> list[Any]:
        return [what for asked, what in self.asked if asked == kind]

    def _ask(self, kind: str, what: Any) -> None:
        self.asked.append((kind, what))


@pytest.fixture
def requests() -> FakeRequests:
    return FakeRequests()


@pytest.fixture(params=[True])
def told(
    requests: FakeRequests, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[GroupOffsets]:
    """Yield offsets of a group in the fake cluster, with ``read_committed``.  All its logs are [0, 100)."""
    monkeypatch.setattr(group_offsets, "connect", lambda *_, **__: requests)
    made = GroupOffsets(NOWHERE, group_id="etl", read_committed=request.param)
    yield made
    made.close()
    assert requests.closed


def wanted(*partitions: TopicPartition) -> dict[TopicPartition, set[LeaderEpoch]]:
    return {tp: set() for tp in partitions}


@pytest.mark.parametrize(
    "foreign",
    [CommitNote("q", "x", 1, Offset(0), "l", cluster_id="another"), BookmarkNote("x", 1, 6, "another")],
    ids=["query", "bookmark"],
)
def test_a_note_of_another_cluster_is_none(
    told: GroupOffsets, requests: FakeRequests, foreign: CommitNote | BookmarkNote
) -> None:
    """Regression: an offset that MirrorMaker had translated counted as one of a deleted topic."""
    requests.looks = [{"orders": TopicInfo("id", dict.fromkeys(range(4), 7), "here")}]
    requests.offsets = {B: stored(5, foreign.encode())}
    info = told.partition_info(wanted(B)).info[B]
    assert (info.committed, info.note, info.bookmark, info.cluster_id) == (5, None, None, "here")
    assert (info.topic_started, info.initial_partition_count) == (True, 2)
    assert told.known_offsets([B], require_stable=True).found[B].note is None


def test_info_are_what_the_cluster_says(told: GroupOffsets, requests: FakeRequests) -> None:
    requests.offsets = {A: stored(5, note(3), 6), D: stored(1, note(3))}
    requests.ends = {(A, 6): 50}
    found = told.partition_info(wanted(A, B))
    assert (found.missing, set(found.info)) == (frozenset(), {A, B})
    info = found.info[A]
    assert (info.committed, info.committed_leader_epoch, info.epoch_ends) == (5, 6, {6: 50})
    assert info.note == CommitNote("q", "id", 3, Offset(0), "l")
    assert (info.log_start, info.log_end, info.high_watermark) == (0, 90, 100)
    assert (info.topic_id, info.leader_epoch, info.topic_partitions) == ("id", 7, 4)
    assert (info.topic_started, info.initial_partition_count) == (True, 3)
    nothing = found.info[B]
    assert (nothing.committed, nothing.note, nothing.committed_leader_epoch) == (None, None, None)
    requests.offsets = {A: stored(5, BookmarkNote("id", 4, 6).encode(), 6)}
    info = told.partition_info(wanted(A)).info[A]
    assert (info.note, info.reset, info.bookmark) == (None, None, BookmarkNote("id", 4, 6))
    assert (nothing.topic_started, nothing.initial_partition_count) == (True, 3)


@pytest.mark.parametrize("told", [False], indirect=True)
def test_without_read_committed_the_log_ends_at_the_high_watermark(told: GroupOffsets) -> None:
    info = told.partition_info(wanted(A)).info[A]
    assert (info.log_end, info.high_watermark) == (100, 100)


def test_one_partition_in_an_open_transaction_does_not_hold_up_the_others(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    requests.offsets = {A: stored(5, note()), B: stored(6, note())}
    requests.unstable = {B}
    found = told.partition_info(wanted(A, B))
    assert set(found.info) == {A}
    assert found.reason == UNSTABLE


def test_who_waits_for_an_open_transaction_asks_for_no_other_partition(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    requests.unstable = {A, B}
    found = told.partition_info(wanted(A, B))
    assert (found.info, found.reason) == ({}, UNSTABLE)
    assert requests.asked == [("topics", {"orders"}), ("stable", {A, B})]


def test_open_transactions_of_partitions_that_are_not_asked_for_do_not_matter(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    """In a large group, some member always has an open transaction."""
    requests.offsets = {A: stored(5), C: stored(5, note(2))}
    requests.unstable = {C, D}
    info = told.partition_info(wanted(A)).info[A]
    assert info.initial_partition_count == 2
    assert requests.of("stable") == [{A}]
    assert requests.of("unstable") == [{B, C, D}]


def test_an_unstable_offset_of_a_partition_still_says_that_the_topic_was_started(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    requests.offsets = {B: stored(6, note(2))}
    requests.unstable = {B}
    assert told.partition_info(wanted(A, B)).info[A].initial_partition_count == 2


def test_a_coordinator_that_does_not_know_all_of_a_topic_is_asked_again(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    """Otherwise a partition that was added later would count as one of the first start."""
    requests.refused = {D: "UNKNOWN_SERVER_ERROR"}
    with pytest.raises(TryAgainError, match="UNKNOWN_SERVER_ERROR"):
        told.partition_info(wanted(A))


def test_what_does_not_exist_or_answer_is_left_out_and_only_what_is_missing_is_told(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    found = told.partition_info(wanted(A, OTHER))
    assert (set(found.info), found.missing) == ({A}, frozenset({OTHER}))
    assert found.reason == "the broker that answered does not know clicks"
    found = told.partition_info(wanted(A, TopicPartition("orders", 4)))
    assert (set(found.info), found.missing) == ({A}, frozenset({TopicPartition("orders", 4)}))
    assert found.reason == "its topic has fewer partitions"
    requests.unlisted = {B}
    found = told.partition_info(wanted(A, B))
    assert (set(found.info), found.reason) == ({A}, "NOT_LEADER_OR_FOLLOWER")


def test_a_start_looks_at_the_topics_twice_and_who_leads_is_asked_once(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    """One request comes before all others and one after them.  With 10,000 partitions each of the two takes 0.1 s."""
    told.partition_info(wanted(A, B))
    assert requests.of("topics") == [{"orders"}] * 2


def test_a_broker_that_hangs_is_asked_only_once(told: GroupOffsets, requests: FakeRequests) -> None:
    requests.unstable = {D}
    requests.unlisted = {B}
    told.partition_info(wanted(A, B, D))
    assert requests.of("starts") == [{A, B}]
    assert requests.of("log ends") == [{A}, {A}]
    assert [set(asked) for asked in requests.of("ends")] == [{A}]


def topic(topic_id: str | None = "id", **epochs: int) -> dict[str, TopicInfo]:
    leader_epochs = dict.fromkeys(range(4), 7) | {int(name[1:]): epoch for name, epoch in epochs.items()}
    return {"orders": TopicInfo(topic_id, leader_epochs)}


@pytest.mark.parametrize(
    ("second", "kept"),
    [
        # Its offsets and its log could belong to two different topics.
        (topic("another id"), set()),
        ({}, set()),
        # The new leader may have truncated records of the former leader.
        (topic(p1=8), {A}),
    ],
    ids=["created again", "deleted", "another leader of one"],
)
def test_what_changes_between_the_two_looks_is_left_out(
    told: GroupOffsets, requests: FakeRequests, second: dict[str, TopicInfo], kept: set[TopicPartition]
) -> None:
    requests.looks = [topic(), second]
    assert set(told.partition_info(wanted(A, B)).info) == kept
    requests.looks = [topic()]
    assert set(told.partition_info(wanted(A, B)).info) == {A, B}


def test_a_topic_without_an_id_is_not_left_out(told: GroupOffsets, requests: FakeRequests) -> None:
    requests.looks = [topic(None)]
    requests.offsets = {A: stored(5, note(2))}
    info = told.partition_info(wanted(A)).info[A]
    assert (info.topic_id, info.topic_started, info.initial_partition_count) == (None, True, 2)


# -- whether the group has started the topic before


@pytest.mark.parametrize(
    ("offsets", "initial_partition_count"),
    [
        pytest.param({}, None, id="nobody"),
        pytest.param({B: stored(5, note(2))}, 2, id="as its note says"),
        pytest.param({B: stored(5, note(2)), C: stored(5, note(3))}, 3, id="the highest of several notes"),
        pytest.param({B: stored(5, note(0)), C: stored(5, note(3))}, 0, id="the rest from its beginning"),
        pytest.param({B: stored(5)}, 2, id="another program, up to the last that has an offset"),
        pytest.param({B: stored(5, "rubbish"), D: stored(5)}, 4, id="another program, all"),
        pytest.param({B: stored(5, note(2)), D: stored(5)}, 2, id="a reset of what was added later"),
        pytest.param({B: stored(5, note(2, topic_id="old"))}, None, id="another log"),
        pytest.param({B: stored(5, note(4, topic_id="old")), A: stored(5, note(1))}, 1, id="another log's is left out"),
        pytest.param({B: stored(5, note(2, topic_id=None))}, 2, id="a note without an id"),
        pytest.param({B: stored(5, BookmarkNote("id", 4).encode())}, 2, id="a bookmark, as another program"),
        pytest.param({B: stored(5, BookmarkNote("old", 4).encode())}, None, id="a bookmark of another log"),
    ],
)
def test_when_the_group_started_a_topic_is_in_its_commits(
    told: GroupOffsets,
    requests: FakeRequests,
    offsets: dict[TopicPartition, CommittedOffset],
    initial_partition_count: int | None,
) -> None:
    requests.offsets = offsets
    info = told.partition_info(wanted(D)).info[D]
    assert (info.topic_started, info.initial_partition_count) == (
        initial_partition_count is not None,
        initial_partition_count,
    )


# -- where leader epochs end


def test_ends_are_asked_for_of_all_older_epochs_that_are_known_and_of_no_others(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    """It also requests the end of the present epoch.  A leader that no longer leads under that epoch refuses."""
    requests.offsets = {A: stored(5, note(), 3), B: stored(5, note(), 7), C: stored(5, note())}
    requests.ends = {(A, 3): 30, (A, 4): 40, (A, 6): 60}
    found = told.partition_info({A: {LeaderEpoch(6), LeaderEpoch(4)}, B: {LeaderEpoch(7), LeaderEpoch(9)}, C: set()})
    assert requests.of("ends") == [{A: 3, B: 7, C: 7}, {A: 4}, {A: 6}, {A: 7}]
    told_of = {tp: dict(info.epoch_ends) for tp, info in found.info.items()}
    assert told_of == {A: {3: 30, 4: 40, 6: 60}, B: {}, C: {}}


def test_partitions_whose_leader_does_not_say_where_an_epoch_ends_are_left_out(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    """Otherwise a truncation would go unnoticed."""
    requests.silent = {A}
    requests.ends = {(B, 3): 30}
    old = {LeaderEpoch(2), LeaderEpoch(3)}
    found = told.partition_info({A: old, B: old})
    assert {tp: dict(info.epoch_ends) for tp, info in found.info.items()} == {B: {3: 30}}
    assert requests.of("ends") == [{A: 2, B: 2}, {B: 3}, {B: 7}]


def test_where_the_broker_that_answers_knows_no_epochs_none_are_asked_for(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    requests.looks = [topic(p0=-1)]
    info = told.partition_info({A: {LeaderEpoch(3)}}).info[A]
    assert (info.leader_epoch, info.epoch_ends) == (None, {})


# -- reaching the cluster


def metadata(broker: FakeBroker, **counts: int) -> None:
    topics = tuple(
        TopicMetadata(name, 0, None, tuple(PartitionMetadata(n, 0, 1, 0) for n in range(partitions)))
        for name, partitions in counts.items()
    )
    unknown = (TopicMetadata("clicks", 3, None, ()),)
    broker.answers[METADATA] = answers.metadata(ClusterMetadata({1: broker.address}, (*topics, *unknown)))


def test_a_topic_that_is_not_found_is_named(
    broker: FakeBroker, offsets: GroupOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "_NEW_TOPIC_PATIENCE_S", -1.0)
    metadata(broker, orders=4)
    assert offsets.connect(["orders"]) == {"orders": 4}
    with pytest.raises(UnknownTopicError, match="clicks") as found:
        offsets.connect(["orders", "clicks"])
    assert found.value.topics == ["clicks"]
    metadata(broker, click=4)
    with pytest.raises(UnknownTopicError, match=r"topic not found: clicks. Did you mean 'click'\? Create it"):
        offsets.connect(["clicks"])
    metadata(broker, click=4, **{f"click-{number}": 1 for number in range(5_000)})
    with pytest.raises(UnknownTopicError, match=r"topic not found: clicks\. Create it"):  # to compare takes long
        offsets.connect(["clicks"])


def test_topics_that_match_are_found_and_kafkas_own_are_not(
    broker: FakeBroker, offsets: GroupOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: all names with two underscores were Kafka's own, and Debezium's heartbeats were left out."""
    metadata(broker, **{"orders": 4, "refunds": 1, "__consumer_offsets": 50, "__debezium-heartbeat.db": 1, "empty": 0})
    assert offsets.connect([], "orders|__.*|empty") == {"orders": 4, "__debezium-heartbeat.db": 1}
    monkeypatch.setattr(group_offsets, "_NEW_TOPIC_PATIENCE_S", -1.0)
    assert offsets.connect([], "order") == {}


# -- while records come and go


@pytest.mark.parametrize("told", [False, True], indirect=True)
def test_no_log_end_lies_behind_the_high_watermark_of_a_topic_that_is_written_to(
    told: GroupOffsets, requests: FakeRequests
) -> None:
    """Regression: with startingOffsets=latest the query reported lost data at such a start."""
    requests.high = count(100, 20)
    info = told.partition_info(wanted(A)).info[A]
    assert info.log_start < info.log_end <= info.high_watermark
