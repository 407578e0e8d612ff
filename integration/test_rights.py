"""The rights of docs/rights.md suffice on a broker with an authorizer, and an error names a missing right.

Each case has a new user, without the rights and sessions of other cases.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession

from integration.cluster import committed, produce
from integration.memberships import memberships, plan
from integration.pipelines import wait_for
from pyspark_kafka_group.batch import planning
from pyspark_kafka_group.batch.bookmark import Bookmark
from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.skip_store import SkipStore, read_markers
from pyspark_kafka_group.offsets.batch_offset import BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.errors import AuthenticationError, KafkaGroupError
from pyspark_kafka_group.offsets.skip_markers import SkipMarker
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.reading import range_reader
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.writing.batch_transactions import BatchTransactions
from pyspark_kafka_group.writing.commit_decision import TaskMessage
from pyspark_kafka_group.writing.options import parse_write_options
from pyspark_kafka_group.writing.producer_cache import open_producer
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.record_rows import RecordColumns, record_rows
from pyspark_kafka_group.writing.row_digest import digest_of

PASSWORD = "s3cret-Pa55"
USERS = [f"user{n}" for n in range(80)]
RECORDS = 20

TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


class Right(NamedTuple):
    """A right.  ``name`` may contain ``{topic}`` and ``{group}``; with ``*`` at its end it is a prefix."""

    operation: AclOperation
    kind: ResourceType
    name: str

    def binding(self, user: str, place: Mapping[str, str]) -> AclBinding:
        name = self.name.format(**place)
        pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
        kept = name.removesuffix("*")
        return AclBinding(self.kind, kept, pattern, f"User:{user}", "*", self.operation, AclPermissionType.ALLOW)


@dataclass(frozen=True)
class Place:
    """The objects of an attempt: the options of a user, a topic with records, and a group."""

    servers: str  # for the test's own requests
    options: Mapping[str, str]
    topic: str
    group: str

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def properties(self) -> dict[str, str]:
        return {key.removeprefix("kafka."): value for key, value in self.options.items()}


Attempt = Callable[[Place], None]


def member(**more: str) -> Attempt:
    """Return an attempt that joins, plans and finishes a batch of all records, and waits for its commit."""

    def attempt(place: Place) -> None:
        given = {**place.options, "kafka.group.id": place.group}
        topics = {} if "subscribePattern" in more or "assign" in more else {"subscribe": place.topic}
        given |= topics | {key.replace("__", "."): value.format(topic=place.topic) for key, value in more.items()}
        with memberships() as join:
            one = join(given)

            def is_committed() -> bool:
                one.check()
                return committed(place.servers, place.group, place.topic, [0]) == {0: RECORDS}

            one.finish(plan(one, RECORDS, timeout_s=40))
            wait_for(is_committed, "the batch is committed", timeout_s=40)

    return attempt


def assigned_alone(place: Place) -> None:
    """Wait until a stream without a group knows where its partitions start."""
    with memberships() as join:
        plan(join({**place.options, "assign": f'{{"{place.topic}":[0]}}'}), RECORDS, timeout_s=40)


def reader(place: Place) -> None:
    options = ReadOptions(columns=("value",), fail_on_data_loss=True, timeout_s=30)
    wanted = {place.tp: OffsetRange.checked(0, RECORDS)}
    found = read_ranges(reader_config(place.properties, place.group), wanted, options)
    assert sum(batch.num_rows for batch in found) == RECORDS


def skip_marker(place: Place) -> None:
    with closing(SkipStore(place.properties, group_id=place.group, query_id="q")) as store:
        store.write({place.tp: (SkipMarker(OffsetRange(Offset(0), Offset(5)), 0),)})
        assert store.read([place.tp])


def start_without_markers(place: Place) -> None:
    assert read_markers(lambda: SkipStore(place.properties, group_id=place.group, query_id="q"), [place.tp]) == {}


def batch(**more: str) -> Attempt:
    def attempt(place: Place) -> None:
        settings = parse_batch({**place.options, "subscribe": place.topic, **more, **grouped(place, more)})
        with closing(planning.open_lookup(settings)) as lookup:
            planning.plan(settings, lookup)
        reader(place)

    def grouped(place: Place, given: Mapping[str, str]) -> dict[str, str]:
        return {"kafka.group.id": place.group} if "startingOffsets" in given else {}

    return attempt


def sink(place: Place) -> None:
    settings = parse_write_options({**place.options, "topic": place.topic})
    with closing(open_producer(producer_config(settings.properties))) as producer:
        producer.send(record_rows(pa.record_batch({"value": pa.array(["a"])}), RecordColumns(value=0), place.topic))
        producer.flush()


def sink_exactly_once(place: Place) -> None:
    name = place.group
    settings = parse_write_options({**place.options, "topic": place.topic, "delivery": "exactly-once"})
    rows = record_rows(pa.record_batch({"value": pa.array(["a"])}), RecordColumns(value=0), place.topic)
    with BatchTransactions(settings, name) as transactions:
        assert not transactions.was_decided(0)
        slot, _ = transactions.free_slot(0, 0)
        transactional = {"transactional.id": transactions.transactional_id(0, slot)}
        with closing(open_producer({**producer_config(settings.properties), **transactional})) as producer:
            producer.begin_transaction()
            opened = transactions.opened(0, slot)
            producer.send(rows)
            producer.flush()
    message = TaskMessage(rows=1, name=name, topics=(place.topic,), transaction=opened, digest=digest_of(rows))
    with BatchTransactions(settings, name) as transactions:
        transactions.commit([message], 0)


@dataclass(frozen=True)
class Case:
    """A row of the page: the rights, and for each right the text of the error if it is missing."""

    name: str
    attempt: Attempt
    rights: Mapping[Right, str]


ON_TOPIC = Right(READ, TOPIC, "{topic}")
ON_GROUP = Right(READ, GROUP, "{group}")
IN_TRANSACTIONS = Right(WRITE, TRANSACTION, "kafka-group-{group}-*")
MAY_NOT_READ = r"{topic}.*READ.*on the topic"
MAY_NOT_JOIN = r"'{group}'.*READ on that group"
MAY_NOT_COMMIT = r"WRITE.*transactional ids that begin with 'kafka-group-{group}-'"
A_WARNING = "No error: see below."
MEMBER = {ON_GROUP: MAY_NOT_JOIN, ON_TOPIC: MAY_NOT_READ}

CASES = [
    Case("member", member(kafka__group__protocol="consumer"), {**MEMBER, IN_TRANSACTIONS: MAY_NOT_COMMIT}),
    Case("plain", member(kafka__group__protocol="classic", commitMode="plain"), MEMBER),
    Case(
        "pattern",
        member(subscribePattern="{topic}.*", commitMode="plain"),
        {ON_GROUP: MAY_NOT_JOIN, ON_TOPIC: A_WARNING},
    ),
    Case("assign", member(assign='{{"{topic}":[0]}}', commitMode="plain"), MEMBER),
    Case("assign-alone", assigned_alone, {ON_TOPIC: MAY_NOT_READ}),
    Case("reader", reader, {ON_TOPIC: r"{topic}.*Read and Describe the topic"}),
    Case(
        "marker",
        skip_marker,
        {ON_TOPIC: MAY_NOT_READ, Right(READ, GROUP, "{group}-skips-*"): r"'{group}-skips-q-[a-z]+'.*READ"},
    ),
    Case(
        "start-without-markers",
        start_without_markers,
        {
            Right(DESCRIBE, TOPIC, "{topic}"): A_WARNING,
            Right(DESCRIBE, GROUP, "{group}-skips-*"): r"'{group}-skips-q-[a-z]+'",
        },
    ),
    Case("batch", batch(), {ON_TOPIC: MAY_NOT_READ}),
    Case(
        "batch-committed",
        batch(startingOffsets="committed"),
        {ON_TOPIC: MAY_NOT_READ, Right(DESCRIBE, GROUP, "{group}"): r"'{group}'.*(READ|DESCRIBE)"},
    ),
    Case("sink", sink, {Right(WRITE, TOPIC, "{topic}"): r"{topic}.*WRITE"}),
    Case(
        "sink-exactly-once",
        sink_exactly_once,
        {
            Right(WRITE, TOPIC, "{topic}"): r"{topic}.*WRITE",
            ON_TOPIC: r"READ on the topic '{topic}'",
            Right(
                WRITE, TRANSACTION, "kafka-group-sink-*"
            ): r"WRITE.*transactional ids that begin with 'kafka-group-sink-'",
            Right(READ, GROUP, "kafka-group-sink-*"): r"'kafka-group-sink-{group}'.*READ on that group",
        },
    ),
]


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalKafka]:
    """Yield a broker with users and an authorizer that allows nothing.  Clients without a login may do everything."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with LocalKafka(
        sasl_users=dict.fromkeys(USERS, PASSWORD),
        properties={"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"},
    ) as cluster:
        cluster.create_topic("warm-up", 1)
        wait_for(lambda: answers(cluster), "there are coordinators", timeout_s=30)
        yield cluster


def answers(cluster: LocalKafka) -> bool:
    return committed(cluster.bootstrap_servers, "warm-up", "warm-up", [0]) == {0: -1001}


_NUMBERS = itertools.count()

Make = Callable[[Sequence[Right]], Place]


@pytest.fixture
def user(guarded: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that prepares a user with rights, and a new topic and group for it."""
    monkeypatch.setattr(range_reader, "REFUSAL_PATIENCE_S", 1.0)
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap_servers})

    def make(rights: Sequence[Right]) -> Place:
        number = next(_NUMBERS)
        name, names = USERS[number], {"topic": f"topic-{number}-of", "group": f"group-{number}-of"}
        guarded.create_topic(names["topic"], 1)
        produce(guarded.bootstrap_servers, names["topic"], {0: RECORDS})
        bindings = [right.binding(name, names) for right in rights]
        if bindings:
            for answer in admin.create_acls(bindings).values():
                answer.result(30)
        # None matches any name; the type stubs lack this.
        anything = AclBindingFilter(
            *(ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{name}", None),  # type: ignore[arg-type]
            *(AclOperation.ANY, AclPermissionType.ANY),
        )
        # The broker applies the rights a moment later.
        wait_for(lambda: len(admin.describe_acls(anything).result(30)) == len(bindings), "the rights are there")
        options = {
            "kafka.bootstrap.servers": guarded.secured_bootstrap_servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": name,
            "kafka.sasl.password": PASSWORD,
        }
        return Place(guarded.bootstrap_servers, options, **names)

    return make


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_with_just_these_rights_it_works(user: Make, case: Case) -> None:
    case.attempt(user([*case.rights]))


MISSING = [(case, right) for case in CASES for right, text in case.rights.items() if text != A_WARNING]


@pytest.mark.parametrize(
    ("case", "right"), MISSING, ids=[f"{c.name}-{r.operation.name}-{r.kind.name}" for c, r in MISSING]
)
def test_each_missing_right_is_named(user: Make, case: Case, right: Right) -> None:
    place = user([other for other in case.rights if other is not right])
    with pytest.raises(KafkaGroupError) as problem:
        case.attempt(place)
    said = str(problem.value)
    assert PASSWORD not in said
    assert re.search(case.rights[right].format(topic=place.topic, group=place.group), said, re.DOTALL), said


def test_a_topic_that_matches_and_may_not_be_read_is_a_warning(user: Make, caplog: pytest.LogCaptureFixture) -> None:
    place = user([ON_GROUP])
    given = {**place.options, "kafka.group.id": place.group, "subscribePattern": f"{place.topic}.*"}
    with memberships() as join:
        assert not join(given).has_topics
        assert re.search(f"'{place.topic}.*the right READ on it", caplog.text)


@pytest.mark.parametrize("chosen", [{"subscribe": "{topic}"}, {"subscribePattern": "{topic}.*"}], ids=str)
def test_a_topic_that_only_the_checkpoint_names_needs_no_right(
    guarded: LocalKafka, user: Make, caplog: pytest.LogCaptureFixture, chosen: Mapping[str, str]
) -> None:
    """Regression: the query asked for skip markers of all topics it had ever read.

    After a clean-up of a topic's rights, or of the topic with its rights, no start with the checkpoint succeeded.
    """
    place = user([ON_TOPIC, Right(READ, GROUP, "{group}*")])
    former = f"{place.topic}-formerly"
    guarded.create_topic(former, 1)
    with closing(connect({"bootstrap.servers": place.servers}, client_id="test")) as cluster:
        ids = {name: topic.topic_id for name, topic in cluster.topics([place.topic, former]).items()}
    read = OffsetRange(Offset(0), Offset(5))
    entries = {TopicPartition(name, 0): PartitionEntry(read, None, ids[name], "1f0c") for name in ids}
    given = {**place.options, "kafka.group.id": place.group, "onOffsetRewind": "checkpoint", "commitMode": "plain"}
    given |= {name: value.format(topic=place.topic) for name, value in chosen.items()}
    with memberships() as join:
        one = join(given, "q", BatchOffset("q", entries))
        assert plan(one, RECORDS, timeout_s=40).ranges() == {place.tp: OffsetRange(Offset(5), Offset(RECORDS))}
    assert f"ranges of {former} to other queries is not known" in caplog.text


def test_a_bookmark_needs_what_a_member_needs(user: Make, spark: SparkSession) -> None:
    def attempt(place: Place) -> None:
        with Bookmark(spark, {**place.options, "kafka.group.id": place.group, "subscribe": place.topic}) as new:
            assert new.records.count() == RECORDS

    attempt(user([ON_GROUP, ON_TOPIC]))
    without_group = user([ON_TOPIC])
    with pytest.raises(AuthenticationError, match=f"'{without_group.group}'.*READ on that group"):
        attempt(without_group)
