"""Each request that we write has the bytes that Kafka's own classes write.

The tests make random requests.  Java gets their fields as JSON, with the names of Kafka's protocol, and writes them.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.testing.jars import kafka_jars
from pyspark_kafka_group.testing.java import find_java
from pyspark_kafka_group.wire import messages
from pyspark_kafka_group.wire.config_requests import DescribeConfigs
from pyspark_kafka_group.wire.describe_requests import ConsumerGroupDescribe, DescribeGroups, ListGroups
from pyspark_kafka_group.wire.fields import Writer
from pyspark_kafka_group.wire.group_requests import (
    FindCoordinator,
    LastingOffsetCommit,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
)
from pyspark_kafka_group.wire.messages import Wanted, fetch_request, header_of
from pyspark_kafka_group.wire.produce_requests import AddPartitionsToTransaction, produce_request
from pyspark_kafka_group.wire.requests import Request
from pyspark_kafka_group.wire.topic_requests import AskedEpoch, ListOffsets, Metadata, OffsetForLeaderEpoch
from pyspark_kafka_group.wire.transaction_requests import (
    DescribeProducers,
    FindTransactionCoordinator,
    FindTransactionCoordinators,
)
from pyspark_kafka_group.wire.transactions import (
    AddOffsetsToTransaction,
    CommitOffsetsInTransaction,
    DescribeTransactions,
    EndTransaction,
    InitProducerId,
    ListTransactions,
)
from pyspark_kafka_group.wire.types import TopicPartition

Json = dict[str, Any]
Kafka = Callable[[str, int, Json], str]
T = TypeVar("T")

_NO_ID = base64.urlsafe_b64encode(bytes(16)).decode().rstrip("=")

texts = st.text(max_size=8)
some_texts = st.lists(texts, max_size=3).map(tuple)
names = st.lists(texts, max_size=3, unique=True).map(tuple)
int16s, int32s = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
partitions = st.builds(TopicPartition, texts, int32s)
some_partitions = st.lists(partitions, max_size=5, unique=True)
commits = st.dictionaries(partitions, st.builds(OffsetToCommit, int64s, int32s, texts), max_size=5)


def by_topic(
    values: Mapping[TopicPartition, T], one: Callable[[int, T], Any], *, fields: tuple[str, str]
) -> list[Json]:
    """Return values by topic, in the order of their first partitions."""
    found: dict[str, list[Any]] = {}
    for tp, value in values.items():
        found.setdefault(tp.topic, []).append(one(tp.partition, value))
    return [{fields[0]: topic, fields[1]: of_one} for topic, of_one in found.items()]


def indexes(wanted: Iterable[TopicPartition], *, fields: tuple[str, str]) -> list[Json]:
    return by_topic(dict.fromkeys(wanted), lambda number, _: number, fields=fields)


def offsets(committed: Mapping[TopicPartition, OffsetToCommit]) -> list[Json]:
    def one(number: int, value: OffsetToCommit) -> Json:
        return {
            "partitionIndex": number,
            "committedOffset": value.offset,
            "committedLeaderEpoch": value.leader_epoch,
            "committedMetadata": value.metadata,
        }

    return by_topic(committed, one, fields=("name", "partitions"))


class Case(NamedTuple):
    """A kind of request: how to make random ones, and the fields of one in a version, by Kafka's names."""

    made: st.SearchStrategy[Any]
    fields: Callable[[Any, int], Json]


def metadata(asked: Metadata, version: int) -> Json:
    topics = None if asked.topics is None else [{"topicId": _NO_ID, "name": name} for name in asked.topics]
    return {
        "topics": topics if version >= 10 or topics is None else [{"name": one["name"]} for one in topics],
        "allowAutoTopicCreation": asked.creates,
        **({"includeClusterAuthorizedOperations": False} if 8 <= version <= 10 else {}),
        **({"includeTopicAuthorizedOperations": asked.operations} if version >= 8 else {}),
    }


def list_offsets(asked: ListOffsets, version: int) -> Json:
    def one(number: int, epoch: int) -> Json:
        return {"partitionIndex": number, "currentLeaderEpoch": epoch}

    topics = by_topic(asked.partitions, one, fields=("name", "partitions"))
    for topic in topics:
        for part in topic["partitions"]:
            tp = TopicPartition(topic["name"], part["partitionIndex"])
            part["timestamp"] = asked.at if isinstance(asked.at, int) else asked.at[tp]
    return {"replicaId": -1, "isolationLevel": int(asked.read_committed), "topics": topics}


def epochs(asked: OffsetForLeaderEpoch, version: int) -> Json:
    def one(number: int, epoch: AskedEpoch) -> Json:
        return {
            "partition": number,
            "currentLeaderEpoch": epoch.current_leader_epoch,
            "leaderEpoch": epoch.leader_epoch,
        }

    replica = {"replicaId": -1} if version >= 3 else {}
    return {**replica, "topics": by_topic(asked.partitions, one, fields=("topic", "partitions"))}


def coordinator(key: str, kind: int, version: int) -> Json:
    return {"keyType": kind, **({"coordinatorKeys": [key]} if version >= 4 else {"key": key})}


def offset_fetch(asked: OffsetFetch, version: int) -> Json:
    topics = None if asked.partitions is None else indexes(asked.partitions, fields=("name", "partitionIndexes"))
    stable = {"requireStable": asked.require_stable} if version >= 7 else {}
    if version < 8:
        return {"groupId": asked.group_id, "topics": topics, **stable}
    member = {"memberId": None, "memberEpoch": -1} if version >= 9 else {}
    return {"groups": [{"groupId": asked.group_id, **member, "topics": topics}], **stable}


def offset_commit(asked: OffsetCommit, version: int) -> Json:
    return {
        "groupId": asked.group_id,
        "generationIdOrMemberEpoch": asked.generation,
        "memberId": asked.member_id,
        "groupInstanceId": asked.instance_id,
        "topics": offsets(asked.offsets),
    }


def lasting_commit(asked: LastingOffsetCommit, version: int) -> Json:
    topics = offsets(asked.offsets)
    for topic in topics:
        for part in topic["partitions"]:
            del part["committedLeaderEpoch"]
    return {
        "groupId": asked.group_id,
        "generationIdOrMemberEpoch": asked.generation,
        "memberId": asked.member_id,
        "retentionTimeMs": 0x7530_0000_0000,
        "topics": topics,
    }


def configs(asked: DescribeConfigs, version: int) -> Json:
    kinds = [
        {"resourceType": asked.kind, "resourceName": name, "configurationKeys": asked.keys} for name in asked.names
    ]
    return {
        "resources": kinds,
        "includeSynonyms": False,
        **({"includeDocumentation": False} if version >= 3 else {}),
    }


def producer_id(asked: InitProducerId, version: int) -> Json:
    former = {"producerId": -1, "producerEpoch": -1} if version >= 3 else {}
    return {"transactionalId": asked.transactional_id, "transactionTimeoutMs": asked.timeout_ms, **former}


def producer(asked: Any) -> Json:
    return {
        "transactionalId": asked.transactional_id,
        "producerId": asked.producer_id,
        "producerEpoch": asked.producer_epoch,
    }


def add_partitions(asked: AddPartitionsToTransaction, version: int) -> Json:
    topics = indexes(asked.partitions, fields=("name", "partitions"))
    return {
        f"v3AndBelow{name[0].upper()}{name[1:]}": value for name, value in {**producer(asked), "topics": topics}.items()
    }


def transaction_offsets(asked: CommitOffsetsInTransaction, version: int) -> Json:
    nobody = {"generationId": -1, "memberId": "", "groupInstanceId": None}
    return {**producer(asked), "groupId": asked.group_id, **nobody, "topics": offsets(asked.offsets)}


def list_transactions(asked: ListTransactions, version: int) -> Json:
    return {
        "stateFilters": list(asked.states),
        "producerIdFilters": [],
        "durationFilter": asked.longer_than_ms,
        **({"transactionalIdPattern": asked.pattern} if version >= 2 else {}),
    }


def list_groups(asked: ListGroups, version: int) -> Json:
    return {
        **({"statesFilter": []} if version >= 4 else {}),
        **({"typesFilter": []} if version >= 5 else {}),
    }


CASES: dict[type[Request[Any]], Case] = {
    Metadata: Case(st.builds(Metadata, st.none() | names, st.booleans(), st.booleans()), metadata),
    ListOffsets: Case(
        st.dictionaries(partitions, st.tuples(int32s, int64s), max_size=5).flatmap(
            lambda asked: st.builds(
                ListOffsets,
                st.just({tp: epoch for tp, (epoch, _) in asked.items()}),
                int64s | st.just({tp: at for tp, (_, at) in asked.items()}),
                st.booleans(),
            )
        ),
        list_offsets,
    ),
    OffsetForLeaderEpoch: Case(
        st.builds(OffsetForLeaderEpoch, st.dictionaries(partitions, st.builds(AskedEpoch, int32s, int32s), max_size=5)),
        epochs,
    ),
    FindCoordinator: Case(
        st.builds(FindCoordinator, texts), lambda asked, version: coordinator(asked.group_id, 0, version)
    ),
    FindTransactionCoordinator: Case(
        st.builds(FindTransactionCoordinator, texts),
        lambda asked, version: coordinator(asked.transactional_id, 1, version),
    ),
    FindTransactionCoordinators: Case(
        st.builds(FindTransactionCoordinators, some_texts),
        lambda asked, version: {"keyType": 1, "coordinatorKeys": asked.transactional_ids},
    ),
    OffsetFetch: Case(st.builds(OffsetFetch, texts, st.none() | some_partitions, st.booleans()), offset_fetch),
    OffsetCommit: Case(st.builds(OffsetCommit, texts, texts, int32s, st.none() | texts, commits), offset_commit),
    LastingOffsetCommit: Case(st.builds(LastingOffsetCommit, texts, texts, int32s, st.none(), commits), lasting_commit),
    DescribeConfigs: Case(st.builds(DescribeConfigs, st.integers(0, 127), some_texts, st.none() | some_texts), configs),
    ListGroups: Case(st.builds(ListGroups), list_groups),
    DescribeGroups: Case(
        st.builds(DescribeGroups, texts, st.booleans()),
        lambda asked, version: {"groups": [asked.group_id], "includeAuthorizedOperations": asked.operations},
    ),
    ConsumerGroupDescribe: Case(
        st.builds(ConsumerGroupDescribe, texts, st.booleans()),
        lambda asked, version: {"groupIds": [asked.group_id], "includeAuthorizedOperations": asked.operations},
    ),
    DescribeProducers: Case(
        st.builds(DescribeProducers, some_partitions),
        lambda asked, version: {
            "topics": indexes(sorted(asked.partitions), fields=("name", "partitionIndexes")),
        },
    ),
    DescribeTransactions: Case(
        st.builds(DescribeTransactions, some_texts),
        lambda asked, version: {"transactionalIds": asked.transactional_ids},
    ),
    ListTransactions: Case(st.builds(ListTransactions, some_texts, int64s, texts), list_transactions),
    EndTransaction: Case(
        st.builds(EndTransaction, texts, int64s, int16s, st.booleans()),
        lambda asked, version: {**producer(asked), "committed": asked.commit},
    ),
    InitProducerId: Case(st.builds(InitProducerId, st.none() | texts, int32s), producer_id),
    AddPartitionsToTransaction: Case(
        st.builds(AddPartitionsToTransaction, texts, int64s, int16s, some_partitions), add_partitions
    ),
    AddOffsetsToTransaction: Case(
        st.builds(AddOffsetsToTransaction, texts, int64s, int16s, texts),
        lambda asked, version: {**producer(asked), "groupId": asked.group_id},
    ),
    CommitOffsetsInTransaction: Case(
        st.builds(CommitOffsetsInTransaction, texts, int64s, int16s, texts, commits), transaction_offsets
    ),
}

many = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """Yield a function that lets Kafka's classes write a message, and returns its bytes in hexadecimal."""
    program = Path(__file__).with_name("RequestBytes.java")
    command = [str(find_java()), "-cp", ":".join(map(str, kafka_jars())), str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as java:
        assert java.stdin is not None
        assert java.stdout is not None
        to, answers = java.stdin, java.stdout

        def write(name: str, version: int, fields: Json) -> str:
            print(name, version, json.dumps(fields), file=to, flush=True)
            answer = answers.readline().strip()
            assert not answer.startswith("refused"), f"{name} {version} {fields}: {answer}"
            return answer

        yield write
        to.close()


def test_every_request_is_here() -> None:
    def kinds(base: type[object]) -> set[type[object]]:
        found: set[type[object]] = set(base.__subclasses__())
        return found.union(*map(kinds, found))

    # By name: a dataclass with slots is a second class beside the one that was written.
    ours = {kind.__name__ for kind in kinds(Request) if kind.__module__.startswith("pyspark_kafka_group.")}
    assert ours == {kind.__name__ for kind in CASES}


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_a_request_has_the_bytes_of_kafkas_classes(kafka: Kafka, kind: type[Request[Any]]) -> None:
    api = kind.api

    @many
    @given(CASES[kind].made)
    def check(asked: Request[Any]) -> None:
        for version in range(api.oldest, api.newest + 1):
            out = Writer(flexible=version >= api.flexible)
            asked.write(out, version)
            assert bytes(out).hex() == kafka(f"{api.name}Request", version, CASES[kind].fields(asked, version)), version

    check()


@many
@given(int16s, int16s, int32s, texts, st.integers(0, 1000), st.booleans())
def test_a_header(
    kafka: Kafka, api: int, version: int, correlation_id: int, client_id: str, body: int, flexible: bool
) -> None:
    ours = header_of(api, version, correlation_id, client_id, body, flexible=flexible)
    fields = {
        "requestApiKey": api,
        "requestApiVersion": version,
        "correlationId": correlation_id,
        "clientId": client_id,
    }
    assert ours[4:].hex() == kafka("RequestHeader", 2 if flexible else 1, fields)
    assert int.from_bytes(ours[:4], "big") == len(ours) - 4 + body


@many
@given(
    st.dictionaries(partitions, st.builds(Wanted, int64s, int32s), max_size=5),
    st.booleans(),
    int32s,
    int32s,
    st.none() | texts,
)
def test_a_fetch(
    kafka: Kafka,
    wanted: Mapping[TopicPartition, Wanted],
    read_committed: bool,
    max_wait_ms: int,
    max_bytes: int,
    rack: str | None,
) -> None:
    def one(number: int, asked: Wanted) -> Json:
        return {
            "partition": number,
            "currentLeaderEpoch": -1,
            "fetchOffset": asked[0],
            "logStartOffset": -1,
            "partitionMaxBytes": asked[1],
        }

    fields = {
        "replicaId": -1,
        "maxWaitMs": max_wait_ms,
        "minBytes": 1,
        "maxBytes": max_bytes,
        "isolationLevel": int(read_committed),
        "sessionId": 0,
        "sessionEpoch": -1,
        "topics": by_topic(wanted, one, fields=("topic", "partitions")),
        "forgottenTopicsData": [],
        **({} if rack is None else {"rackId": rack}),
    }
    version = messages.VERSIONS[messages.FETCH] if rack is None else messages.FETCH_WITH_RACK
    ours = fetch_request(wanted, read_committed=read_committed, max_wait_ms=max_wait_ms, max_bytes=max_bytes, rack=rack)
    assert ours.hex() == kafka("FetchRequest", version, fields)


@many
@given(
    st.dictionaries(partitions, st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3), min_size=1),
    st.none() | texts,
    int16s,
    int32s,
)
def test_a_produce(
    kafka: Kafka,
    batches: Mapping[TopicPartition, list[bytes]],
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> None:
    ours = b"".join(produce_request(batches, transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms))

    def one(number: int, buffers: list[bytes]) -> Json:
        return {"index": number, "records": base64.b64encode(b"".join(buffers)).decode()}

    fields = {
        "transactionalId": transactional_id,
        "acks": acks,
        "timeoutMs": timeout_ms,
        "topicData": by_topic(batches, one, fields=("name", "partitionData")),
    }
    assert ours.hex() == kafka("ProduceRequest", messages.VERSIONS[0], fields)


@many
@given(texts, st.binary(max_size=20))
def test_a_login(kafka: Kafka, mechanism: str, message: bytes) -> None:
    handshake = messages.sasl_handshake_request(mechanism)
    assert handshake.hex() == kafka("SaslHandshakeRequest", 1, {"mechanism": mechanism})
    ours = messages.sasl_authenticate_request(message)
    fields = {"authBytes": base64.b64encode(message).decode()}
    assert ours.hex() == kafka("SaslAuthenticateRequest", 1, fields)
