"""How the cluster client interprets the answers of brokers, over real sockets to fake brokers."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator

import pytest

from pyspark_kafka_group.cluster.cluster import Cluster, connect
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset, EpochEnd, TopicInfo
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.cluster.request_errors import CommitUnclearError
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, MemberFencedError
from pyspark_kafka_group.offsets.notes import BookmarkNote
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.wire.describe_requests import CONSUMER_GROUP_HEARTBEAT, DescribedGroup, DescribedMember
from pyspark_kafka_group.wire.group_requests import (
    Coordinator,
    FetchedOffset,
    FetchedOffsets,
    FindCoordinator,
    OffsetCommit,
)
from pyspark_kafka_group.wire.messages import SASL_AUTHENTICATE, SASL_HANDSHAKE
from pyspark_kafka_group.wire.topic_requests import (
    ClusterMetadata,
    FoundEpoch,
    ListedOffset,
    OffsetForLeaderEpoch,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_kafka_group.wire.types import Address, TopicPartition
from tests.wire import answers
from tests.wire.fake_broker import HANG_UP, SILENCE, Answer, FakeBroker
from tests.wire.fake_group import CLASSIC, CONSUMER, FETCH, LIST, METADATA, coordinator, fake_brokers

EPOCHS, FIND, COMMIT = OffsetForLeaderEpoch.api.key, FindCoordinator.api.key, OffsetCommit.api.key

LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, TIMED_OUT = 3, 5, 7
ILLEGAL_GENERATION, UNKNOWN_MEMBER, TOPIC_REFUSED, GROUP_REFUSED = 22, 25, 29, 30
UNSUPPORTED, NO_GROUP, FENCED_INSTANCE, UNSTABLE, STALE = 35, 69, 82, 88, 113
NOT_LEADER, FENCED_LEADER = 6, 74

TOPIC_ID = "QtOXfeWAR9uadceaKEMIPw"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
TPS = [TopicPartition("orders", n) for n in range(3)]
ABSENT = DescribedGroup(NO_GROUP, "Group etl not found.", "", 0, ())
DEAD = DescribedGroup(0, "", "Dead", None, ())


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """Yield two brokers.  The first one is the bootstrap server and the coordinator."""
    with fake_brokers(2) as made:
        made[0].answers[METADATA] = orders(made)
        yield made


@pytest.fixture
def broker(brokers: list[FakeBroker]) -> FakeBroker:
    return brokers[0]


@pytest.fixture
def requests(broker: FakeBroker) -> Iterator[Cluster]:
    made = open_requests(broker)
    yield made
    made.close()


def open_requests(*brokers: FakeBroker, **properties: str) -> Cluster:
    servers = ",".join(str(broker.address) for broker in brokers)
    made = connect({"bootstrap.servers": servers, **properties}, client_id="etl-offsets")
    assert made is not None
    return made


def orders(brokers: list[FakeBroker], error: int = 0) -> Answer:
    """Return metadata in which broker 1 leads the partitions 0 and 2, and broker 2 leads partition 1."""
    partitions = tuple(PartitionMetadata(n, 0, 1 + n % 2, 10 + n) for n in range(3))
    topic = TopicMetadata("orders", error, None if error else TOPIC_ID, () if error else partitions)
    addresses = {n: broker.address for n, broker in enumerate(brokers, 1)}
    return answers.metadata(ClusterMetadata(addresses, (topic,), CLUSTER_ID))


def fetched(error: int = 0, **partitions: FetchedOffset) -> Answer:
    found = {TPS[int(name[1:])]: offset for name, offset in partitions.items()}
    return answers.offsets(FetchedOffsets(error, found))


# -- topics


def test_topics_have_ids_and_leader_epochs_and_those_that_do_not_exist_are_left_out(
    broker: FakeBroker, brokers: list[FakeBroker], requests: Cluster
) -> None:
    assert requests.topics(["orders"]) == {"orders": TopicInfo(TOPIC_ID, {0: 10, 1: 11, 2: 12}, CLUSTER_ID)}
    assert requests.all_topics().keys() == {"orders"}
    broker.answers[METADATA] = orders(brokers, UNKNOWN_TOPIC)
    assert requests.topics(["orders"]) == {}
    assert requests.all_topics() == {}
    assert requests.topics([]) == {}


def test_a_broker_before_2_8_knows_no_topic_ids(broker: FakeBroker, requests: Cluster) -> None:
    broker.offered[METADATA] = (0, 8)
    assert requests.topics(["orders"])["orders"] == TopicInfo(None, {0: 10, 1: 11, 2: 12}, CLUSTER_ID)


def test_a_topic_with_another_error_is_not_taken_for_one_that_does_not_exist(
    broker: FakeBroker, brokers: list[FakeBroker], requests: Cluster
) -> None:
    broker.answers[METADATA] = orders(brokers, LEADER_NOT_AVAILABLE)
    with pytest.raises(TryAgainError, match="'orders': LEADER_NOT_AVAILABLE"):
        requests.topics(["orders"])
    broker.answers[METADATA] = orders(brokers, TOPIC_REFUSED)
    with pytest.raises(AuthenticationError, match="topic 'orders'"):
        requests.topics(["orders"])


def test_any_server_that_answers_will_do(brokers: list[FakeBroker]) -> None:
    first, second = brokers
    second.answers[METADATA] = orders(brokers)
    for trouble in (SILENCE, HANG_UP, b"rubbish"):
        first.answers[METADATA] = trouble
        requests = open_requests(first, second)
        assert "orders" in requests.topics(["orders"], timeout_s=1.0)
        assert "orders" in requests.topics(["orders"], timeout_s=0.4), "the one that answered comes first"
        requests.close()


def test_brokers_that_are_no_servers_are_asked_when_the_servers_are_down(
    broker: FakeBroker, brokers: list[FakeBroker], requests: Cluster
) -> None:
    brokers[1].answers[METADATA] = orders(brokers)
    assert "orders" in requests.topics(["orders"])
    broker.close()
    assert "orders" in requests.topics(["orders"])


# -- committed offsets


def test_only_the_partition_of_an_open_transaction_has_to_be_asked_again(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[FETCH] = fetched(
        p0=FetchedOffset(0, 5, 3, "note"), p1=FetchedOffset(UNSTABLE, -1, -1, ""), p2=FetchedOffset(0, 7, -1, "")
    )
    found, failed = requests.committed("etl", TPS, require_stable=True)
    assert found == {TPS[0]: CommittedOffset(Offset(5), 3, "note"), TPS[2]: CommittedOffset(Offset(7), None, "")}
    assert failed == {TPS[1]: "UNSTABLE_OFFSET_COMMIT"}


def test_the_leader_epoch_of_a_bookmark_is_in_its_metadata(broker: FakeBroker, requests: Cluster) -> None:
    text = BookmarkNote(TOPIC_ID, 3, 6).encode()
    broker.answers[FETCH] = fetched(p0=FetchedOffset(0, 5, -1, text), p1=FetchedOffset(0, 5, 7, text))
    found = requests.committed("etl", TPS[:2], require_stable=True).found
    assert {tp: offset.leader_epoch for tp, offset in found.items()} == {TPS[0]: 6, TPS[1]: 7}


@pytest.mark.parametrize(("cluster_id", "epoch"), [(CLUSTER_ID, 6), ("another", None), (None, 6)])
def test_the_leader_epoch_of_another_cluster_does_not_count(
    broker: FakeBroker, requests: Cluster, cluster_id: str | None, epoch: int | None
) -> None:
    """MirrorMaker has copied the metadata."""
    text = BookmarkNote(TOPIC_ID, 3, 6, cluster_id).encode()
    broker.answers[FETCH] = fetched(p0=FetchedOffset(0, 5, -1, text))
    assert requests.all_committed("etl").found == {TPS[0]: CommittedOffset(Offset(5), epoch, text)}


def test_a_note_of_a_newer_version_hides_no_offset(broker: FakeBroker, requests: Cluster) -> None:
    """Regression: one such note, of any group, ended every command of kafka-group that asks for offsets."""
    newer = BookmarkNote(TOPIC_ID, 3, 6).encode().replace('"v":1', '"v":2')
    broker.answers[FETCH] = fetched(p0=FetchedOffset(0, 5, -1, newer), p1=FetchedOffset(0, 6, -1, ""))
    found = requests.all_committed("etl").found
    assert found == {TPS[0]: CommittedOffset(Offset(5), None, newer), TPS[1]: CommittedOffset(Offset(6), None, "")}


def test_a_partition_without_a_committed_offset_is_not_a_failed_one(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[FETCH] = fetched(p0=FetchedOffset(0, -1, -1, ""), p2=FetchedOffset(LOADING, -1, -1, ""))
    assert requests.committed("etl", TPS, require_stable=True) == (
        {},
        {TPS[1]: "no answer", TPS[2]: "COORDINATOR_LOAD_IN_PROGRESS"},
    )
    broker.answers[FETCH] = fetched(NO_GROUP)
    assert requests.committed("etl", TPS, require_stable=True) == ({}, {})
    assert requests.committed("etl", [], require_stable=True) == ({}, {})


def test_a_right_that_is_missing_is_an_explained_error(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[FETCH] = fetched(p0=FetchedOffset(TOPIC_REFUSED, -1, -1, ""))
    with pytest.raises(AuthenticationError, match=r"may not read a topic .*orders-0.*Grant it READ"):
        requests.committed("etl", TPS, require_stable=True)
    broker.answers[FETCH] = fetched(GROUP_REFUSED)
    with pytest.raises(AuthenticationError, match=r"Option 'kafka\.group\.id': .* group 'etl'"):
        requests.committed("etl", TPS, require_stable=True)
    broker.answers[FIND] = answers.coordinator(Coordinator(GROUP_REFUSED, "no", broker.address))
    with pytest.raises(AuthenticationError, match="'other'"):
        requests.committed("other", TPS, require_stable=True)


# -- coordinators


@pytest.mark.parametrize("error", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_coordinator_that_has_moved_is_looked_for_at_once(
    brokers: list[FakeBroker], requests: Cluster, error: int
) -> None:
    first, second = brokers
    first.answers[FETCH] = [fetched(p0=FetchedOffset(0, 5, 3, "")), fetched(error)]
    second.answers[FETCH] = fetched(p0=FetchedOffset(0, 6, 3, ""))
    assert requests.committed("etl", TPS[:1], require_stable=True).found[TPS[0]].offset == 5
    first.answers[FIND] = coordinator(second)
    assert requests.committed("etl", TPS[:1], require_stable=True).found[TPS[0]].offset == 6
    assert first.kinds() == ["FindCoordinator", "OffsetFetch", "OffsetFetch", "FindCoordinator"]


def test_a_former_coordinator_that_still_answers_is_left_after_a_while(
    brokers: list[FakeBroker], requests: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: one that was cut off from the other brokers was asked for ever."""
    second = brokers[1]
    for number, broker in enumerate(brokers):
        broker.answers[FETCH] = fetched(p0=FetchedOffset(0, number, 3, ""))

    def found() -> int:
        return requests.committed("etl", TPS[:1], require_stable=True).found[TPS[0]].offset

    assert found() == 0
    for broker in brokers:
        broker.answers[FIND] = coordinator(second)
    assert found() == 0
    later = time.monotonic() + 61
    monkeypatch.setattr("pyspark_kafka_group.wire.deadline.time.monotonic", lambda: later)
    assert found() == 1


@pytest.mark.parametrize("trouble", [fetched(NOT_COORDINATOR), HANG_UP, b"rubbish"], ids=["error", "lost", "rubbish"])
def test_one_that_was_just_found_and_does_not_answer_passes_by_itself(
    broker: FakeBroker, requests: Cluster, trouble: object
) -> None:
    broker.answers[FETCH] = [trouble, fetched(p0=FetchedOffset(0, 5, 3, ""))]
    with pytest.raises(TryAgainError, match="group 'etl'"):
        requests.committed("etl", TPS[:1], require_stable=True)
    assert requests.committed("etl", TPS[:1], require_stable=True).found[TPS[0]].offset == 5
    assert broker.kinds().count("FindCoordinator") == 2, "it was looked for anew"


def test_a_coordinator_that_is_not_known_yet_passes_by_itself(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[FIND] = answers.coordinator(Coordinator(NOT_AVAILABLE, "", Address("", -1)))
    with pytest.raises(TryAgainError, match="coordinator of group 'etl': COORDINATOR_NOT_AVAILABLE"):
        requests.committed("etl", TPS, require_stable=True)


@pytest.mark.parametrize("api", [FIND, FETCH])
def test_silence_is_waited_for_as_long_as_was_said(broker: FakeBroker, requests: Cluster, api: int) -> None:
    broker.answers[api] = SILENCE
    begin = time.monotonic()
    with pytest.raises(TryAgainError, match="group 'etl'"):
        requests.committed("etl", TPS, require_stable=True, timeout_s=0.4)
    assert 0.3 < time.monotonic() - begin < 2


def test_brokers_that_are_too_old_are_told_so(broker: FakeBroker, requests: Cluster) -> None:
    broker.offered[FIND] = (0, 2)
    for ask in (requests.describe_group, lambda group: requests.committed(group, TPS, require_stable=True)):
        with pytest.raises(BrokerError, match=r"FindCoordinator, not 3 to 4; Kafka has them from 2\.4 on"):
            ask("etl")


def test_the_mock_of_librdkafka_can_be_asked_for_offsets_and_describes_no_group() -> None:
    with MockKafka() as kafka:
        kafka.create_topic("orders", len(TPS))
        requests = connect({"bootstrap.servers": kafka.bootstrap_servers}, client_id="etl")
        assert requests.committed("etl", TPS, require_stable=True) == ({}, {})
        with pytest.raises(TryAgainError, match="cannot describe groups"):
            requests.describe_group("etl")
        requests.close()


def test_a_password_is_in_no_error(broker: FakeBroker) -> None:
    secret = "hunter2-and-more"
    requests = open_requests(
        broker,
        **{
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": secret,
            "sasl.password": secret,
        },
    )
    broker.offered |= {SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}
    broker.answers[SASL_HANDSHAKE] = SILENCE
    with pytest.raises(TryAgainError) as problem:
        requests.topics([f"etl-{secret}"], timeout_s=0.3)
    assert secret not in str(problem.value)
    broker.answers[SASL_HANDSHAKE] = struct.pack(">hi", 0, 0)
    refusal = f"{secret} is wrong".encode()
    broker.answers[SASL_AUTHENTICATE] = struct.pack(">hh", 58, len(refusal)) + refusal + bytes(12)
    with pytest.raises(AuthenticationError, match=r"kafka\.sasl\.password") as refused:
        requests.describe_group("etl")
    assert secret not in str(refused.value)
    assert [asked.api for asked in broker.asked].count(SASL_AUTHENTICATE) == 1, "another attempt may lock the account"


# -- groups


ALICE = DescribedMember("a-1", None, "alice", "/10.0.0.1", frozenset(TPS[:2]), None, None)
BOB = DescribedMember("b-1", "b", "bob", "/10.0.0.2", frozenset(), None, None)


def described(item: DescribedMember) -> GroupMember:
    return GroupMember(**{name: getattr(item, name) for name in GroupMember.__slots__})


def test_a_classic_group_is_described(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[CONSUMER] = answers.consumer_group(ABSENT)
    broker.answers[CLASSIC] = answers.classic_group(DescribedGroup(0, "", "Stable", None, (ALICE, BOB)))
    group = requests.describe_group("etl")
    members = described(ALICE), described(BOB)
    assert group == GroupDescription(state="Stable", protocol=GroupProtocol.CLASSIC, members=members)
    assert not group.is_rebalancing
    broker.answers[CLASSIC] = answers.classic_group(DescribedGroup(0, "", "PreparingRebalance", None, (BOB,)))
    assert requests.describe_group("etl").is_rebalancing


def test_a_client_id_forges_no_line_of_a_log_or_an_error(broker: FakeBroker, requests: Cluster) -> None:
    """Regression: warnings and errors showed the ids of other members as those have chosen them."""
    odd = DescribedMember("a-1", None, "x\n\x1b[2JERROR-12345678", "/10.0.0.1", frozenset(), None, None)
    broker.answers[CONSUMER] = answers.consumer_group(ABSENT)
    broker.answers[CLASSIC] = answers.classic_group(DescribedGroup(0, "", "Stable", None, (odd,)))
    (member,) = requests.describe_group("etl").members
    assert member.client_id.isprintable()
    assert member.is_same_query("etl-12345678")


def test_a_group_of_kip_848_is_described_with_targets_and_epochs(broker: FakeBroker, requests: Cluster) -> None:
    member = DescribedMember("a-1", None, "alice", "/10.0.0.1", frozenset(TPS[:2]), frozenset(TPS[:1]), 7)
    broker.answers[CONSUMER] = answers.consumer_group(DescribedGroup(0, "", "Reconciling", 8, (member,)))
    assert requests.describe_group("etl") == GroupDescription(
        state="Reconciling", protocol=GroupProtocol.CONSUMER, members=(described(member),), epoch=8
    )
    assert CLASSIC not in {asked.api for asked in broker.asked}


@pytest.mark.parametrize("brokers_age", ["without KIP-848", "with it switched off", "with it"])
def test_a_group_that_does_not_exist_is_dead(broker: FakeBroker, requests: Cluster, brokers_age: str) -> None:
    if brokers_age == "without KIP-848":
        del broker.offered[CONSUMER]
    off = DescribedGroup(UNSUPPORTED, "", "", 0, ())
    broker.answers[CONSUMER] = answers.consumer_group(off if "off" in brokers_age else ABSENT)
    broker.answers[CLASSIC] = answers.classic_group(DEAD)
    assert requests.describe_group("etl") == GroupDescription(state="Dead", protocol=GroupProtocol.CLASSIC, members=())


@pytest.mark.parametrize(
    ("age", "served"), [("before 3.7", False), ("3.7 to 3.9", False), ("4.0", True), ("that cannot be asked", True)]
)
def test_which_brokers_serve_members_of_kip_848(broker: FakeBroker, requests: Cluster, age: str, served: bool) -> None:
    if age != "before 3.7":
        broker.offered[CONSUMER_GROUP_HEARTBEAT] = (0, 1)
    if age in ("before 3.7", "that cannot be asked"):
        del broker.offered[CONSUMER]
    switched_off = DescribedGroup(UNSUPPORTED, "", "", 0, ())
    broker.answers[CONSUMER] = answers.consumer_group(switched_off if age == "3.7 to 3.9" else ABSENT)
    assert requests.has_consumer_protocol("etl") is served


def test_a_group_that_is_just_being_upgraded_is_not_taken_for_one_that_does_not_exist(
    broker: FakeBroker, requests: Cluster
) -> None:
    stable = answers.consumer_group(DescribedGroup(0, "", "Stable", 1, ()))
    broker.answers[CONSUMER] = [answers.consumer_group(ABSENT), stable]
    broker.answers[CLASSIC] = answers.classic_group(DEAD)
    assert requests.describe_group("etl").state == "Stable"


def test_a_group_that_may_not_be_described_is_an_explained_error(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[CONSUMER] = answers.consumer_group(DescribedGroup(GROUP_REFUSED, "no", "", 0, ()))
    with pytest.raises(AuthenticationError, match="Grant it READ on that group"):
        requests.describe_group("etl")


# -- logs


def test_logs_are_asked_of_their_leaders(brokers: list[FakeBroker], requests: Cluster) -> None:
    first, second = brokers
    first.answers[LIST] = answers.listed({TPS[0]: ListedOffset(0, 5), TPS[2]: ListedOffset(NOT_LEADER, -1)})
    second.answers[LIST] = answers.listed({TPS[1]: ListedOffset(0, 7)})
    found = ({TPS[0]: 5, TPS[1]: 7}, {TPS[2]: "NOT_LEADER_OR_FOLLOWER"})
    assert requests.log_starts(TPS) == found
    assert requests.log_ends(TPS, read_committed=True) == found
    assert requests.log_ends([], read_committed=True) == ({}, {})
    starts, ends = (asked.body for asked in second.asked if asked.api == LIST)
    assert starts != ends


def test_who_has_looked_asks_leaders_without_looking_again(brokers: list[FakeBroker], requests: Cluster) -> None:
    """With 10,000 partitions each request for metadata takes 0.1 s."""
    first, second = brokers
    listed = {TPS[0]: ListedOffset(0, 5), TPS[2]: ListedOffset(0, 6)}
    first.answers[LIST] = answers.listed(listed)
    second.answers[LIST] = answers.listed({TPS[1]: ListedOffset(0, 7)})
    first.answers[EPOCHS] = answers.epochs({TPS[0]: FoundEpoch(0, 4, 100)})
    look = requests.look(["orders"])
    assert look.topics == requests.topics(["orders"])
    looks = first.kinds().count("Metadata")
    found = {TPS[0]: 5, TPS[1]: 7, TPS[2]: 6}
    assert requests.log_starts(TPS, leaders=look.leaders) == (found, {})
    assert requests.log_ends(TPS, read_committed=True, leaders=look.leaders) == (found, {})
    assert requests.epoch_ends({TPS[0]: 4}, leaders=look.leaders).found == {TPS[0]: EpochEnd(4, Offset(100))}
    assert first.kinds().count("Metadata") == looks


def test_partitions_that_had_no_leader_at_the_look_have_to_be_asked_again(
    brokers: list[FakeBroker], requests: Cluster
) -> None:
    partitions = (PartitionMetadata(0, 0, -1, 3), PartitionMetadata(1, 0, 2, 3))
    brokers[0].answers[METADATA] = answers.metadata(
        ClusterMetadata(
            {n: broker.address for n, broker in enumerate(brokers, 1)},
            (TopicMetadata("orders", 0, TOPIC_ID, partitions),),
        )
    )
    brokers[1].answers[LIST] = answers.listed({TPS[1]: ListedOffset(0, 7)})
    look = requests.look(["orders"])
    assert requests.log_starts(TPS, leaders=look.leaders) == (
        {TPS[1]: 7},
        {TPS[0]: "LEADER_NOT_AVAILABLE", TPS[2]: "UNKNOWN_TOPIC_OR_PARTITION"},
    )


def test_a_leader_without_an_offset_has_to_be_asked_again(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[LIST] = answers.listed({TPS[0]: ListedOffset(0, -1)})
    assert requests.log_starts([TPS[0]]) == ({}, {TPS[0]: "no offset"})


# -- epochs


def test_epochs_are_asked_of_their_leaders(brokers: list[FakeBroker], requests: Cluster) -> None:
    first, second = brokers
    first.answers[EPOCHS] = answers.epochs({TPS[0]: FoundEpoch(0, 4, 100), TPS[2]: FoundEpoch(0, -1, -1)})
    second.answers[EPOCHS] = answers.epochs({TPS[1]: FoundEpoch(0, 9, 50)})
    ends = requests.epoch_ends({TPS[0]: 4, TPS[1]: 11, TPS[2]: 2})
    assert ends == ({TPS[0]: EpochEnd(4, Offset(100)), TPS[1]: EpochEnd(9, Offset(50))}, {})
    assert requests.epoch_ends({}) == ({}, {})


@pytest.mark.parametrize("trouble", [SILENCE, HANG_UP, b"rubbish"], ids=["silent", "lost", "rubbish"])
def test_a_leader_that_does_not_answer_holds_up_only_its_own_partitions(
    brokers: list[FakeBroker], requests: Cluster, trouble: object
) -> None:
    first, second = brokers
    first.answers[EPOCHS] = trouble
    second.answers[EPOCHS] = answers.epochs({TPS[1]: FoundEpoch(0, 9, 50)})
    found, failed = requests.epoch_ends({TPS[0]: 4, TPS[1]: 9}, timeout_s=1.0)
    assert found == {TPS[1]: EpochEnd(9, Offset(50))}
    assert failed.keys() == {TPS[0]}
    assert str(first.address) in failed[TPS[0]]


def test_partitions_without_a_leader_or_with_another_one_have_to_be_asked_again(
    broker: FakeBroker, requests: Cluster
) -> None:
    nowhere = TopicPartition("orders", 9)
    broker.answers[EPOCHS] = answers.epochs({TPS[0]: FoundEpoch(FENCED_LEADER, -1, -1)})
    assert requests.epoch_ends({TPS[0]: 1, TPS[2]: 1, nowhere: 1}) == (
        {},
        {TPS[0]: "FENCED_LEADER_EPOCH", TPS[2]: "no answer", nowhere: "UNKNOWN_TOPIC_OR_PARTITION"},
    )


def test_epochs_of_a_topic_with_an_error_have_to_be_asked_again_unless_that_is_final(
    broker: FakeBroker, brokers: list[FakeBroker], requests: Cluster
) -> None:
    broker.answers[METADATA] = orders(brokers, LEADER_NOT_AVAILABLE)
    assert requests.epoch_ends({TPS[0]: 1}) == ({}, {TPS[0]: "LEADER_NOT_AVAILABLE"})
    broker.answers[METADATA] = orders(brokers, TOPIC_REFUSED)
    with pytest.raises(AuthenticationError, match="'orders'"):
        requests.epoch_ends({TPS[0]: 1})


# -- commits

OFFSETS = {TPS[0]: (Offset(5), 3, "note"), TPS[1]: (Offset(6), None, "")}
Commit = Callable[[], dict[TopicPartition, str]]


@pytest.fixture
def commit(requests: Cluster) -> Commit:
    return lambda: requests.commit("etl", "a-1", 7, None, OFFSETS, timeout_s=1.0)


def test_a_commit_tells_of_each_partition_that_was_refused(broker: FakeBroker, commit: Commit) -> None:
    broker.answers[COMMIT] = answers.commits({TPS[0]: 0, TPS[1]: 0})
    assert commit() == {}
    for error, name in ((ILLEGAL_GENERATION, "ILLEGAL_GENERATION"), (STALE, "STALE_MEMBER_EPOCH")):
        broker.answers[COMMIT] = answers.commits({TPS[0]: error, TPS[1]: error})
        assert commit() == dict.fromkeys(OFFSETS, name)
    broker.answers[COMMIT] = answers.commits({TPS[0]: 0, TPS[1]: UNKNOWN_TOPIC})
    assert commit() == {TPS[1]: "UNKNOWN_TOPIC_OR_PARTITION"}


@pytest.mark.parametrize(
    "trouble",
    [
        SILENCE,
        HANG_UP,
        b"rubbish",
        answers.commits({TPS[0]: 0}),
        answers.commits(dict.fromkeys(OFFSETS, TIMED_OUT)),
        answers.commits(dict.fromkeys(OFFSETS, NOT_AVAILABLE)),
        answers.commits(dict.fromkeys(OFFSETS, -1)),
    ],
    ids=["silent", "lost", "rubbish", "not all", "timed out", "not available", "unknown"],
)
def test_a_commit_whose_outcome_is_not_known_says_so(broker: FakeBroker, commit: Commit, trouble: object) -> None:
    broker.answers[COMMIT] = trouble
    with pytest.raises(CommitUnclearError):
        commit()
    assert broker.kinds().count("OffsetCommit") == 1, "and is not sent again"


@pytest.mark.parametrize("error", [LOADING, NOT_COORDINATOR])
def test_a_commit_that_was_not_tried_may_be_tried_again(broker: FakeBroker, commit: Commit, error: int) -> None:
    good = answers.commits(dict.fromkeys(OFFSETS, 0))
    broker.answers[COMMIT] = [answers.commits(dict.fromkeys(OFFSETS, error)), good]
    with pytest.raises(TryAgainError) as problem:
        commit()
    assert not isinstance(problem.value, CommitUnclearError)
    assert commit() == {}
    assert broker.kinds().count("FindCoordinator") == 2


def test_a_commit_that_could_not_be_sent_may_be_tried_again(broker: FakeBroker, commit: Commit) -> None:
    broker.answers[COMMIT] = answers.commits(dict.fromkeys(OFFSETS, 0))
    assert commit() == {}
    broker.disconnect()
    time.sleep(0.05)
    assert commit() == {}, "a connection that was closed meanwhile is made anew before anything is sent"
    broker.close()
    time.sleep(0.05)
    with pytest.raises(TryAgainError) as problem:
        commit()
    assert not isinstance(problem.value, CommitUnclearError)


def test_a_commit_that_no_retry_cures_is_an_explained_error(broker: FakeBroker, commit: Commit) -> None:
    broker.answers[COMMIT] = answers.commits(dict.fromkeys(OFFSETS, FENCED_INSTANCE))
    with pytest.raises(MemberFencedError, match=r"kafka\.group\.instance\.id"):
        commit()


def test_many_partitions_take_more_than_one_request(broker: FakeBroker, requests: Cluster) -> None:
    """The coordinator writes the offsets of a request as one record batch, whose size is limited."""
    many = [TopicPartition("orders", n) for n in range(2500)]
    pieces = [many[:1000], many[1000:2000], many[2000:]]
    broker.answers[COMMIT] = [answers.commits(dict.fromkeys(piece, UNKNOWN_MEMBER)) for piece in pieces]
    refused = requests.commit("etl", "a-1", 7, None, dict.fromkeys(many, (Offset(1), None, "")))
    assert refused == dict.fromkeys(many, "UNKNOWN_MEMBER_ID")
    assert broker.kinds().count("OffsetCommit") == 3
