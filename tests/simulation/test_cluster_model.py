"""The model of the group coordinator behaves like brokers, as far as the invariants depend on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_kafka_group.offsets.types import TopicPartition
from tests.simulation.cluster import (
    Callback,
    ClassicGroup,
    Client,
    ConsumerGroup,
    Group,
    Log,
    OffsetStore,
    Stored,
    Transaction,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def client(query: int) -> Client:
    return Client(query, frozenset("t"))


def settled(group: Group, *clients: Client) -> None:
    """Let all clients poll, and acknowledge revocations at once, until nothing happens."""
    while sum(served(group, each) for each in clients):
        pass


def served(group: Group, each: Client) -> bool:
    due = group.poll(each)
    if isinstance(due, Callback) and due.kind == "revoke":
        group.acknowledged(each)
    return bool(due)


def until_revoked(group: Group, *clients: Client) -> Client:
    """Poll until the group revokes partitions from a client.  Return that client."""
    for _ in range(10):
        for each in clients:
            due = group.poll(each)
            if isinstance(due, Callback) and due.kind == "revoke":
                return each
    raise AssertionError("nobody is asked to give anything back")


both = pytest.mark.parametrize("make", [ConsumerGroup, ClassicGroup])


@both
def test_partition_is_given_only_after_its_holder_has_acknowledged(make: Callable[..., Group]) -> None:
    group, first, second = make([T0, T1]), client(0), client(1)
    group.join(first)
    settled(group, first)
    assert first.owned == {T0, T1}
    group.join(second)
    assert until_revoked(group, first, second) is first
    for _ in range(5):
        group.poll(second)
    assert second.owned == set()
    group.acknowledged(first)
    settled(group, first, second)
    assert len(first.owned) == len(second.owned) == 1


@both
def test_commit_under_the_credentials_of_before_a_rebalance_is_refused(make: Callable[..., Group]) -> None:
    group, first, second = make([T0, T1]), client(0), client(1)
    group.join(first)
    settled(group, first)
    before = (first.member, first.generation)
    assert group.accepts(*before)
    group.join(second)
    settled(group, first, second)
    assert not group.accepts(*before)
    assert group.accepts(first.member, first.generation)


@both
def test_evicted_member_is_refused_and_told_that_it_has_lost_everything(make: Callable[..., Group]) -> None:
    group, first = make([T0]), client(0)
    group.join(first)
    settled(group, first)
    group.remove(first)
    assert not group.accepts(first.member, first.generation)
    assert group.poll(first) == Callback("lost", (T0,))


def test_classic_rebalance_waits_for_every_member() -> None:
    group, first, second = ClassicGroup([T0, T1]), client(0), client(1)
    group.join(first)
    settled(group, first)
    group.join(second)
    generation = group.generation
    for _ in range(5):
        group.poll(second)
    assert group.generation == generation
    group.poll(first)
    assert group.generation == generation + 1


def test_classic_member_that_was_evicted_inside_its_callback_gets_a_new_id_and_no_word() -> None:
    group, first, second = ClassicGroup([T0, T1]), client(0), client(1)
    group.join(first)
    settled(group, first)
    group.join(second)
    until_revoked(group, first, second)
    before = first.member
    group.remove(first)
    group.acknowledged(first)
    assert first.member != before
    due = group.poll(first)
    assert not (isinstance(due, Callback) and due.kind == "lost")


def test_partition_that_comes_back_to_the_same_query_has_not_moved() -> None:
    group, first = ConsumerGroup([T0]), client(0)
    group.join(first)
    settled(group, first)
    group.remove(first)
    group.join(first)
    settled(group, first)
    assert first.owned == {T0}
    assert group.moves[T0] == 0


def test_open_transaction_makes_its_partitions_unstable_until_it_ends() -> None:
    landed: list[tuple[TopicPartition, Stored, Stored | None]] = []
    store = OffsetStore({T0: Log(5, 5)}, lambda *seen: landed.append(seen))
    transaction = Transaction(0, {T0: Stored(3, None)})
    store.open.append(transaction)
    assert not store.stable(T0)
    assert store.stable(T1)
    assert store.partition_info(T0, ()).committed is None
    store.end_transaction(transaction, commit=True)
    assert store.stable(T0)
    assert store.partition_info(T0, ()).committed == 3
    assert landed == [(T0, Stored(3, None), None)]


def test_static_member_that_restarts_in_the_middle_of_a_revocation_gets_what_it_was_assigned() -> None:
    group, first, second = ClassicGroup([T0, T1]), client(0), client(1)
    first.static = True
    group.join(first)
    settled(group, first)
    group.join(second)
    assert until_revoked(group, first, second) is first
    successor = Client(0, frozenset("t"), static=True)
    group.join(successor)
    settled(group, successor, second)
    assert len(successor.owned) == len(second.owned) == 1


def test_static_member_takes_over_from_a_process_that_crashed_once_its_session_has_ended() -> None:
    group, first = ConsumerGroup([T0]), Client(0, frozenset("t"), static=True)
    group.join(first)
    settled(group, first)
    successor = Client(0, frozenset("t"), static=True)
    group.join(successor)
    assert successor.refused
    assert group.accepts(first.member, first.generation)
    group.remove(first)
    group.join(successor)
    settled(group, successor)
    assert successor.owned == {T0}


def test_static_member_takes_over_at_once_from_a_process_that_has_stopped() -> None:
    group, first = ConsumerGroup([T0]), Client(0, frozenset("t"), static=True)
    group.join(first)
    settled(group, first)
    first.released = True
    successor = Client(0, frozenset("t"), static=True)
    group.join(successor)
    settled(group, successor)
    assert successor.owned == {T0}
    assert not group.accepts(first.member, first.generation)
