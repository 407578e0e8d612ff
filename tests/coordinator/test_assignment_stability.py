"""An assignment is stable once a run with ``availableNow`` has its share: it does not end earlier or wait longer."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from pyspark_kafka_group.coordinator.assignment_stability import Share, is_stable
from pyspark_kafka_group.offsets.types import TopicPartition
from tests.coordinator.machine import A, B, C

ALL = (A, B, C)


def stable(owned: Collection[TopicPartition], **shares: Share) -> bool:
    return is_stable(shares, "me", owned, ALL)


def test_group_has_settled_if_everything_is_given_and_this_member_knows_its_part() -> None:
    assert stable({A}, me=Share([A]), another=Share([B, C]))


def test_member_alone_has_everything() -> None:
    assert stable({A, B, C}, me=Share([A, B, C]))
    assert not stable({A, B}, me=Share([A, B]))


def test_empty_assignment_is_a_share_only_while_others_have_everything() -> None:
    """A cooperative join begins with an empty assignment."""
    assert stable(set(), me=Share([]), another=Share([A, B, C]))
    assert not stable(set(), me=Share([]), another=Share([B, C]))
    assert not stable(set(), me=Share([]))


def test_partition_that_is_given_to_nobody_may_be_on_its_way_here() -> None:
    assert not stable({A}, me=Share([A]), another=Share([B]))


@pytest.mark.parametrize("owned", [{A}, {A, B, C}], ids=["not yet told", "not yet given back"])
def test_member_that_knows_something_else_than_the_group_has_not_settled(owned: set[TopicPartition]) -> None:
    assert not stable(owned, me=Share([A, B]), another=Share([C]))


def test_pending_target_is_waited_for() -> None:
    """KIP-848: the coordinator has decided, but a member must still release a partition."""
    assert not stable({A}, me=Share([A], [A, B]), another=Share([B, C], [C]))
    assert not stable({A, B}, me=Share([A, B], [A]), another=Share([C], [B, C]))
    assert stable({A, B}, me=Share([A, B], [A, B]), another=Share([C], [C]))


def test_targets_of_others_are_of_no_interest() -> None:
    assert stable({A}, me=Share([A], [A]), another=Share([B], [B, C]), third=Share([C], []))


def test_order_of_partitions_is_of_no_interest() -> None:
    assert stable([C, B, A], me=Share([A, B, C], [B, C, A]))


def test_member_that_the_group_does_not_know_has_no_share() -> None:
    assert not stable({A, B, C}, another=Share([A, B, C]))
    assert not stable(set())


def test_group_that_is_distributing_partitions_has_not_settled() -> None:
    assert not is_stable(None, "me", {A, B, C}, ALL)


def test_what_the_group_has_given_beyond_the_subscription_does_not_matter() -> None:
    """Another member subscribes to more topics, or a topic was deleted."""
    assert is_stable({"me": Share([A]), "another": Share([B, C])}, "me", {A}, [A])
