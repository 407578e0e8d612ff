"""Records of ``__consumer_offsets``: every version of their schemas, tombstones, and invalid bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.tools.analysis.group_records import (
    KINDS,
    ClassicGroup,
    ClassicMember,
    CommitRecord,
    CommitTombstone,
    ConsumerGroupEpoch,
    ConsumerMember,
    CurrentAssignment,
    GroupRecord,
    GroupTombstone,
    OtherRecord,
    UndecodableRecord,
    _commit,
    common_commit,
    decode,
    is_of_group,
)
from pyspark_kafka_group.wire.types import ProtocolError, TopicPartition
from tests.tools.analysis import records
from tests.tools.analysis.records import GROUP, TOPIC_ID, TP

MEMBER_KINDS = (5, 8)


WRITTEN_ID = "djtmE3jFRfm2oWgmUCwjVQ"
WRITTEN_MEMBER = "6axnv+EMT8mnJ25Zny6vDQ"
WRITTEN_KEY = "000a6f72646572732d65746c"
WRITTEN_MEMBER_KEY = WRITTEN_KEY + "00163661786e762b454d54386d6e4a32355a6e7936764451"


@pytest.mark.parametrize(
    ("key", "value", "record"),
    [
        (
            "0001" + WRITTEN_KEY + "00066f726465727300000001",
            "00040000000000000014ffffffff01000001a204fdb404010010763b661378c545f9b6a16826502c2355",
            CommitRecord(
                *(TopicPartition("orders", 1), 20, None, "", 0x1A204FDB404, None),
                WRITTEN_ID,
            ),
        ),
        ("0003" + WRITTEN_KEY, "000000000002010008b853cad8d5e6e025", ConsumerGroupEpoch(2)),
        (
            "0005" + WRITTEN_MEMBER_KEY,
            "000000000b737061726b2d65752d310b2f3132372e302e302e3102076f726465727301000493e00001000100",
            ConsumerMember(
                *(WRITTEN_MEMBER, None, "spark-eu-1", "/127.0.0.1"),
                None,
                300_000,
            ),
        ),
        (
            "0007" + WRITTEN_MEMBER_KEY,
            "000002763b661378c545f9b6a16826502c2355040000000000000001000000020000",
            OtherRecord(7),
        ),
        (
            "0008" + WRITTEN_MEMBER_KEY,
            "000000000002000000000002763b661378c545f9b6a16826502c23550400000000000000010000000201000d04"
            "0000000200000002000000020100",
            CurrentAssignment(WRITTEN_MEMBER, {WRITTEN_ID: frozenset({0, 1, 2})}),
        ),
    ],
)
def test_what_kafka_4_3_has_written_is_read(key: str, value: str, record: GroupRecord) -> None:
    """A real broker has written these bytes.  Test code makes the bytes of the other tests."""
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize("version", range(5))
def test_commits_of_every_version(version: int) -> None:
    value = records.offset_value(9, version=version, metadata="größe", time_ms=42, expires=77, topic_id=TOPIC_ID)
    assert decode(records.offset_key(), value) == CommitRecord(
        tp=TP,
        offset=9,
        leader_epoch=7 if version >= 3 else None,
        metadata="größe",
        commit_time_ms=42,
        expire_time_ms=77 if version == 1 else None,
        topic_id=TOPIC_ID if version == 4 else None,
    )


def test_a_commit_without_a_leader_epoch_an_expiry_or_a_topic_id_has_none() -> None:
    for version in (1, 3, 4):
        found = decode(records.offset_key(), records.offset_value(9, version=version, epoch=-1))
        assert found == CommitRecord(TP, 9, None, "", 1_000, None, None)


def test_tagged_fields_of_a_newer_kafka_are_passed_over() -> None:
    value = records.offset_value(9, version=4)
    assert value.endswith(b"\0")
    later = value[:-1] + bytes([1, 5, 3]) + b"new"
    assert decode(records.offset_key(), later) == decode(records.offset_key(), value)


def test_offsets_of_kafka_before_0_9_have_a_key_of_their_own() -> None:
    assert decode(records.offset_key(kind=0), records.offset_value(9, version=0)) == CommitRecord(
        TP, 9, None, "", 1_000, None, None
    )


@pytest.mark.parametrize("version", range(5))
def test_classic_groups_of_every_version(version: int) -> None:
    value = records.classic_value({"a": records.assignment([TP]), "b": b""}, version=version)

    def member(name: str, partitions: frozenset[TopicPartition]) -> ClassicMember:
        instance_id = f"static-{name}" if version >= 3 else None
        poll_ms = 300_000 if version >= 1 else None
        return ClassicMember(name, instance_id, f"client-{name}", "/10.0.0.1", partitions, 45_000, poll_ms)

    assert decode(records.key(2, GROUP), value) == ClassicGroup(
        assignor="cooperative-sticky",
        members=(member("a", frozenset({TP})), member("b", frozenset())),
    )


@pytest.mark.parametrize(("protocol_type", "given"), [("connect", b"anything"), ("consumer", b"\0\1\0\0\0\7")])
def test_an_assignment_that_is_no_consumers_is_not_known_and_no_error(protocol_type: str, given: bytes) -> None:
    found = decode(records.key(2, GROUP), records.classic_value({"a": given}, protocol_type=protocol_type))
    assert isinstance(found, ClassicGroup)
    assert found.members[0].assignment is None


def test_an_empty_classic_group_has_no_members() -> None:
    assert decode(records.key(2, GROUP), records.classic_value({})) == ClassicGroup(assignor=None, members=())


def test_records_of_kip_848() -> None:
    assert decode(records.key(3, GROUP), records.epoch_value(6)) == ConsumerGroupEpoch(6)
    assert decode(records.key(5, GROUP, "a"), records.member_value()) == ConsumerMember(
        "a", "static-a", "client-a", "/10.0.0.1", "uniform", 300_000
    )
    some = {TOPIC_ID: (0, 2)}
    current = decode(records.key(8, GROUP, "a"), records.current_value(some, {TOPIC_ID: (1,)}))
    assert current == CurrentAssignment("a", {TOPIC_ID: frozenset({0, 1, 2})})


def test_the_end_of_each_kind_of_record_is_named() -> None:
    assert decode(records.offset_key(), None) == CommitTombstone(TP)
    for kind in KINDS.keys() - {0, 1}:
        member = ("a",) if kind in MEMBER_KINDS else ()
        assert decode(records.key(kind, GROUP, *member), None) == GroupTombstone(kind, *(member or (None,)))


@pytest.mark.parametrize("kind", [4, 7, 9, 11, 17, 23, 99])
def test_other_kinds_and_those_that_a_newer_kafka_has_brought_are_no_error(kind: int) -> None:
    for value in (b"whatever", None):
        assert decode(records.key(kind, GROUP), value) == OtherRecord(kind)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"x", "without a key"),
        (b"", b"x", "less than two bytes"),
        (b"\1", None, "less than two bytes"),
        (records.offset_key()[:-1], None, "OffsetCommit: a response is shorter"),
        (records.offset_key() + b"x", None, "OffsetCommit: 1 bytes too many in its key"),
        (records.offset_key(), b"", "OffsetCommit: a response is shorter"),
        (records.offset_key(), b"\0\5", "version 5 of its value is not known"),
        (records.offset_key(), b"\xff\xff", "version -1 of its value is not known"),
        (records.offset_key(), records.offset_value(1) + b"x", "1 bytes too many in its value"),
        (records.key(2, GROUP), records.classic_value({"a": b""})[:-1], "GroupMetadata: "),
        (records.key(3, GROUP), records.epoch_value(1)[:-1], "ConsumerGroupMetadata: "),
    ],
)
def test_what_is_wrong_with_bytes_is_said(key: bytes | None, value: bytes | None, reason: str) -> None:
    found = decode(key, value)
    assert isinstance(found, UndecodableRecord)
    assert reason in found.reason


VALUES = [
    (records.offset_key(), records.offset_value(9, version=1, metadata="m")),
    (records.offset_key(), records.offset_value(9, version=4, metadata="m", topic_id=TOPIC_ID)),
    (records.key(2, GROUP), records.classic_value({"a": records.assignment([TP])}, version=4)),
    (records.key(3, GROUP), records.epoch_value(1)),
    (records.key(5, GROUP, "a"), records.member_value()),
    (records.key(8, GROUP, "a"), records.current_value({TOPIC_ID: (0, 1)})),
]


@pytest.mark.parametrize(("key", "value"), VALUES)
def test_a_record_that_was_cut_off_anywhere_is_undecodable(key: bytes, value: bytes) -> None:
    assert not isinstance(decode(key, value), UndecodableRecord)
    for length in range(len(value)):
        assert isinstance(decode(key, value[:length]), UndecodableRecord), length
    for length in range(len(key)):
        assert isinstance(decode(key[:length], value), UndecodableRecord), length


@given(st.sampled_from(VALUES), st.integers(0, 200), st.integers(0, 255), st.booleans())
def test_a_wrong_byte_anywhere_does_no_harm(record: tuple[bytes, bytes], at: int, byte: int, in_key: bool) -> None:
    key, value = map(bytearray, record)
    spoilt = key if in_key else value
    spoilt[at % len(spoilt)] = byte
    decode(bytes(key), bytes(value))


@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=200))
def test_bytes_that_nobody_wrote_on_purpose_do_no_harm(key: bytes | None, value: bytes | None) -> None:
    decode(key, value)


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=200))
def test_values_that_nobody_wrote_on_purpose_do_no_harm(kind: int, value: bytes) -> None:
    texts = (GROUP, "a") if kind in MEMBER_KINDS else (GROUP,)
    decode(records.key(kind, *texts) if kind > 1 else records.offset_key(kind=kind), value)


def test_keys_of_a_group_are_told_by_their_first_bytes() -> None:
    mine = is_of_group(GROUP)
    assert mine(records.offset_key())
    assert all(mine(records.key(kind, GROUP, "a")) for kind in KINDS)
    for other in ("et", "etl-2", "ETL", ""):
        assert not mine(records.offset_key(group=other)), other
    assert not mine(None)
    assert not mine(b"")
    assert is_of_group("größe")(records.offset_key(group="größe"))
    assert not is_of_group("x" * 70_000)(records.offset_key())


values = st.builds(
    records.offset_value,
    st.integers(0, 2**63 - 1),
    version=st.sampled_from([3, 4]),
    epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=300),
    time_ms=st.integers(0, 2**62),
    topic_id=st.none() | st.just(TOPIC_ID),
)


@given(values, st.integers(0, 400), st.integers(0, 255))
def test_the_short_way_says_what_the_long_one_does(value: bytes, at: int, byte: int) -> None:
    """The values are whole or damaged: cut off, longer, or with one wrong byte."""
    damaged = bytearray(value)
    damaged[at % len(value)] = byte
    for found in (value, value[:at], value + bytes([byte]), bytes(damaged)):
        short = common_commit(TP, found)
        try:
            long = _commit(TP, found)
        except ProtocolError:
            assert short is None
            continue
        assert short in (None, long)
    assert common_commit(TP, value) is not None, "the short way is taken"
