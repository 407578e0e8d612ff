"""The command line reads and reports the ``__consumer_offsets`` of a real broker, under both protocols."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from integration.cluster import produce, reset
from integration.consumers import Group
from integration.kafka_tools import CONSOLE_CONSUMER, describe, run_tool
from integration.pipelines import wait_for
from pyspark_kafka_group.cluster.cluster import Cluster, connect
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.kafka import Kafka
from pyspark_kafka_group.tools.analysis.group_records import (
    ClassicGroup,
    CommitRecord,
    CommitTombstone,
    ConsumerGroupEpoch,
    ConsumerMember,
    CurrentAssignment,
    GroupTombstone,
    UndecodableRecord,
    decode,
    is_of_group,
)
from pyspark_kafka_group.tools.analysis.offsets_topic import OFFSETS_TOPIC
from pyspark_kafka_group.tools.commands import kafka_group
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.requests import Api, Request, read_by_topic, write_by_topic

PROTOCOLS = ["classic", "consumer"]
Document = dict[str, Any]


@pytest.fixture
def group() -> str:
    return f"etl-{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=PROTOCOLS)
def members(kafka: Kafka, group: str, request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(kafka.bootstrap_servers, group, request.param)
    yield made
    made.leave()


of_one_protocol = pytest.mark.parametrize("members", ["consumer"], indirect=True)
"""Mark a test that does not depend on the members' protocol."""


@pytest.fixture
def inspection(kafka: Kafka) -> Iterator[Cluster]:
    made = connect({"bootstrap.servers": kafka.bootstrap_servers}, client_id="test")
    assert made is not None
    yield made
    made.close()


def told(bootstrap: str, command: str, group: str, *options: str, code: int = 0) -> list[Document]:
    """Run a command with ``--json`` and return its objects, one for each line."""
    found = CliRunner().invoke(kafka_group, [command, "-b", bootstrap, "--json", *options, group])
    assert found.exit_code == code, found.output
    return [json.loads(line) for line in found.stdout.splitlines()]


def empty(inspection: Cluster, group: str) -> bool:
    """Return whether a coordinator answers that the group has no commits.  A new cluster must first create it."""
    with suppress(TryAgainError):
        return inspection.all_committed(group) == ({}, {})
    return False


def moves(entries: list[Document], partition: int = 0) -> list[tuple[str, int | None, str | None]]:
    return [(e["move"], e["committed_offset"], e["client_id"]) for e in entries if e["partition"] == partition]


def one_after_the_other(text: str) -> list[Any]:
    """Parse the JSON of Kafka's formatter: it writes no separator between records, and warnings after the last one."""
    found, at = [], text.index("{")
    while text[at : at + 1] == "{":
        document, at = json.JSONDecoder().raw_decode(text, at)
        found.append(document)
    return found


def everything(bootstrap: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return all records of the offsets topic, including aborted ones."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    numbers = consumer.list_topics(OFFSETS_TOPIC, timeout=10).topics[OFFSETS_TOPIC].partitions
    consumer.assign([KafkaPartition(OFFSETS_TOPIC, number, 0) for number in numbers])
    found: list[tuple[bytes | None, bytes | None]] = []
    waiting = set(numbers)
    while waiting:
        message = consumer.poll(10)
        assert message is not None, "the offsets topic has no end"
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF", error
            waiting.discard(message.partition())
        else:
            found.append((message.key(), message.value()))
    consumer.close()
    return found


# -- decoding


def test_every_record_of_a_real_broker_is_decoded_as_kafkas_own_tool_does(
    kafka: Kafka, topic: TopicFactory, members: Group, group: str
) -> None:
    name = topic(partitions=4)
    members.join(name, "alice", "bob")
    members.commit(name, dict.fromkeys(range(4), 5))
    members.leave()
    reset(kafka.bootstrap_servers, group, name, {0: 2})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})  # keep the client until the answer arrives
    admin.delete_consumer_groups([group])[group].result(30)
    found = everything(kafka.bootstrap_servers)
    assert [record for pair in found if isinstance(record := decode(*pair), UndecodableRecord)] == []
    mine = [decode(*pair) for pair in found if is_of_group(group)(pair[0])]
    kinds = {type(record) for record in mine}
    assert kinds >= {CommitRecord, CommitTombstone, GroupTombstone}
    if members.protocol == "classic":
        assert ClassicGroup in kinds
    else:
        assert kinds >= {ConsumerGroupEpoch, ConsumerMember, CurrentAssignment}
    # Kafka's own tool reads the same commits, in the same order.
    told_by_kafka = run_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", OFFSETS_TOPIC, "--from-beginning"),
        *("--max-messages", str(len(found)), "--timeout-ms", "60000"),
        *("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"),
    )
    theirs = one_after_the_other(told_by_kafka)
    assert [
        (*record.tp, record.offset, record.leader_epoch, record.metadata, record.commit_time_ms)
        for record in mine
        if isinstance(record, CommitRecord)
    ] == [
        (
            line["key"]["data"]["topic"],
            line["key"]["data"]["partition"],
            line["value"]["data"]["offset"],
            None if line["value"]["data"]["leaderEpoch"] < 0 else line["value"]["data"]["leaderEpoch"],
            line["value"]["data"]["metadata"],
            line["value"]["data"]["commitTimestamp"],
        )
        for line in theirs
        if line["key"]["data"]["group"] == group and line["value"]
    ]


# -- beside Kafka's own tool


@of_one_protocol
def test_describe_and_kafkas_own_tool_agree_column_by_column(
    kafka: Kafka, topic: TopicFactory, members: Group, group: str
) -> None:
    name = topic(partitions=4)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 20, 2: 30})
    members.join(name, "alice", "bob")
    members.commit(name, {0: 10, 1: 5})  # the other partitions never get a commit

    def compare() -> None:
        (ours,) = told(kafka.bootstrap_servers, "describe", group, "--no-status")
        theirs = {(row["TOPIC"], int(row["PARTITION"])): row for row in describe(kafka.bootstrap_servers, group)}
        assert {(part["topic"], part["partition"]) for part in ours["partitions"]} == theirs.keys()
        for part in ours["partitions"]:
            row = theirs[part["topic"], part["partition"]]
            for column, key in {
                "GROUP": "group",
                "CURRENT-OFFSET": "committed_offset",
                "LOG-END-OFFSET": "log_end_offset",
                "LAG": "lag",
                "LEADER-EPOCH": "leader_epoch",
                "CONSUMER-ID": "member_id",
                "HOST": "host",
                "CLIENT-ID": "client_id",
            }.items():
                assert row[column] == ("-" if part[key] is None else str(part[key])), (part, column)

    compare()
    listed = CliRunner().invoke(kafka_group, ["groups", "-b", kafka.bootstrap_servers])
    assert [line.split()[1:4] for line in listed.stdout.splitlines() if line.startswith(group)] == [
        ["Stable", members.protocol, "2"]
    ], listed.output
    (ours,) = told(kafka.bootstrap_servers, "describe", group, "--no-status")
    assert (ours["state"], ours["protocol"], ours["lag"]) == ("Stable", members.protocol, 15)
    assert {member["client_id"] for member in ours["members"]} == {"alice", "bob"}
    members.leave()
    compare()


# -- history


def test_the_members_of_each_time_are_named(kafka: Kafka, topic: TopicFactory, members: Group, group: str) -> None:
    name = topic(partitions=2)
    members.join(name, "alice")
    members.commit(name, {0: 1, 1: 1})
    members.join(name, "bob")

    def shared() -> bool:
        for consumer in members.members.values():
            consumer.poll(0.05)
        return [len(consumer.assignment()) for consumer in members.members.values()] == [1, 1]

    wait_for(shared, "both have one", timeout_s=30)
    owners = {members.owner(0), members.owner(1)}
    assert owners == {"alice", "bob"}
    members.commit(name, {0: 2, 1: 2})
    for partition in (0, 1):
        entries = told(kafka.bootstrap_servers, "history", group, "--topics", f"{name}:{partition}")
        assert moves(entries, partition) == [("first", 1, "alice"), ("forth", 2, members.owner(partition))]
        assert [entry["members"] for entry in entries] == [1, 2]


@of_one_protocol
def test_only_committed_transactions_are_history(kafka: Kafka, topic: TopicFactory, members: Group, group: str) -> None:
    name = topic(partitions=1)
    members.join(name, "alice")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    metadata = members.members["alice"].consumer_group_metadata()
    for offset, commits in ((5, True), (50, False), (7, True)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([KafkaPartition(name, 0, offset)], metadata, 30)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def settled() -> bool:
        return len(told(kafka.bootstrap_servers, "history", group)) == 2

    wait_for(settled, "the transactions are over", timeout_s=30)
    assert moves(told(kafka.bootstrap_servers, "history", group)) == [("first", 5, "alice"), ("forth", 7, "alice")]
    assert told(kafka.bootstrap_servers, "rewinds", group) == []


def test_an_open_transaction_hides_no_rewind(
    kafka: Kafka, topic: TopicFactory, inspection: Cluster, group: str
) -> None:
    """Regression: ``rewinds`` found nothing, ``describe`` said OK, and nothing was wrong for the doctor."""
    name = topic(partitions=1)
    produce(kafka.bootstrap_servers, name, {0: 100})
    reset(kafka.bootstrap_servers, group, name, {0: 90})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    producer.send_offsets_to_transaction([KafkaPartition(name, 0, 50)], consumer.consumer_group_metadata(), 30)
    inspection.commit(group, "", -1, None, {TopicPartition(name, 0): (Offset(5), None, "")})
    assert told(kafka.bootstrap_servers, "rewinds", group, code=2) == []
    assert moves(told(kafka.bootstrap_servers, "history", group, code=2)) == [("first", 90, None)]
    assert told(kafka.bootstrap_servers, "describe", group)[0]["status"] is None
    (examined,) = told(kafka.bootstrap_servers, "doctor", group, code=1)
    assert "OPEN_TRANSACTION" in {finding["code"] for finding in examined["findings"]}
    producer.abort_transaction(30)
    consumer.close()
    (found,) = told(kafka.bootstrap_servers, "rewinds", group, code=1)
    assert (found["highest_offset"], found["lowest_offset"]) == (90, 5)


# -- clusters with other settings


@dataclass(frozen=True)
class _CommitFor(Request[dict[TopicPartition, int]]):
    """OffsetCommit before Kafka 2.1, which contains the time until the offset expires."""

    group_id: str
    tp: TopicPartition
    offset: int
    keep_ms: int

    api = Api(8, "OffsetCommit", 2, 2, flexible=8, since="0.9")

    def write(self, out: Writer, version: int) -> None:
        def partition(number: int, offset: int) -> None:
            out.int32(number)
            out.int64(offset)
            out.text("")

        out.text(self.group_id)
        out.int32(-1)
        out.text("")
        out.int64(self.keep_ms)
        write_by_topic(out, {self.tp: self.offset}, partition)

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, int]:
        return read_by_topic(answer, lambda: (answer.int32(), answer.int16()))


def test_an_offset_that_expires_is_not_taken_for_deleted(group: str) -> None:
    tp = TopicPartition("orders", 0)
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka(properties={"offsets.retention.check.interval.ms": "500"}))
        kafka.create_topic(tp.topic, 1)
        inspection = connect({"bootstrap.servers": kafka.bootstrap_servers}, client_id="test")
        assert inspection is not None
        stack.callback(inspection.close)
        wait_for(lambda: empty(inspection, group), "a coordinator answers", timeout_s=30)
        committed = inspection._ask_coordinator(group, _CommitFor(group, tp, 5, 1000), Deadline.after(30))
        assert committed == {tp: 0}

        def ended() -> bool:
            return not inspection.all_committed(group).found

        wait_for(ended, "the offset has expired", timeout_s=30)
        assert [e["move"] for e in told(kafka.bootstrap_servers, "history", group)] == ["first", "expired"]
        (found,) = told(kafka.bootstrap_servers, "rewinds", group, code=1)
        assert (found["kind"], found["ended"]) == ("ended", "expired")


def test_without_the_right_to_read_the_offsets_topic_it_is_said(tmp_path: Any, group: str) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with LocalKafka(
        sasl_users={"alice": "s3cret-Pa55"},
        properties={"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"},
    ) as kafka:
        kafka.create_topic("orders", 1)
        produce(kafka.bootstrap_servers, "orders", {0: 9})
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

        def allow(kind: ResourceType, name: str, *operations: AclOperation) -> None:
            for operation in operations:
                binding = AclBinding(
                    *(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
                )
                admin.create_acls([binding])[binding].result(30)

        allow(ResourceType.GROUP, group, AclOperation.READ)
        allow(ResourceType.TOPIC, "orders", AclOperation.READ)
        file = tmp_path / "client.properties"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        jaas = f'{module} required username="alice" password="s3cret-Pa55";'
        file.write_text(
            f"bootstrap.servers={kafka.secured_bootstrap_servers}\nsecurity.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n",
            encoding="utf-8",
        )
        inspection = connect({"bootstrap.servers": kafka.bootstrap_servers}, client_id="test")
        assert inspection is not None
        wait_for(lambda: empty(inspection, group), "a coordinator answers", timeout_s=30)
        inspection.commit(group, "", -1, None, {TopicPartition("orders", 0): (Offset(5), None, "")})
        inspection.close()

        def run(command: str, name: str = group, *options: str) -> Any:
            found = CliRunner().invoke(kafka_group, [command, "--config", str(file), "--json", *options, name])
            assert "s3cret" not in found.output
            return found

        for command in ("history", "rewinds"):
            refused = run(command)
            assert (refused.exit_code, refused.stdout) == (2, ""), refused.output
            assert "Give this user the rights Read and Describe" in refused.stderr
        described = run("describe")
        assert described.exit_code == 0, described.output
        assert (json.loads(described.stdout)["lag"], json.loads(described.stdout)["status"]) == (4, None)
        assert "the lag is not judged" in described.stderr
        polled = run("history", group, "--poll", "0.2", "--count", "2")
        assert polled.exit_code == 0, polled.output
        assert [json.loads(line)["committed_offset"] for line in polled.stdout.splitlines()] == [5]
        examined = run("doctor")
        assert examined.exit_code == 1, examined.output
        assert {(finding["code"], finding["object"]) for finding in json.loads(examined.stdout)["findings"]} == {
            ("NO_MEMBERS", f"group {group}"),
            ("NO_RIGHT", f"transactional ids kafka-group-{group}-*"),
            ("OFFSETS_TOPIC_UNREADABLE", "cluster"),
            ("SETTINGS_UNREADABLE", "cluster"),
        }
        kafka.create_topic("secret", 1)
        hidden = json.loads(run("doctor", group, "--topics", "secret").stdout)["findings"]
        assert ("NO_RIGHT", "topic secret") in {(finding["code"], finding["object"]) for finding in hidden}
        for command, options in (("doctor", ()), ("watch", ()), ("reset", ("--to", "start", "--execute"))):
            refused = run(command, "not-mine", *options)
            assert (refused.exit_code, refused.stdout) == (2, ""), command
        other = run("describe", "not-mine")
        assert (other.exit_code, other.stdout) == (2, "")
        assert "GROUP_AUTHORIZATION_FAILED" in other.stderr
        allow(ResourceType.TOPIC, OFFSETS_TOPIC, AclOperation.READ)
        assert len(run("history").stdout.splitlines()) == 1
        file.write_text(file.read_text(encoding="utf-8").replace("s3cret-Pa55", "s3cret-wrong"), encoding="utf-8")
        words = set()
        for command in ("describe", "watch", "coordinator", "history", "rewinds", "doctor", "export-checkpoint"):
            refused = run(command)
            assert (refused.exit_code, refused.stdout) == (2, ""), command
            words.add(refused.stderr)
        (said,) = words
        assert "The cluster refuses the credentials" in said
        assert "Check security.protocol, sasl.mechanism, sasl.username and sasl.password" in said
