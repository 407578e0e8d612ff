"""The members of a group at each point of its log."""

from __future__ import annotations

from pyspark_kafka_group.tools.analysis.group_records import decode
from pyspark_kafka_group.tools.analysis.membership import LoggedMembers, Owner
from pyspark_kafka_group.wire.types import TopicPartition
from tests.tools.analysis import records
from tests.tools.analysis.records import GROUP, TOPIC_ID, TP

OTHER = TopicPartition("orders", 0)


def classic(**members: bytes) -> tuple[bytes, bytes | None]:
    return records.key(2, GROUP), records.classic_value(members)


def member(name: str) -> tuple[bytes, bytes | None]:
    return records.key(5, GROUP, name), records.member_value(f"client-{name}")


def current(name: str, *numbers: int, pending: tuple[int, ...] = ()) -> tuple[bytes, bytes | None]:
    return records.key(8, GROUP, name), records.current_value({TOPIC_ID: numbers}, {TOPIC_ID: pending})


def ended(kind: int, *texts: str) -> tuple[bytes, bytes | None]:
    return records.key(kind, GROUP, *texts), None


def after(*pairs: tuple[bytes, bytes | None]) -> LoggedMembers:
    found = LoggedMembers({TOPIC_ID: "orders"})
    for key, value in pairs:
        found.apply(decode(key, value))
    return found


def owner(name: str) -> Owner:
    return Owner(name, f"client-{name}", "/10.0.0.1")


def test_without_a_record_nothing_is_known() -> None:
    found = after((records.offset_key(), records.offset_value(1)))
    assert found.count is None
    assert found.owner(TP) is None


def test_a_classic_group_has_the_members_of_its_last_rebalance() -> None:
    found = after(
        classic(a=records.assignment([TP, OTHER])), classic(a=records.assignment([OTHER]), b=records.assignment([TP]))
    )
    assert found.count == 2
    assert (found.owner(OTHER), found.owner(TP)) == (owner("a"), owner("b"))
    assert found.owner(TopicPartition("clicks", 0)) is None


def test_a_classic_group_that_all_have_left_or_that_was_deleted_has_no_members() -> None:
    one = classic(a=records.assignment([TP]))
    for end in (classic(), ended(2)):
        found = after(one, end)
        assert (found.count, found.owner(TP)) == (0, None)


def test_members_of_kip_848_have_what_they_have_not_given_back() -> None:
    found = after((records.key(3, GROUP), records.epoch_value(1)), member("a"), current("a", 0, pending=(3,)))
    assert found.count == 1
    assert (found.owner(OTHER), found.owner(TP)) == (owner("a"), owner("a"))
    assert found.owner(TopicPartition("orders", 1)) is None


def test_a_member_of_kip_848_leaves() -> None:
    begun = (member("a"), current("a", 0), member("b"), current("b", 3))
    found = after(*begun, ended(8, "b"), ended(7, "b"), ended(5, "b"))
    assert (found.count, found.owner(TP), found.owner(OTHER)) == (1, None, owner("a"))


def test_a_topic_that_is_not_known_any_more_is_owned_by_nobody() -> None:
    found = LoggedMembers({})
    for key, value in (member("a"), current("a", 3)):
        found.apply(decode(key, value))
    assert (found.count, found.owner(TP)) == (1, None)


def test_a_group_changes_its_protocol_both_ways() -> None:
    modern = ((records.key(3, GROUP), records.epoch_value(1)), member("a"), current("a", 3))
    found = after(classic(x=records.assignment([TP])), ended(2), *modern)
    assert (found.count, found.owner(TP)) == (1, owner("a"))
    found = after(*modern, ended(8, "a"), ended(5, "a"), ended(3), classic(x=records.assignment([TP])))
    assert (found.count, found.owner(TP)) == (1, owner("x"))
