"""Transactions that librdkafka does not end."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from pyspark_kafka_group.cluster import committer
from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.committer import CommitRefusedError, TransactionalCommitter
from pyspark_kafka_group.cluster.properties import clients
from pyspark_kafka_group.offsets.errors import AuthenticationError, KafkaGroupError, MemberFencedError
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.wire import deadline
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login.token_cache import PROVIDER

OFFSETS = {TopicPartition("t", 0): (Offset(5), LeaderEpoch(3), "note")}


INIT_PRODUCER_ID, COORDINATOR_LOAD_IN_PROGRESS = 22, 14


class FakeProducer:
    """A fake producer.  With ``hangs``, it hangs in the commit of offsets."""

    def __init__(self, config: dict[str, object], *, hangs: bool) -> None:
        self.on_error = config["error_cb"]
        self.release = threading.Event()
        self.closed = threading.Event()
        self.committed = False
        self.knows_a_broker = False
        self.answers = iter([-1, 1])  # ids of the brokers that answer, a bootstrap server first
        self.sent: list[list[object]] = []
        self.config = config
        self.answer: Exception | None = None  # of the commit of offsets
        self.aborted = False
        self._hangs = hangs

    def list_topics(self, _topic: str, timeout: float) -> SimpleNamespace:
        broker = next(self.answers)
        self.knows_a_broker = broker >= 0
        return SimpleNamespace(orig_broker_id=broker)

    def init_transactions(self, _timeout: float) -> None:
        assert self.knows_a_broker, "it would take 0.5 s longer"

    def poll(self, _timeout: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(self, parts: list[object], *_: object) -> None:
        self.sent.append(parts)
        if self._hangs:
            self.release.wait(30)
        if self.answer is not None:
            raise self.answer

    def abort_transaction(self, _timeout: float) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed.set()

    def commit_transaction(self, _timeout: float) -> None:
        self.committed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeProducer]]:
    """Yield the producers that the committer makes.  The first one hangs."""
    made: list[FakeProducer] = []

    def make(config: dict[str, object]) -> FakeProducer:
        made.append(FakeProducer(config, hangs=not made))
        return made[-1]

    monkeypatch.setattr("confluent_kafka.Producer", make)
    monkeypatch.setattr(committer, "TRANSACTION_TIMEOUT_S", 0.1)
    monkeypatch.setattr(committer, "_HANG_S", 0.1)
    yield made
    for producer in made:
        producer.release.set()


@pytest.fixture
def transactions() -> Iterator[TransactionalCommitter]:
    committer = TransactionalCommitter({"bootstrap.servers": "127.0.0.1:1"}, group_id="g", query_id="q")
    yield committer
    committer.close()


def test_commit_that_hangs_is_given_up_and_the_next_one_has_a_producer_of_its_own(
    made: list[FakeProducer], transactions: TransactionalCommitter
) -> None:
    """Regression: after a restart of the only broker, the query never committed again."""
    with pytest.raises(CommitRefusedError, match="does not answer"):
        transactions.commit(OFFSETS, b"group")
    transactions.commit(OFFSETS, b"group")
    assert [producer.committed for producer in made] == [False, True]


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_failed_commits_leave_no_threads_and_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each failed commit left a producer with four threads and several files, for an hour or more."""
    monkeypatch.setattr(committer, "TRANSACTION_TIMEOUT_S", 1.0)
    gc.disable()  # the collector of a query that waits rarely runs
    try:
        with MockKafka() as kafka:
            mine = TransactionalCommitter({"bootstrap.servers": kafka.bootstrap_servers}, group_id="g", query_id="q")
            try:
                kafka.push_errors(INIT_PRODUCER_ID, *[COORDINATOR_LOAD_IN_PROGRESS] * 10_000)
                counts = []
                for _ in range(6):
                    with pytest.raises(CommitRefusedError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                        mine.commit(OFFSETS, b"")
                    counts.append((threads(), files()))
                until = Deadline.after(30)
                while (threads() > counts[0][0] or files() > counts[0][1]) and not until.passed:
                    time.sleep(0.05)
                assert threads() <= counts[0][0], counts
                assert files() <= counts[0][1], counts
            finally:
                mine.close()
    finally:
        gc.enable()


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    ("code", "text", "kept"),
    [
        (KafkaError._TRANSPORT, "b:9092/1: Disconnected (after 1115ms in state UP)", False),
        (KafkaError._TRANSPORT, "b:9092/1: Connect to b:9092 failed: refused (after 0ms in state CONNECT)", True),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", False),
        (KafkaError._TIMED_OUT_QUEUE, "b:9092/1: 1 request(s) timed out", True),
    ],
)
def test_producer_that_lost_a_connection_is_not_used_again(
    made: list[FakeProducer], transactions: TransactionalCommitter, code: int, text: str, kept: bool
) -> None:
    """A connection that could not be made has carried no request."""
    transactions.prepare()
    made[0].release.set()
    made[0].on_error(KafkaError(code, text))  # type: ignore[operator]  # the error callback of the configuration
    transactions.commit(OFFSETS, b"group")
    transactions.commit(OFFSETS, b"group")
    assert len(made) == (1 if kept else 2)


def test_transaction_of_many_partitions_is_sent_in_requests_that_the_coordinator_can_write(
    made: list[FakeProducer], transactions: TransactionalCommitter
) -> None:
    """Regression: a commit of 10,000 partitions was larger than max.message.bytes, so the broker always refused it."""
    transactions.prepare()
    made[0].release.set()
    many = {TopicPartition("t", number): (Offset(5), None, "note") for number in range(2500)}
    transactions.commit(many, b"group")
    assert [len(request) for request in made[0].sent] == [1000, 1000, 500]
    assert made[0].committed


def test_commit_carries_the_leader_epoch_where_it_is_known(
    made: list[FakeProducer], transactions: TransactionalCommitter
) -> None:
    """Kafka stores the epoch with the offset, so a reader can detect a later truncation (KIP-320)."""
    transactions.prepare()
    made[0].release.set()
    unknown: dict[TopicPartition, tuple[Offset, LeaderEpoch | None, str]] = {
        TopicPartition("t", 1): (Offset(6), None, "other")
    }
    transactions.commit({**OFFSETS, **unknown}, b"group")
    sent: list[KafkaPartition] = [part for request in made[0].sent for part in request]  # type: ignore[misc]
    assert [(part.partition, part.offset, part.leader_epoch, part.metadata) for part in sent] == [
        (0, 5, 3, "note"),
        (1, 6, None, "other"),
    ]


def answer(code: int, **flags: bool) -> KafkaException:
    return KafkaException(KafkaError(code, "as told", **flags))


@pytest.mark.parametrize(
    ("problem", "kept"),
    [
        (answer(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True), True),
        (answer(KafkaError.UNKNOWN_MEMBER_ID, txn_requires_abort=True), True),
        (answer(KafkaError.FENCED_INSTANCE_ID, txn_requires_abort=True), True),
        (answer(KafkaError._TIMED_OUT, txn_requires_abort=True), False),
        (answer(KafkaError._TRANSPORT, txn_requires_abort=True), False),
        (answer(KafkaError.REQUEST_TIMED_OUT, txn_requires_abort=True), False),
        (answer(KafkaError.UNKNOWN, txn_requires_abort=True), False),
        (answer(KafkaError.ILLEGAL_GENERATION, fatal=True), False),
    ],
    ids=lambda value: value.args[0].name() if isinstance(value, KafkaException) else "",
)
def test_producer_is_kept_only_after_a_refusal(
    made: list[FakeProducer], transactions: TransactionalCommitter, problem: KafkaException, kept: bool
) -> None:
    """Regression: a late request of a commit that had timed out became part of the next transaction."""
    transactions.prepare()
    made[0].release.set()
    made[0].answer = problem
    with pytest.raises(KafkaGroupError):
        transactions.commit(OFFSETS, b"group")
    made[0].answer = None
    transactions.commit(OFFSETS, b"group")
    assert (made[0].aborted, len(made)) == ((True, 1) if kept else (False, 2))


@pytest.mark.parametrize(
    ("facility", "text", "kept"),
    [
        ("GETPID", "[thrd:main]: Failed to acquire transactional PID: retrying", True),
        ("FAIL", "b:9092/1: Connect to ipv6#[::1]:9092 failed: Connection refused (after 0ms in state CONNECT)", True),
        ("FAIL", "b:9092/1: Disconnected: connection closed by peer (after 1115ms in state UP)", False),
        (
            "FAIL",
            "b:9092/1: 1 request(s) timed out: disconnect (after 5018ms in state UP, 1 identical error(s))",
            False,
        ),
        ("FAIL", "b:9092/1: something new", False),
    ],
)
def test_producer_whose_log_tells_of_a_broken_connection_is_not_used_again(
    made: list[FakeProducer], transactions: TransactionalCommitter, facility: str, text: str, kept: bool
) -> None:
    transactions.prepare()
    made[0].config["logger"].log(40, "%s [%s] %s", facility, "producer", text)  # type: ignore[attr-defined]
    transactions.prepare()
    assert len(made) == (1 if kept else 2)


def test_socket_timeout_of_the_user_does_not_concern_commits(made: list[FakeProducer]) -> None:
    """Regression: librdkafka refused any kafka.socket.timeout.ms above 10,100."""
    properties = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "30000"}
    committer = TransactionalCommitter(properties, group_id="g", query_id="q")
    committer.prepare()
    committer.close()
    assert made[0].config["socket.timeout.ms"] == 200


def test_a_commit_whose_instance_id_is_taken_is_refused_and_no_reason_to_end(
    made: list[FakeProducer], transactions: TransactionalCommitter
) -> None:
    """Regression: a static member was suspended past its session, and joined again.  Its commit ended the query."""
    transactions.prepare()
    made[0].release.set()
    made[0].answer = answer(KafkaError.FENCED_INSTANCE_ID, txn_requires_abort=True)
    with pytest.raises(CommitRefusedError) as refused:
        transactions.commit(OFFSETS, b"group")
    assert refused.value.evicted


FENCED = answer(KafkaError._FENCED, fatal=True)


@pytest.mark.parametrize(
    ("times_s", "takes_s", "last"),
    [
        ([0, 20, 50], 0.0, MemberFencedError),
        ([0, 20], 0.0, CommitRefusedError),  # a former run that had still a request on its way
        ([0, 20, 70], 0.0, CommitRefusedError),
        ([0, 20, 70, 75], 0.0, MemberFencedError),
        ([0, 20, 50], 0.2, CommitRefusedError),  # the coordinator has ended the transaction by its timeout
    ],
)
def test_another_run_is_told_by_three_fencings_within_a_minute(
    made: list[FakeProducer],
    transactions: TransactionalCommitter,
    monkeypatch: pytest.MonkeyPatch,
    times_s: list[float],
    takes_s: float,
    last: type[KafkaGroupError],
) -> None:
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(committer, "time", clock)
    monkeypatch.setattr(deadline, "time", clock)
    errors = []

    def fence(*_: object) -> None:
        nonlocal now
        now += takes_s
        raise FENCED

    for time_s in times_s:
        now = time_s
        transactions.prepare()
        made[-1].send_offsets_to_transaction = fence  # type: ignore[method-assign, assignment]
        with pytest.raises(KafkaGroupError) as raised:
            transactions.commit(OFFSETS, b"group")
        errors.append(type(raised.value))
    assert errors == [CommitRefusedError] * (len(times_s) - 1) + [last]


AMAZON = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
}


@pytest.mark.parametrize(
    ("more", "ends_with"),
    [
        ({}, AuthenticationError),
        ({PROVIDER: "shop.tokens:provider"}, CommitRefusedError),
        (AMAZON, CommitRefusedError),
    ],
)
def test_a_refused_login_ends_the_query_only_without_a_token_provider(
    made: list[FakeProducer], monkeypatch: pytest.MonkeyPatch, more: dict[str, str], ends_with: type[Exception]
) -> None:
    """With a provider, a broker may refuse the login with a new token, and accept the next connection.

    Regression: a refused login in Spark's words ended the query, because it names the provider only when translated.
    """
    monkeypatch.setattr(clients, "with_tokens", dict)
    monkeypatch.setenv("KAFKA_GROUP_ALLOW", "function:shop.tokens:provider")
    target = TransactionalCommitter(
        {"bootstrap.servers": "b-1.shop.kafka.eu-west-1.amazonaws.com:9098", **more}, group_id="g", query_id="q"
    )
    target.prepare()
    made[0].release.set()
    made[0].answer = answer(KafkaError._AUTHENTICATION, txn_requires_abort=True)
    with pytest.raises(ends_with):
        target.commit(OFFSETS, b"group")
    target.close()


@pytest.mark.parametrize("missing", [True, False])
def test_commit_that_takes_long_is_refused_only_if_a_topic_is_missing(
    made: list[FakeProducer], transactions: TransactionalCommitter, monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    """Regression: after one of two topics was deleted, the query committed the offsets of neither."""

    def look(*_: object, **__: object) -> frozenset[TopicPartition]:
        if not missing:
            made[0].release.set()
        return frozenset({TopicPartition("t", 0)} if missing else ())

    monkeypatch.setattr(committer, "TRANSACTION_TIMEOUT_S", 10.0)
    monkeypatch.setattr(committer, "_DOUBT_S", 0.01)
    monkeypatch.setattr(Cluster, "missing_partitions", look)
    if missing:
        with pytest.raises(CommitRefusedError, match="these topics, or partitions of them, do not exist: t") as refused:
            transactions.commit(OFFSETS, b"group")
        assert refused.value.missing == {TopicPartition("t", 0)}
    transactions.commit(OFFSETS, b"group")
    assert [producer.committed for producer in made] == ([False, True] if missing else [True])
