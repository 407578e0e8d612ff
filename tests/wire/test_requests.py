"""Requests as bytes, and answers of brokers, in every supported version."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.wire.config_requests import TOPIC, DescribeConfigs
from pyspark_kafka_group.wire.describe_requests import (
    ConsumerGroupDescribe,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    ListedGroup,
    ListGroups,
    assigned_partitions,
    subscribed_topics,
)
from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.group_requests import (
    Coordinator,
    FetchedOffset,
    FetchedOffsets,
    FindCoordinator,
    LastingOffsetCommit,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
)
from pyspark_kafka_group.wire.messages import FETCH, FETCH_WITH_RACK, PRODUCE
from pyspark_kafka_group.wire.messages import VERSIONS as VERSIONS_OF
from pyspark_kafka_group.wire.produce_requests import AddPartitionsToTransaction, produce_request, produced
from pyspark_kafka_group.wire.requests import Request
from pyspark_kafka_group.wire.topic_requests import (
    LOG_END,
    AskedEpoch,
    ClusterMetadata,
    FoundEpoch,
    ListedOffset,
    ListOffsets,
    Metadata,
    OffsetForLeaderEpoch,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_kafka_group.wire.transaction_requests import (
    ActiveProducer,
    DescribeProducers,
    FindTransactionCoordinator,
    FindTransactionCoordinators,
    PartitionProducers,
)
from pyspark_kafka_group.wire.transactions import (
    AddOffsetsToTransaction,
    CommitOffsetsInTransaction,
    DescribeTransactions,
    EndTransaction,
    InitializedProducer,
    InitProducerId,
    ListedTransactions,
    ListTransactions,
    TransactionState,
)
from pyspark_kafka_group.wire.types import Address, ProtocolError, TopicPartition, UnsupportedVersionError
from tests.wire import answers
from tests.wire.fake_broker import Answer

TP = TopicPartition("t", 1)
ASKED: dict[str, Request[Any]] = {
    request.api.name: request
    for request in (
        Metadata(("t",)),
        ListOffsets({TP: 4}, LOG_END, read_committed=True),
        OffsetForLeaderEpoch({TP: AskedEpoch(3, 4)}),
        FindCoordinator("g"),
        OffsetFetch("g", [TP], require_stable=True),
        OffsetCommit("g", "m", 2, "i", {TP: OffsetToCommit(5, 6, "x")}),
        DescribeConfigs(TOPIC, ("t",)),
        ListGroups(),
        DescribeGroups("g"),
        ConsumerGroupDescribe("g"),
        DescribeProducers((TP,)),
        DescribeTransactions(["x"]),
        EndTransaction("x", 5, 6, True),
        ListTransactions(["Ongoing"], 7, "x.*"),
        InitProducerId("x", 5),
        AddPartitionsToTransaction("x", 5, 6, [TP, TopicPartition("t", 2)]),
        AddOffsetsToTransaction("x", 5, 6, "g"),
        CommitOffsetsInTransaction("x", 5, 6, "g", {TP: OffsetToCommit(8, -1, "m")}),
    )
}
LASTING = "OffsetCommit, lasting"
ASKED[LASTING] = LastingOffsetCommit("g", "m", 2, None, {TP: OffsetToCommit(5, 6, "x")})
VERSIONS = [(name, v) for name, asked in ASKED.items() for v in range(asked.api.oldest, asked.api.newest + 1)]

_COMMIT = "00000001 0001 74 00000001 00000001 0000000000000005"
_TRANSACTION = "0000000000000005 0006"
BYTES: dict[str, dict[tuple[int, ...], str]] = {
    "Metadata": {
        (7,): "00000001 0001 74 00",
        (8,): "00000001 0001 74 00 00 00",
        (9,): "02 02 74 00 00 00 00 00",
        (10,): "02" + "00" * 16 + "02 74 00 00 00 00 00",
        (11, 12): "02" + "00" * 16 + "02 74 00 00 00 00",
    },
    "ListOffsets": {(4, 5): "ffffffff 01 00000001 0001 74 00000001 00000001 00000004 ffffffffffffffff"},
    "OffsetForLeaderEpoch": {
        (2,): "00000001 0001 74 00000001 00000001 00000004 00000003",
        (3,): "ffffffff 00000001 0001 74 00000001 00000001 00000004 00000003",
        (4,): "ffffffff 02 02 74 02 00000001 00000004 00000003 00 00 00",
    },
    "FindCoordinator": {(3,): "02 67 00 00", (4,): "00 02 02 67 00"},
    "OffsetFetch": {
        (5,): "0001 67 00000001 0001 74 00000001 00000001",
        (6,): "02 67 02 02 74 02 00000001 00 00",
        (7,): "02 67 02 02 74 02 00000001 00 01 00",
        (8,): "02 02 67 02 02 74 02 00000001 00 00 01 00",
        (9,): "02 02 67 00 ffffffff 02 02 74 02 00000001 00 00 01 00",
    },
    "OffsetCommit": {
        (7,): f"0001 67 00000002 0001 6d 0001 69 {_COMMIT} 00000006 0001 78",
        (8, 9): "02 67 00000002 02 6d 02 69 02 02 74 02 00000001 0000000000000005 00000006 02 78 00 00 00",
    },
    LASTING: {(3, 4): f"0001 67 00000002 0001 6d 0000753000000000 {_COMMIT} 0001 78"},
    "DescribeConfigs": {
        (1, 2): "00000001 02 0001 74 ffffffff 00",
        (3,): "00000001 02 0001 74 ffffffff 00 00",
        (4,): "02 02 02 74 00 00 00 00 00",
    },
    "ListGroups": {(3,): "00", (4,): "01 00", (5,): "01 01 00"},
    "DescribeGroups": {(5,): "02 02 67 00 00"},
    "ConsumerGroupDescribe": {(0, 1): "02 02 67 00 00"},
    "DescribeProducers": {(0,): "02 02 74 02 00000001 00 00"},
    "DescribeTransactions": {(0,): "02 02 78 00"},
    "EndTxn": {(3, 4): f"02 78 {_TRANSACTION} 01 00"},
    "ListTransactions": {
        (1,): "02 08 4f6e676f696e67 01 0000000000000007 00",
        (2,): "02 08 4f6e676f696e67 01 0000000000000007 04 782e2a 00",
    },
    "InitProducerId": {
        (0, 1): "0001 78 00000005",
        (2,): "02 78 00000005 00",
        (3, 4): "02 78 00000005 ffffffffffffffff ffff 00",
    },
    "AddPartitionsToTxn": {
        (0, 1, 2): f"0001 78 {_TRANSACTION} 00000001 0001 74 00000002 00000001 00000002",
        (3,): f"02 78 {_TRANSACTION} 02 02 74 03 00000001 00000002 00 00",
    },
    "AddOffsetsToTxn": {(3,): f"02 78 {_TRANSACTION} 02 67 00"},
    "TxnOffsetCommit": {
        (3,): f"02 78 02 67 {_TRANSACTION} ffffffff 01 00 02 02 74 02 00000001 0000000000000008 ffffffff 02 6d 00 00 00"
    },
}
"""The bytes of each request, by its versions."""

FIRST_WITH_TOPIC_IDS = {"Produce": 13, "Fetch": 13, "OffsetFetch": 10, "OffsetCommit": 10}
"""From these versions on, requests name topics by their ids instead of their names (KIP-516, KIP-848)."""


def test_topics_are_named_also_by_requests_that_may_have_ids_instead() -> None:
    """Azure Event Hubs offers such versions, but its Metadata has no ids.

    franz-go sent zeros there, and no member could join (twmb/franz-go#1312).
    """
    ours = {
        "Produce": VERSIONS_OF[PRODUCE],
        "Fetch": max(VERSIONS_OF[FETCH], FETCH_WITH_RACK),
        "OffsetFetch": OffsetFetch.api.newest,
        "OffsetCommit": max(OffsetCommit.api.newest, LastingOffsetCommit.api.newest),
    }
    assert all(ours[name] < FIRST_WITH_TOPIC_IDS[name] for name in FIRST_WITH_TOPIC_IDS)


texts = st.text(max_size=5)
int16s, int32s = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
partitions = st.builds(TopicPartition, texts, int32s)
addresses = st.builds(Address, texts, int32s)
sets = st.frozensets(partitions, max_size=4)
operations = st.none() | st.frozensets(st.integers(0, 30))
topic_ids = st.sampled_from([None, "QtOXfeWAR9uadceaKEMIPw", "-_-_-_-_-_-_-_-_-_-_-w"])


def metadata_of(version: int) -> st.SearchStrategy[ClusterMetadata]:
    topics = st.builds(
        TopicMetadata,
        texts,
        int16s,
        topic_ids if version >= 10 else st.none(),
        st.lists(st.builds(PartitionMetadata, int32s, int16s, int32s, int32s), max_size=3).map(tuple),
        operations if version >= 8 else st.none(),
    )
    return st.builds(
        ClusterMetadata,
        st.dictionaries(int32s, addresses, max_size=3),
        st.lists(topics, max_size=3).map(tuple),
        st.none() | texts,
    )


def groups_of(name: str, version: int) -> st.SearchStrategy[DescribedGroup]:
    modern = name == "ConsumerGroupDescribe"
    members = st.builds(
        DescribedMember,
        texts,
        st.none() | texts,
        texts,
        texts,
        sets,
        sets if modern else st.none(),
        int32s if modern else st.none(),
        st.none() | st.frozensets(texts, min_size=int(modern), max_size=3),
        st.sampled_from([None, True, False]) if modern and version >= 1 else st.none(),
    )
    return st.builds(
        DescribedGroup,
        int16s,
        texts if modern else st.just(""),
        texts,
        int32s if modern else st.none(),
        st.lists(members, max_size=3).map(tuple),
        st.just("consumer"),
        texts,
        operations,
    )


def by_partition(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(partitions, values, max_size=4)


producers = st.lists(st.builds(ActiveProducer, int64s, int64s, int64s), max_size=3).map(tuple)
settings_of = st.dictionaries(texts, st.none() | texts, max_size=3)
group_lists = [st.lists(st.builds(ListedGroup, texts, texts, kind), max_size=3) for kind in (st.just(""), texts)]

ANSWERS: dict[str, tuple[Callable[[int], st.SearchStrategy[Any]], Callable[..., Answer]]] = {
    "Metadata": (metadata_of, answers.metadata),
    "DescribeConfigs": (
        lambda _: st.dictionaries(texts, st.tuples(int16s, settings_of), max_size=3),
        answers.configs,
    ),
    "ListOffsets": (
        lambda _: by_partition(st.builds(ListedOffset, int16s, int64s, int64s, int32s)),
        answers.listed,
    ),
    "OffsetForLeaderEpoch": (lambda _: by_partition(st.builds(FoundEpoch, int16s, int32s, int64s)), answers.epochs),
    "FindCoordinator": (lambda _: st.builds(Coordinator, int16s, texts, addresses), answers.coordinator),
    "OffsetFetch": (
        lambda _: st.builds(
            FetchedOffsets, int16s, by_partition(st.builds(FetchedOffset, int16s, int64s, int32s, texts))
        ),
        answers.offsets,
    ),
    "DescribeProducers": (
        lambda _: by_partition(st.builds(PartitionProducers, int16s, producers)),
        answers.producers,
    ),
    "ListGroups": (
        lambda version: st.tuples(int16s, group_lists[version >= 5]),
        lambda found: answers.groups(*found),
    ),
    "DescribeGroups": (lambda version: groups_of("DescribeGroups", version), answers.classic_group),
    "ConsumerGroupDescribe": (lambda version: groups_of("ConsumerGroupDescribe", version), answers.consumer_group),
    "DescribeTransactions": (
        lambda _: st.builds(TransactionState, int16s, texts, int64s, int16s, int32s),
        answers.transaction_state,
    ),
    "ListTransactions": (
        lambda _: st.builds(ListedTransactions, int16s, st.lists(texts, max_size=3).map(tuple)),
        answers.transactions,
    ),
    "InitProducerId": (lambda _: st.builds(InitializedProducer, int16s, int64s, int16s), answers.initialized),
    **dict.fromkeys(
        ("OffsetCommit", LASTING, "TxnOffsetCommit", "AddPartitionsToTxn"),
        (lambda _: by_partition(int16s), answers.commits),
    ),
    **dict.fromkeys(("EndTxn", "AddOffsetsToTxn"), (lambda _: int16s, answers.transaction_end)),
}
"""What a broker may answer to each request, in a version, and the function that writes it."""


def as_read(name: str, found: Any) -> Any:
    """Return what the client must read."""
    if name == "DescribeTransactions":
        return {"x": found}
    if name == "DescribeConfigs":
        good = {resource: told for resource, (error, told) in found.items() if not error}
        return {
            resource: {key: value for key, value in told.items() if value is not None}
            for resource, told in good.items()
        }
    return found


def written(name: str, version: int, answer: Answer) -> bytes:
    out = Writer(flexible=version >= ASKED[name].api.flexible)
    answer(out, version)
    return bytes(out)


def reader(name: str, version: int, data: bytes) -> Reader:
    return Reader(memoryview(data), flexible=version >= ASKED[name].api.flexible)


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_a_request_has_the_bytes_of_its_schema(name: str, version: int) -> None:
    out = Writer(flexible=version >= ASKED[name].api.flexible)
    ASKED[name].write(out, version)
    (expected,) = (expected for versions, expected in BYTES[name].items() if version in versions)
    assert bytes(out).hex() == expected.replace(" ", "")


@pytest.mark.parametrize(
    ("version", "expected"),
    [(7, "02 67 00 00 00"), (8, "02 02 67 00 00 00 00"), (9, "02 02 67 00 ffffffff 00 00 00 00")],
)
def test_everything_that_a_group_has_committed_is_asked_for_with_null(version: int, expected: str) -> None:
    out = Writer(flexible=True)
    asked = OffsetFetch("g", None, require_stable=False)
    asked.write(out, version)
    assert bytes(out).hex() == expected.replace(" ", "")
    found = FetchedOffsets(0, {TP: FetchedOffset(0, 5, 6, "x")})
    answer = Writer(flexible=True)
    answers.offsets(found, "g")(answer, version)
    assert asked.read(Reader(memoryview(bytes(answer)), flexible=True), version) == found


@pytest.mark.parametrize(("version", "expected"), [(3, "02 78 01 00"), (4, "01 02 02 78 00")])
def test_the_coordinator_of_a_transaction_is_found_like_that_of_a_group(version: int, expected: str) -> None:
    out, answer = Writer(flexible=True), Writer(flexible=True)
    asked, found = FindTransactionCoordinator("x"), Coordinator(0, "", Address("b", 9092))
    asked.write(out, version)
    assert bytes(out).hex() == expected.replace(" ", "")
    answers.coordinator(found, "x")(answer, version)
    assert asked.read(Reader(memoryview(bytes(answer)), flexible=True), version) == found


def test_the_coordinators_of_several_transactions_are_found_at_once() -> None:
    out, answer = Writer(flexible=True), Writer(flexible=True)
    asked = FindTransactionCoordinators(["x", "y"])
    asked.write(out, 4)
    assert bytes(out).hex() == "01 03 02 78 02 79 00".replace(" ", "")
    found = {name: Coordinator(0, "", Address(name, 9092)) for name in ("x", "y")}
    answers.coordinators(found)(answer, 4)
    assert asked.read(Reader(memoryview(bytes(answer)), flexible=True), 4) == found


def test_a_producer_without_a_transactional_id_asks_with_null() -> None:
    out = Writer(flexible=False)
    InitProducerId(None, 5).write(out, 1)
    assert bytes(out).hex() == "ffff00000005"


@pytest.mark.parametrize(("transactional_id", "expected"), [(None, "ffff"), ("x", "0001 78")])
def test_record_batches_are_sent_by_topic(transactional_id: str | None, expected: str) -> None:
    batches = {TP: [b"head", b"records"], TopicPartition("u", 0): [b"1"], TopicPartition("t", 2): [b"", b"22"]}
    body = produce_request(batches, transactional_id=transactional_id, acks=-1, timeout_ms=7)
    assert any(part is batches[TP][1] for part in body), "large buffers are not copied"
    expected += "ffff 00000007 00000002"
    expected += "0001 74 00000002" + "00000001 0000000b" + b"headrecords".hex() + "00000002 00000002" + b"22".hex()
    expected += "0001 75 00000001" + "00000000 00000001" + b"1".hex()
    assert b"".join(body).hex() == expected.replace(" ", "")


@settings(max_examples=30)
@given(errors=st.dictionaries(partitions, int16s, max_size=4), throttle_ms=int32s, data=st.data())
def test_the_answer_about_record_batches_is_read(
    errors: dict[TopicPartition, int], throttle_ms: int, data: st.DataObject
) -> None:
    out = Writer(flexible=False)
    answers.produced(errors, throttle_ms)(out, 7)
    assert produced(Reader(memoryview(bytes(out)))) == (throttle_ms, errors)
    cut = bytes(out)[: data.draw(st.integers(0, len(bytes(out)) - 1))]
    with pytest.raises(ProtocolError):
        produced(Reader(memoryview(cut)))


@pytest.mark.parametrize("version", [4, 5])
def test_each_partition_has_a_time_of_its_own(version: int) -> None:
    other = TopicPartition("t", 2)
    several = Writer(flexible=False)
    ListOffsets({TP: 4, other: 5}, {TP: 99, other: 77}).write(several, version)
    for number, epoch, time_ms in ((1, 4, 99), (2, 5, 77)):
        assert struct.pack(">iiq", number, epoch, time_ms) in bytes(several)


def test_operations_are_only_told_to_those_who_ask() -> None:
    for version in range(Metadata.api.oldest, Metadata.api.newest + 1):
        silent, asked = Writer(flexible=version >= 9), Writer(flexible=version >= 9)
        Metadata(("t",)).write(silent, version)
        Metadata(("t",), operations=True).write(asked, version)
        changed = [(a, b) for a, b in zip(bytes(silent), bytes(asked), strict=True) if a != b]
        assert changed == ([(0, 1)] if version >= 8 else [])
    for kind in (DescribeGroups, ConsumerGroupDescribe):
        out = Writer(flexible=True)
        kind("g", operations=True).write(out, 0)
        assert bytes(out).hex() == "020267" + "01" + "00"


def test_a_subscription_of_another_form_names_no_topics() -> None:
    assert subscribed_topics(memoryview(answers.consumer_subscription(["b", "a"]))) == frozenset({"a", "b"})
    for other in (b"", b"\0", b"rubbish", b"\0\0\0\0\0\2"):
        assert subscribed_topics(memoryview(other)) is None


def test_all_topics_are_asked_for_with_null() -> None:
    for version, expected in ((7, "ffffffff00"), (12, "00000000")):
        out = Writer(flexible=version >= 9)
        Metadata(None).write(out, version)
        assert bytes(out).hex() == expected


@pytest.mark.parametrize(("name", "version"), VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_an_answer_is_read_as_it_was_written_and_rubbish_is_a_protocol_error(
    name: str, version: int, data: st.DataObject
) -> None:
    """The rubbish is an answer that is cut off or has a few wrong bytes, or it is random."""
    strategy, write = ANSWERS[name]
    found = data.draw(strategy(version))
    sent = bytearray(written(name, version, write(found)))
    response = reader(name, version, bytes(sent))
    assert ASKED[name].read(response, version) == as_read(name, found)
    assert not response.left
    for _ in range(data.draw(st.integers(0, 3))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(sent[: data.draw(st.integers(0, len(sent)))])
    for rubbish in (bytes(sent), cut, data.draw(st.binary(max_size=200))):
        with suppress(ProtocolError):
            ASKED[name].read(reader(name, version, rubbish), version)


@pytest.mark.parametrize(
    ("offered", "version"), [((0, 13), 9), ((0, 8), 8), ((9, 20), 9), ((0, 4), None), ((10, 12), None), (None, None)]
)
def test_the_highest_version_that_both_speak_is_taken(offered: tuple[int, int] | None, version: int | None) -> None:
    api = OffsetFetch.api
    broker = {} if offered is None else {api.key: offered}
    if version is None:
        with pytest.raises(UnsupportedVersionError, match=r"OffsetFetch, not 5 to 9; Kafka has them from 2\.1 on"):
            api.version(broker)
    else:
        assert api.version(broker) == version


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_about_another_number_of_groups_is_rubbish(count: int) -> None:
    out = Writer(flexible=True)
    out.int32(0)
    out.array(["g"] * count, lambda key: answers.classic_group(DescribedGroup(0, "", "Dead", None, ()))(out, 5))
    with pytest.raises(ProtocolError):
        DescribeGroups("g").read(Reader(memoryview(bytes(out)), flexible=True), 5)


def test_an_assignment_may_be_empty_or_of_a_later_version_that_says_more() -> None:
    assert assigned_partitions(memoryview(b"")) == frozenset()
    later = bytearray(answers.consumer_assignment([TP]) + b"more")
    later[:2] = b"\0\x09"
    assert assigned_partitions(memoryview(later)) == {TP}


def test_the_assignment_of_a_group_that_is_not_of_consumers_is_its_own_affair() -> None:
    connect = DescribedGroup(
        0, "", "Stable", None, (DescribedMember("m", None, "c", "h", frozenset({TP}), None, None),)
    )
    data = written("DescribeGroups", 5, answers.classic_group(connect, protocol_type="connect"))
    (member,) = DescribeGroups("g").read(reader("DescribeGroups", 5, data), 5).members
    assert member.assignment == frozenset()


@given(st.binary(max_size=100))
def test_an_assignment_of_rubbish_is_a_protocol_error(data: bytes) -> None:
    with suppress(ProtocolError):
        assigned_partitions(memoryview(data))
