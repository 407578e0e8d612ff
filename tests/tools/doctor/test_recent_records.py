"""The facts that the doctor takes from the records of a group."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_records import LoggedRecord, decode
from pyspark_kafka_group.tools.doctor.recent_records import CommitInterval, Timeouts, recent
from tests.tools.analysis import records
from tests.tools.analysis.records import GROUP, TP

NOW = 1_000_000_000
MINUTE = 60_000


def logged(*of: tuple[int, bytes, bytes | None]) -> Sequence[LoggedRecord]:
    """Return records with these ages in minutes."""
    return [LoggedRecord(n, NOW - age * MINUTE, decode(key, value)) for n, (age, key, value) in enumerate(of)]


def commit(age: int, offset: int) -> tuple[int, bytes, bytes]:
    return age, records.offset_key(), records.offset_value(offset, time_ms=NOW - age * MINUTE)


def group(age: int, *members: str) -> tuple[int, bytes, bytes]:
    value = records.classic_value({name: records.assignment([TP]) for name in members})
    return age, records.key(2, GROUP), value


def test_rebalances_and_assignors_are_those_of_the_last_hour() -> None:
    found = recent(logged(group(120, "a"), group(50, "a"), group(10), group(5, "a", "b")), {}, now_ms=NOW)
    assert found.rebalances == 2, "a group that becomes empty is not assigned"
    assert found.assignors == {"cooperative-sticky"}
    assert found.idle_seconds == 5 * 60


def test_timeouts_are_those_of_the_members_that_there_are() -> None:
    found = recent(logged(group(120, "a", "b"), group(90, "b")), {}, now_ms=NOW)
    assert found.timeouts == {"b": Timeouts(45_000, 300_000, None)}
    modern = (99, records.key(5, GROUP, "m"), records.member_value())
    ended = (98, records.key(5, GROUP, "m"), None)
    assert recent(logged(modern), {}, now_ms=NOW).timeouts == {"m": Timeouts(None, 300_000, "uniform")}
    assert recent(logged(modern, ended), {}, now_ms=NOW).timeouts == {}


def test_who_has_borne_an_instance_id_is_told_in_turn() -> None:
    def member(age: int, client_id: str) -> tuple[int, bytes, bytes]:
        return age, records.key(5, GROUP, f"m-{age}"), records.member_value(client_id)

    of = logged(member(90, "z"), member(9, "a"), member(8, "a"), member(7, "b"), member(6, "a"))
    found = recent(of, {}, now_ms=NOW)
    assert found.instances == {"static-a": ("a at /10.0.0.1", "b at /10.0.0.1", "a at /10.0.0.1")}


def test_the_longest_times_between_two_commits_of_one_member_are_kept() -> None:
    of = [group(50, "a"), commit(40, 10), commit(30, 20), commit(29, 20), commit(28, 30)]
    found = recent(logged(*of), {}, now_ms=NOW)
    # A repeated commit of an offset shows that the member lives, but ends no batch.
    assert found.intervals == {
        TP: [CommitInterval(600.0, NOW - 40 * MINUTE, 10, "a"), CommitInterval(120.0, NOW - 30 * MINUTE, 20, "a")]
    }
    taken_over = [group(50, "a"), commit(40, 10), group(35, "b"), commit(30, 20)]
    assert recent(logged(*taken_over), {}, now_ms=NOW).intervals == {}
    nobody = [group(50), commit(40, 10), commit(30, 20)]
    assert recent(logged(*nobody), {}, now_ms=NOW).intervals == {}


def test_the_offsets_of_a_bookmark_have_their_own_time_of_expiry() -> None:
    lasting = 9, records.offset_key(), records.offset_value(5, version=1, expires=NOW * 9)
    ended = 3, records.offset_key(tp=TopicPartition("orders", 1)), None
    other = 4, records.offset_key(tp=TopicPartition("orders", 1)), records.offset_value(5)
    assert recent(logged(lasting), {}, now_ms=NOW).own_expiry
    assert not recent(logged(lasting, other), {}, now_ms=NOW).own_expiry
    assert recent(logged(lasting, other, ended), {}, now_ms=NOW).own_expiry
    assert not recent((), {}, now_ms=NOW).own_expiry


def test_a_group_without_records_was_never_used() -> None:
    assert recent((), {}, now_ms=NOW).idle_seconds is None
