"""What the member does around librdkafka's callbacks; the rest is in ``test_membership``."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from pyspark_kafka_group.coordinator.member import Callbacks, Member
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.cluster.committer import CommitRefusedError
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, NotUpgradedError
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition


class StubConsumer:
    """Answers nothing, and notes what it is asked."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.asked: list[str] = []
        self.pending: list[Callable[[], None]] = []
        self.committed: list[list[Any]] = []

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[Any]], None]) -> None:
        self.callbacks = callbacks

    def poll(self, timeout: float) -> None:
        while self.pending:
            self.pending.pop(0)()

    def memberid(self) -> str:
        return "member"

    def incremental_assign(self, partitions: list[Any]) -> None:
        self.asked.append("assign")

    incremental_unassign = incremental_assign

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        assert asynchronous
        self.committed.append(offsets)

    def answer(self, error: confluent_kafka.KafkaError | None, parts: list[Any]) -> None:
        """Let the next poll bring the answer to the oldest request."""
        self.pending.append(lambda: self.config["on_commit"](error, parts))

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked.append(f"metadata of {topic}")
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT))


GROUP_ID_NOT_FOUND = confluent_kafka.KafkaError.GROUP_ID_NOT_FOUND


def settings(protocol: str) -> GroupSettings:
    return GroupSettings(
        properties={"group.protocol": protocol},
        group_id="g",
        topics=("t",),
        commit_mode=CommitMode.TRANSACTION,
        drain_timeout_s=1.0,
        read_committed=True,
        start=StartPolicy(group_id="g", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True),
    )


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Member, Any]]:
    """Return a maker of members, each with its stub."""

    def made(protocol: str = "classic") -> tuple[Member, Any]:
        stubs: list[StubConsumer] = []

        def consumer(config: dict[str, Any]) -> StubConsumer:
            stubs.append(StubConsumer(config))
            return stubs[0]

        monkeypatch.setattr(confluent_kafka, "Consumer", consumer)
        ignored = Callbacks(assigned=lambda _: None, revoked=lambda _: None, lost=lambda _: None)
        return Member(settings(protocol), client_id="c", callbacks=ignored), stubs[0]

    return made


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_after_each_rebalance_a_classic_member_may_join_again_at_once(
    protocol: str, callback: str, make: Callable[[str], tuple[Member, Any]]
) -> None:
    """librdkafka would wait for up to a second; the answer to a metadata request lifts that."""
    member, consumer = make(protocol)
    member.subscribe(["t"])
    consumer.pending.append(lambda: consumer.callbacks[callback](consumer, []))
    for _ in range(3):
        member.poll()
    assert consumer.asked == ["assign", *(["metadata of t"] if protocol == "classic" else [])]


# ------------------------------------------------------------------------------ commits

MANY = {TopicPartition("t", n): (Offset(n), LeaderEpoch(4), "note") for n in range(2500)}


class Committing:
    """A member that commits many partitions, and what it was told."""

    def __init__(self, member: Member, consumer: Any) -> None:
        self.member, self.consumer = member, consumer
        self.answers: list[Exception | None] = []
        member.commit(MANY, self.answers.append)

    def answered(self, error: confluent_kafka.KafkaError | None = None, of_one: Any = None) -> None:
        parts = [SimpleNamespace(error=None), SimpleNamespace(error=of_one)]
        self.consumer.answer(error, parts)
        self.member.poll()


@pytest.fixture
def committing(make: Callable[[str], tuple[Member, Any]]) -> Committing:
    return Committing(*make("classic"))


def test_a_commit_is_answered_when_its_last_request_is(committing: Committing) -> None:
    for sent in (1, 2, 3):
        assert [len(request) for request in committing.consumer.committed] == [1000, 1000, 500][:sent]
        assert committing.answers == []
        committing.answered()
    assert committing.answers == [None]
    parts = [part for request in committing.consumer.committed for part in request]
    assert [(part.partition, part.offset, part.leader_epoch, part.metadata) for part in parts] == [
        (n, n, 4, "note") for n in range(2500)
    ]


def test_after_a_refused_request_the_others_are_not_sent(committing: Committing) -> None:
    committing.answered()
    committing.answered(confluent_kafka.KafkaError(confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS))
    assert len(committing.consumer.committed) == 2
    [problem] = committing.answers
    assert isinstance(problem, CommitRefusedError)
    assert str(problem).startswith("REBALANCE_IN_PROGRESS")


def test_a_single_partition_that_was_refused_refuses_the_commit(committing: Committing) -> None:
    committing.answered(of_one=confluent_kafka.KafkaError(confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID))
    [problem] = committing.answers
    assert isinstance(problem, CommitRefusedError)
    assert problem.evicted


def test_a_refusal_that_no_retry_can_help_is_told_as_such(committing: Committing) -> None:
    committing.answered(confluent_kafka.KafkaError(confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED))
    [problem] = committing.answers
    assert isinstance(problem, AuthenticationError)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_commit_that_came_after_the_group_was_forgotten_may_be_tried_again(
    make: Callable[[str], tuple[Member, Any]], protocol: str
) -> None:
    """Regression: it ended the query, which was told to upgrade.

    A group without members and offsets is forgotten, that of a process that was suspended, say; a classic member joins
    again.
    """
    committing = Committing(*make(protocol))
    committing.answered(confluent_kafka.KafkaError(GROUP_ID_NOT_FOUND, "Broker: The group id does not exist"))
    [problem] = committing.answers
    assert isinstance(problem, CommitRefusedError)


def test_a_commit_that_cannot_be_sent_is_answered_at_once(
    make: Callable[[str], tuple[Member, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    member, consumer = make("classic")

    def no_coordinator(**_: object) -> None:
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._WAIT_COORD))

    monkeypatch.setattr(consumer, "commit", no_coordinator)
    assert isinstance(Committing(member, consumer).answers[0], CommitRefusedError)


def test_an_answer_that_nobody_waits_for_is_ignored(committing: Committing) -> None:
    committing.answered(confluent_kafka.KafkaError(confluent_kafka.KafkaError.ILLEGAL_GENERATION))
    committing.answered()
    assert len(committing.answers) == 1


def test_an_offset_without_a_leader_epoch_is_committed_without_one(make: Callable[[str], tuple[Member, Any]]) -> None:
    """Regression: librdkafka takes only numbers, and every commit of a cluster that only it can reach failed."""
    member, consumer = make("classic")
    member.commit({TopicPartition("t", 0): (Offset(5), None, "note")}, lambda _: None)
    [[part]] = consumer.committed
    assert part.leader_epoch in (None, -1)


@pytest.mark.parametrize(
    ("name", "text", "kind", "words"),
    [
        (
            "_FATAL",
            "Fatal error: Broker: The group id does not exist: fatal error",
            NotUpgradedError,
            "Stop all members",
        ),
        (
            "GROUP_ID_NOT_FOUND",
            "Broker: The group id does not exist",
            NotUpgradedError,
            "kafka.group.protocol=consumer",
        ),
        ("_FATAL", "Fatal error: something else", BrokerError, "something else"),
    ],
)
def test_a_client_that_is_at_its_end_ends_the_query(
    make: Callable[[str], tuple[Member, Any]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    kind: type[Exception],
    words: str,
) -> None:
    """Regression: a query that a classic group did not let in waited for its partitions for ever.

    librdkafka's event is named _FATAL, and ``fatal()`` is false.
    """
    member, consumer = make("consumer")
    code = getattr(confluent_kafka.KafkaError, name)
    event = SimpleNamespace(error=lambda: confluent_kafka.KafkaError(code, text))
    monkeypatch.setattr(consumer, "poll", lambda timeout: event)
    with pytest.raises(kind, match=words):
        member.poll()


def unknown_group(monkeypatch: pytest.MonkeyPatch, consumer: Any) -> None:
    event = SimpleNamespace(
        error=lambda: confluent_kafka.KafkaError(GROUP_ID_NOT_FOUND, "Broker: The group id does not exist")
    )
    monkeypatch.setattr(consumer, "poll", lambda timeout: event)


def test_a_member_whose_group_is_gone_is_not_told_to_upgrade_it(
    make: Callable[[str], tuple[Member, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client is at its end all the same."""
    member, consumer = make("consumer")
    member.subscribe(["t"])
    consumer.callbacks["on_assign"](consumer, [])
    unknown_group(monkeypatch, consumer)
    with pytest.raises(BrokerError, match="Start the query again"):
        member.poll()


def test_a_classic_member_whose_group_is_gone_joins_again(
    make: Callable[[str], tuple[Member, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    member, consumer = make("classic")
    unknown_group(monkeypatch, consumer)
    member.poll()
