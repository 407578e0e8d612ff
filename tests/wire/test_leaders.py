"""Leaders are remembered, errors make them doubtful, and brokers name them again after pauses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pyspark_kafka_group.wire import deadline
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import error_code
from pyspark_kafka_group.wire.leaders import NO_LEADER, NO_PARTITION, Leaders, LeaderTimings
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, PartitionMetadata, TopicMetadata
from pyspark_kafka_group.wire.types import Address, TopicPartition

ONE, TWO = Address("one", 9092), Address("two", 9092)
A, B, C = (TopicPartition("orders", n) for n in range(3))
FORBIDDEN = error_code("TOPIC_AUTHORIZATION_FAILED")
TIMINGS = LeaderTimings(pause_s=0.1, longest_pause_s=1.0, age_s=300.0)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: made.s))
    return made


def metadata(*leaders: int, **errors: int) -> ClusterMetadata:
    """Return an answer with the leaders of the partitions of orders, and the errors of other topics."""
    partitions = tuple(PartitionMetadata(n, 0, leader, 7) for n, leader in enumerate(leaders))
    topics = [TopicMetadata("orders", 0, None, partitions)] if leaders else []
    topics += [TopicMetadata(name, error, None, ()) for name, error in errors.items()]
    return ClusterMetadata({1: ONE, 2: TWO}, tuple(topics))


@pytest.fixture
def leaders() -> Leaders:
    """Return the memory of an answer that names both brokers."""
    made = Leaders(TIMINGS)
    made.want([A, B])
    assert made.due() == [A, B]
    made.learn(metadata(1, 2), [A, B])
    return made


def addresses(leaders: Leaders) -> dict[TopicPartition, Address]:
    return {tp: leader.address for tp, leader in leaders.known.items()}


def test_leaders_are_remembered_with_their_epochs(leaders: Leaders) -> None:
    assert addresses(leaders) == {A: ONE, B: TWO}
    assert {leader.epoch for leader in leaders.known.values()} == {7}
    leaders.want([A, B])
    assert (leaders.due(), leaders.next_at.is_set) == ([], False), "nobody has to be asked"
    leaders.want([C])
    assert (leaders.due(), leaders.next_at.passed) == ([C], True)


def test_an_answer_is_believed_for_some_time(leaders: Leaders, now: SimpleNamespace) -> None:
    """A leader that is cut off from the other brokers keeps answering."""
    now.s += 299
    leaders.want([A, B])
    assert leaders.due() == []
    now.s += 1
    leaders.want([A])
    assert leaders.due() == [A]
    assert A not in leaders.known


def test_a_leader_that_has_moved_is_asked_for_at_once(leaders: Leaders) -> None:
    leaders.doubt([A], moved=True)
    assert (leaders.due(), addresses(leaders), leaders.failures(A)) == ([A], {B: TWO}, 1)
    leaders.learn(metadata(2, 2), [A])
    assert (leaders.due(), addresses(leaders)) == ([], {A: TWO, B: TWO})


def test_the_broker_that_has_refused_counts_as_the_leader_only_when_it_is_named_again(
    leaders: Leaders, now: SimpleNamespace
) -> None:
    """The broker that names it may be late.  But it may also be the leader again."""
    leaders.doubt([A], moved=True)
    leaders.learn(metadata(1, 2), [A])
    assert (leaders.due(), A in leaders.known, leaders.errors) == ([], False, {})
    now.s += 0.25
    assert leaders.due() == [A]
    leaders.learn(metadata(1, 2), [A])
    assert addresses(leaders)[A] == ONE


def test_a_leader_that_may_still_lead_is_asked_for_after_a_pause(leaders: Leaders, now: SimpleNamespace) -> None:
    leaders.doubt([A])
    assert (leaders.due(), leaders.due_at(A), A in leaders.known) == ([], Deadline.after(0.1), False)
    now.s += 0.15
    assert leaders.due() == [A]
    leaders.learn(metadata(1, 2), [A])
    assert addresses(leaders)[A] == ONE, "the same broker counts"


@pytest.mark.parametrize("moved", [False, True])
def test_pauses_grow_until_the_leader_has_done_what_was_asked(
    leaders: Leaders, now: SimpleNamespace, *, moved: bool
) -> None:
    pauses = []
    for _ in range(6):
        leaders.doubt([A], moved=moved)
        pauses.append(round(leaders.next_at.left_s, 3))
        now.s += 2
        leaders.learn(metadata(1 + len(pauses) % 2, 2), [A])
    assert pauses == ([0.0, 0.2, 0.4, 0.8, 1.0, 1.0] if moved else [0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    leaders.confirm(A)
    leaders.doubt([A], moved=moved)
    assert round(leaders.next_at.left_s, 3) == pauses[0]


def test_a_leader_that_is_already_in_doubt_does_not_wait_longer(leaders: Leaders, now: SimpleNamespace) -> None:
    leaders.doubt([A])
    now.s += 0.15
    leaders.doubt([A, B])
    assert leaders.due() == [A]
    assert leaders.failures(A) == 1


@pytest.mark.parametrize(
    ("answer", "tp", "code"),
    [
        (metadata(-1, 2), A, NO_LEADER),
        (metadata(9, 2), A, NO_LEADER),
        (metadata(1, 2), C, NO_PARTITION),
        (metadata(), A, NO_PARTITION),
        (metadata(payments=FORBIDDEN), TopicPartition("payments", 0), FORBIDDEN),
    ],
    ids=["no leader", "an unknown broker", "no partition", "no topic", "no right"],
)
def test_a_partition_without_a_leader_is_asked_for_again(
    leaders: Leaders, now: SimpleNamespace, answer: ClusterMetadata, tp: TopicPartition, code: int
) -> None:
    leaders.drop([A, B])
    leaders.known.pop(tp, None)
    leaders.want([tp])
    leaders.learn(answer, [tp])
    assert (leaders.errors, leaders.due(), tp in leaders.known) == ({tp: code}, [], False)
    now.s += 0.15
    assert leaders.due() == [tp]
    leaders.put_off([tp])
    assert leaders.errors == {}, "this time no broker has said anything"


def test_an_answer_that_nobody_has_asked_for_ends_no_doubt(leaders: Leaders) -> None:
    """A producer sends a batch again only after its pause, even if it learns about the topic meanwhile."""
    leaders.doubt([A])
    leaders.learn(metadata(2, -1, 1))
    assert addresses(leaders) == {C: ONE}
    assert leaders.errors == {B: NO_LEADER}
    assert (leaders.due(), leaders.next_at) == ([], Deadline.after(0.1)), "it has not asked for the others"
    leaders.learn(metadata(2, 1, 1))
    assert (addresses(leaders), leaders.errors) == ({B: ONE, C: ONE}, {})


def test_a_follower_is_read_from_until_it_refuses(leaders: Leaders, now: SimpleNamespace) -> None:
    leaders.follow(A, TWO)
    assert (leaders.known[A].address, leaders.known[A].leads, leaders.known[B].leads) == (TWO, False, True)
    leaders.doubt([A], moved=True)
    leaders.learn(metadata(2, 2), [A])
    assert addresses(leaders)[A] == TWO, "it was the follower that refused, and it leads now"
    leaders.follow(A, ONE)
    now.s += 300
    leaders.want([A])
    assert leaders.due() == [A]


def test_nobody_asks_about_partitions_that_are_dropped(leaders: Leaders) -> None:
    leaders.doubt([A, B], moved=True)
    leaders.drop([A])
    assert (leaders.due(), leaders.failures(A), leaders.failures(B)) == ([B], 0, 1)
