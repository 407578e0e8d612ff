"""The member handles librdkafka's callbacks and errors; ``test_membership`` tests the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import confluent_kafka
import pytest

from pyspark_kafka_group.coordinator import member
from pyspark_kafka_group.coordinator.member import Callbacks, Member
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, MemberFencedError, NotUpgradedError
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.wire import deadline
from pyspark_kafka_group.wire.login.token_cache import PROVIDER


class StubConsumer:
    """Answers no request, and records each one."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.asked: list[str] = []
        self.pending: list[Callable[[], None]] = []
        self.subscribed: list[list[str]] = []
        self.has_stopped = False

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[Any]], None]) -> None:
        self.callbacks = callbacks
        self.subscribed.append(topics)
        if self.has_stopped:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._FATAL))

    def poll(self, timeout: float) -> None:
        while self.pending:
            self.pending.pop(0)()

    def memberid(self) -> str:
        return "member"

    def consumer_group_metadata(self) -> bytes:
        return b""

    def incremental_assign(self, partitions: list[Any]) -> None:
        self.asked.append("assign")

    incremental_unassign = incremental_assign

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked.append(f"metadata of {topic}")
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT))


GROUP_ID_NOT_FOUND = confluent_kafka.KafkaError.GROUP_ID_NOT_FOUND


def settings(protocol: str, **properties: str) -> GroupSettings:
    return GroupSettings(
        properties={"group.protocol": protocol, **properties},
        group_id="g",
        topics=("t",),
        commit_mode=CommitMode.TRANSACTION,
        drain_timeout_s=1.0,
        read_committed=True,
        start=StartPolicy(group_id="g", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True),
    )


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Member, Any]]:
    """Return a factory of members, each with its stub."""

    def made(protocol: str = "classic", **properties: str) -> tuple[Member, Any]:
        stubs: list[StubConsumer] = []

        def consumer(config: dict[str, Any]) -> StubConsumer:
            stubs.append(StubConsumer(config))
            return stubs[-1]

        monkeypatch.setattr(confluent_kafka, "Consumer", consumer)
        ignored = Callbacks(assigned=lambda _: None, revoked=lambda _: None, lost=lambda _: None)
        return Member(settings(protocol, **properties), client_id="c", callbacks=ignored), stubs[0]

    return made


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_after_each_rebalance_a_classic_member_may_join_again_at_once(
    protocol: str, callback: str, make: Callable[[str], tuple[Member, Any]]
) -> None:
    """librdkafka would wait up to a second before it joins.  The answer to a metadata request ends that wait."""
    member, consumer = make(protocol)
    member.subscribe(["t"])
    consumer.pending.append(lambda: consumer.callbacks[callback](consumer, []))
    for _ in range(3):
        member.poll()
    assert consumer.asked == ["assign", *(["metadata of t"] if protocol == "classic" else [])]


@pytest.mark.parametrize("first", ["50", "900", "soon"])
def test_the_longest_pause_before_a_retry_is_shorter_than_that_between_two_questions(
    first: str, make: Callable[..., tuple[Member, Any]]
) -> None:
    """Whatever the user writes as the first pause, librdkafka judges it: there is no error of Python's."""
    _, consumer = make("consumer", **{"retry.backoff.ms": first, "retry.backoff.max.ms": "900"})

    assert (consumer.config["retry.backoff.ms"], consumer.config["retry.backoff.max.ms"]) == (first, "125")


@pytest.mark.parametrize(("protocol", "times"), [("classic", 1), ("consumer", 5)])
def test_a_member_of_kip_848_asks_more_often_than_the_broker_demands(
    protocol: str, times: int, make: Callable[..., tuple[Member, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: with the brokers' defaults, a partition stood still for up to 5 s after its owner had released it."""
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: now.s))
    member, consumer = make(protocol, **{"heartbeat.interval.ms": "400"})
    assert consumer.config.get("heartbeat.interval.ms") == ("400" if protocol == "classic" else None)
    member.subscribe(["t", "u"])
    for _ in range(3):
        member.poll()
    assert consumer.subscribed == [["t", "u"]], "it is not in the group yet"
    consumer.pending.append(lambda: consumer.callbacks["on_assign"](consumer, []))
    for _ in range(16):
        member.poll()
        now.s += 0.1
    assert consumer.subscribed == [["t", "u"]] * times
    consumer.has_stopped = True
    now.s += 1
    member.poll()


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
    """Regression: a query waited forever for its partitions, because a classic group had refused it.

    librdkafka's event has the name _FATAL, but its ``fatal()`` returns False.
    """
    member, consumer = make("consumer")
    code = getattr(confluent_kafka.KafkaError, name)
    event = SimpleNamespace(error=lambda: confluent_kafka.KafkaError(code, text))
    monkeypatch.setattr(consumer, "poll", lambda timeout: event)
    with pytest.raises(kind, match=words):
        member.poll()


@pytest.mark.parametrize("provider", [True, False])
def test_a_refused_login_is_final_only_without_a_token_provider(
    make: Callable[[str], tuple[Member, Any]], monkeypatch: pytest.MonkeyPatch, provider: bool
) -> None:
    """With a provider, librdkafka logs in with each new token.  Brokers refuse a second login within one second."""
    member, consumer = make("consumer")
    error = confluent_kafka.KafkaError(confluent_kafka.KafkaError._AUTHENTICATION, "Cannot change mechanism")
    monkeypatch.setattr(consumer, "poll", lambda timeout: SimpleNamespace(error=lambda: error))
    if provider:
        monkeypatch.setitem(member._config, PROVIDER, "shop.tokens:provider")
        member.poll()
    else:
        with pytest.raises(AuthenticationError):
            member.poll()


def unknown_group(monkeypatch: pytest.MonkeyPatch, consumer: Any) -> None:
    event = SimpleNamespace(
        error=lambda: confluent_kafka.KafkaError(GROUP_ID_NOT_FOUND, "Broker: The group id does not exist")
    )
    monkeypatch.setattr(consumer, "poll", lambda timeout: event)


def test_a_member_whose_group_is_gone_is_not_told_to_upgrade_it(
    make: Callable[[str], tuple[Member, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client cannot recover, so the query still ends."""
    member, consumer = make("consumer")
    member.subscribe(["t"])
    consumer.callbacks["on_assign"](consumer, [])
    unknown_group(monkeypatch, consumer)
    with pytest.raises(BrokerError, match="Start the query again"):
        member.poll()


def test_a_member_that_was_given_nothing_was_let_in_all_the_same(
    make: Callable[[str], tuple[Member, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: when its group vanished, the error told the user to upgrade the group."""
    member, consumer = make("consumer")
    member.subscribe(["t"])
    monkeypatch.setattr(Member, "generation", lambda _: 3)
    member.poll()
    monkeypatch.setattr(Member, "generation", lambda _: -1)
    unknown_group(monkeypatch, consumer)
    with pytest.raises(BrokerError, match="Start the query again"):
        member.poll()


def test_a_classic_member_whose_group_is_gone_joins_again(
    make: Callable[[str], tuple[Member, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    member, consumer = make("classic")
    unknown_group(monkeypatch, consumer)
    member.poll()


# ------------------------------------------------- a static member whose former process has crashed

UNRELEASED = confluent_kafka.KafkaError(
    confluent_kafka.KafkaError._FATAL,
    "Fatal error: Broker: The instance ID is still used by another member in the consumer group",
)


class Places:
    """A group that refuses a static member until its place is released, and the clients that have tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, released_after: int) -> None:
        self.made: list[StubConsumer] = []
        self.closed = 0
        monkeypatch.setattr(confluent_kafka, "Consumer", self._consumer)
        monkeypatch.setattr(member, "_RELEASE_PAUSE_S", 0.0)
        self._released_after = released_after
        ignored = Callbacks(assigned=lambda _: None, revoked=lambda _: None, lost=lambda _: None)
        given = replace(settings("consumer"), properties={"group.protocol": "consumer", "group.instance.id": "pod-0"})
        self.member = Member(replace(given, session_timeout_s=0.0), client_id="c", callbacks=ignored)
        self.member.subscribe(["t"])

    def _consumer(self, config: dict[str, Any]) -> StubConsumer:
        stub: Any = StubConsumer(config)
        self.made.append(stub)
        refused = SimpleNamespace(error=lambda: UNRELEASED) if len(self.made) <= self._released_after else None
        stub.poll = lambda timeout: refused
        stub.close = self._close
        return self.made[-1]

    def _close(self) -> None:
        self.closed += 1


def test_static_member_joins_again_until_the_session_of_its_crashed_process_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: under KIP-848 each restart failed, and the error advised another instance id."""
    places = Places(monkeypatch, released_after=3)
    for _ in range(10):
        places.member.poll()
    assert (len(places.made), places.closed) == (4, 3)
    assert all(hasattr(stub, "callbacks") for stub in places.made), "each has subscribed"


def test_static_member_that_waits_for_its_place_subscribes_later_to_what_matches_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: a topic that was created meanwhile ended a query with `subscribePattern`, and looked like a bug."""
    places = Places(monkeypatch, released_after=1)
    places.member.poll()
    refused, said = places.made[0], confluent_kafka.KafkaException(UNRELEASED)
    monkeypatch.setattr(refused, "subscribe", Mock(side_effect=said), raising=False)
    places.member.subscribe(["t", "u"])
    monkeypatch.setattr(StubConsumer, "subscribe", subscribe := Mock())
    places.member.poll()
    assert subscribe.call_args.args == (["t", "u"],)


def test_static_member_whose_place_is_not_released_in_time_names_both_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "_RELEASE_MARGIN_S", 0.0)
    places = Places(monkeypatch, released_after=100)
    with pytest.raises(MemberFencedError) as raised:
        places.member.poll()
    for words in ("has crashed and its session has not ended", "another process that runs", "with the same id"):
        assert words in str(raised.value)
    assert "id of its own" not in str(raised.value), "another id would lose the place"


def test_static_member_that_was_thrown_out_joins_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a query that was suspended past its session ended if its first request to join got no answer."""
    places = Places(monkeypatch, released_after=2)
    places.made[0].callbacks["on_assign"](places.made[0], [])
    places.made[0].callbacks["on_lost"](places.made[0], [])
    for _ in range(5):
        places.member.poll()
    assert len(places.made) == 3


def test_static_member_that_was_let_in_before_does_not_wait_for_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has taken its place."""
    places = Places(monkeypatch, released_after=1)
    places.made[0].callbacks["on_assign"](places.made[0], [])
    with pytest.raises(MemberFencedError):
        places.member.poll()
