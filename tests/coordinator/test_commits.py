"""Commits are sent and retried in time, carry the member's current identity, and have their own thread."""

from __future__ import annotations

import queue
from collections.abc import Collection, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset
from pyspark_kafka_group.cluster.committer import CommitRefusedError, OffsetsToCommit
from pyspark_kafka_group.coordinator.commits import Commits, Found
from pyspark_kafka_group.coordinator.handover.inputs import CommitAnswered, Retry
from pyspark_kafka_group.coordinator.handover.outputs import Commit
from pyspark_kafka_group.coordinator.member import Callbacks, FixedMember
from pyspark_kafka_group.coordinator.rebalances import Rebalances
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.coordinator.start_requests import StartRequests
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import AuthenticationError, OffsetFormatError, OptionError
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from tests.coordinator.fakes import FakeLoop
from tests.coordinator.machine import LEADER, POLICY, A, B, note, to_commit

PATIENCE_S = 10.0
DECIDED = Commit({A: to_commit(1, 5, note(since=0)), B: to_commit(1, 7, note(since=2), leader=None)}, after_batch=1)
OFFSETS = {A: (5, LEADER, note(since=0).encode()), B: (7, None, note(since=2).encode())}


class FakeCommitter:
    """Records each commit, and raises ``problem`` if the test has set it."""

    def __init__(self) -> None:
        self.committed: list[tuple[OffsetsToCommit, bytes]] = []
        self.calls: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.problem: Exception | None = None

    def commit(self, offsets: OffsetsToCommit, group_metadata: bytes) -> None:
        self.committed.append((offsets, group_metadata))
        if self.problem is not None:
            raise self.problem

    def prepare(self) -> None:
        self.calls.put("prepare")

    def serve(self) -> None:
        self.calls.put("serve")

    def close(self) -> None:
        self.calls.put("close")


class FakeMember:
    """Returns the group metadata that the test has chosen."""

    def __init__(self, metadata: bytes = b"group\0m1\0generation") -> None:
        self.metadata = metadata

    def group_metadata(self) -> bytes:
        return self.metadata


MADE: list[Commits] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class KeptAnswers(Commits):
    """Commits that keep what they hear, and do not act on it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self.offsets: queue.SimpleQueue[Found | OffsetFormatError | None] = queue.SimpleQueue()

    def answered(self, problem: Exception | None) -> None:
        self.answers.put(problem)

    def found(self, found: Found | OffsetFormatError | None) -> None:
        self.offsets.put(found)


class Sending:
    def __init__(self, mode: CommitMode, **changes: Any) -> None:
        settings = GroupSettings(
            properties={"bootstrap.servers": "127.0.0.1:1"},
            group_id="group",
            topics=("t",),
            commit_mode=mode,
            drain_timeout_s=1.0,
            read_committed=True,
            start=POLICY,
        )
        self.settings = settings = replace(settings, **changes)
        self.clock = Clock()
        self.loop = FakeLoop()
        self.member = FakeMember()
        self.rebalances = SimpleNamespace(member=self.member, member_id="m1")
        self.commits = KeptAnswers(
            settings,
            query_id="q",
            client_id="c",
            loop=self.loop,
            rebalances=cast(Rebalances, self.rebalances),
            start_requests=cast(StartRequests, None),
            clock=self.clock,
        )
        MADE.append(self.commits)

    def send(self, member_id: str = "m1") -> Exception | None:
        self.rebalances.member_id = member_id
        self.commits.take(DECIDED)
        self.commits.send_due()
        return self.commits.answers.get(timeout=PATIENCE_S)


COMMITS = "pyspark_kafka_group.coordinator.commits"


@pytest.fixture
def committer(monkeypatch: pytest.MonkeyPatch) -> FakeCommitter:
    fake = FakeCommitter()

    def made(*_: Any, **__: Any) -> FakeCommitter:
        return fake

    monkeypatch.setattr(f"{COMMITS}.TransactionalCommitter", made)
    monkeypatch.setattr(f"{COMMITS}.connect", lambda *_, **__: None)
    monkeypatch.setattr(f"{COMMITS}.PlainCommitter", made)
    return fake


MODES = pytest.mark.parametrize("mode", CommitMode, ids=lambda mode: mode.value)


@MODES
def test_commit_carries_offsets_leader_epochs_and_notes_and_the_identity_of_the_moment(
    mode: CommitMode, committer: FakeCommitter
) -> None:
    assert Sending(mode).send() is None
    assert committer.committed == [(OFFSETS, b"group\0m1\0generation")]


@MODES
@pytest.mark.parametrize(
    ("member_id", "metadata"),
    [("", b"group\0\0generation"), ("", b"group\0m1\0generation"), ("m1", b"group\0m2\0generation")],
    ids=["without an id", "not joined yet", "with another id"],
)
def test_member_that_has_lost_its_place_sends_nothing_and_is_evicted(
    mode: CommitMode, member_id: str, metadata: bytes, committer: FakeCommitter
) -> None:
    """A broker does not fence the commit of a member without an id."""
    sending = Sending(mode)
    sending.member.metadata = metadata
    refused = sending.send(member_id)
    assert isinstance(refused, CommitRefusedError)
    assert refused.evicted
    assert committer.committed == []


@MODES
@pytest.mark.parametrize(
    "problem",
    [
        CommitRefusedError("ILLEGAL_GENERATION", "late"),
        AuthenticationError("not allowed"),
        pytest.param(OSError("odd"), marks=pytest.mark.logs_errors("a commit failed unexpectedly")),
    ],
)
def test_what_was_wrong_is_told(mode: CommitMode, problem: Exception, committer: FakeCommitter) -> None:
    committer.problem = problem
    assert Sending(mode).send() is problem


@MODES
def test_committer_gets_ready_is_served_and_closed_on_its_own_thread(
    mode: CommitMode, committer: FakeCommitter
) -> None:
    commits = Sending(mode).commits
    commits.prepare()
    commits.serve()
    commits.close()
    assert [committer.calls.get(timeout=PATIENCE_S) for _ in range(3)] == ["prepare", "serve", "close"]


def without_a_member(monkeypatch: pytest.MonkeyPatch, requests: FakeRequests) -> Sending:
    """Return commits with ``assign`` that send their requests to ``requests``."""
    monkeypatch.setattr(f"{COMMITS}.connect", lambda *_, **__: requests)
    sending = Sending(CommitMode.PLAIN, partitions=(A, B))
    sending.member.metadata = FixedMember(sending.settings, callbacks=cast(Callbacks, None)).group_metadata()
    return sending


class FakeRequests:
    """Accepts every commit, and returns the committed offsets that the test has chosen."""

    def __init__(self) -> None:
        self.offsets = {A: stored(5, note("q")), B: stored(7, note("q"))}
        self.failed: dict[TopicPartition, str] = {}
        self.committers: list[tuple[str, int]] = []

    def commit(self, group_id: str, member_id: str, generation: int, *_: Any, **__: Any) -> dict[TopicPartition, str]:
        self.committers.append((member_id, generation))
        return {}

    def committed(self, group_id: str, partitions: Collection[TopicPartition], **_: Any) -> Answers[CommittedOffset]:
        return Answers({tp: self.offsets[tp] for tp in partitions if tp in self.offsets}, self.failed)

    def close(self) -> None:
        pass


def stored(offset: int, by: CommitNote | None) -> CommittedOffset:
    return CommittedOffset(Offset(offset), None, "" if by is None else by.encode())


def test_given_partitions_are_committed_without_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = FakeRequests()
    sending = without_a_member(monkeypatch, requests)
    assert sending.send(member_id="") is None
    assert requests.committers == [("", -1)]


def test_offsets_that_nobody_knows_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = FakeRequests()
    requests.failed = {A: "NOT_COORDINATOR"}
    sending = without_a_member(monkeypatch, requests)
    sending.commits.read_back((A, B))
    assert sending.commits.offsets.get(timeout=PATIENCE_S) is None


def test_a_note_of_a_newer_version_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it was hidden at level DEBUG, and the query asked for ever."""
    requests = FakeRequests()
    requests.offsets[A] = CommittedOffset(Offset(5), None, '{"v": 9, "q": "another", "l": "1f0c"}')
    sending = without_a_member(monkeypatch, requests)
    sending.commits.read_back((A, B))
    found = sending.commits.offsets.get(timeout=PATIENCE_S)
    assert isinstance(found, OffsetFormatError)
    assert "Use that version here, too." in str(found)


def test_committed_offsets_are_read_back_with_their_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = FakeRequests()
    del requests.offsets[B]
    sending = without_a_member(monkeypatch, requests)
    sending.commits.read_back((A, B))
    assert sending.commits.offsets.get(timeout=PATIENCE_S) == {A: GroupOffset(Offset(5), note("q")), B: None}


def test_nothing_is_committed_where_no_group_keeps_the_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{COMMITS}.connect", lambda *_, **__: pytest.fail("it was opened"))
    sending = Sending(CommitMode.PLAIN, partitions=(A, B), commits=False)
    assert sending.send(member_id="") is None
    sending.commits.prepare()
    sending.commits.serve()


@pytest.mark.parametrize("partitions", [(), (A,)], ids=["subscribe", "assign"])
def test_plain_commits_never_go_through_librdkafka(partitions: tuple[TopicPartition, ...]) -> None:
    """Regression: librdkafka could not answer while a hand-over waited for the commit, for all of drainTimeoutMs."""
    unsupported = {"bootstrap.servers": "a:1", "ssl.curves.list": "x"}
    with pytest.raises(OptionError, match=r"Option 'kafka\.ssl\.curves\.list'.*own connections"):
        Sending(CommitMode.PLAIN, partitions=partitions, properties=unsupported)


# ------------------------------------------------------------------------------ held back

SMALL = Commit({A: to_commit(1, 5, note())}, after_batch=1)
LARGE = Commit({TopicPartition("t", n): to_commit(1, 5, note()) for n in range(1001)}, after_batch=1)
HUGE = Commit({TopicPartition("t", n): to_commit(1, 5, note()) for n in range(20_000)}, after_batch=1)


@pytest.fixture
def sending(committer: FakeCommitter) -> Sending:
    return Sending(CommitMode.TRANSACTION)


def test_commit_is_sent_once(sending: Sending, committer: FakeCommitter) -> None:
    sending.commits.send_due()
    assert sending.commits.delayed_s == 0.0
    assert sending.send() is None
    sending.commits.send_due()
    sending.commits.close()
    assert committer.calls.get(timeout=PATIENCE_S) == "close"
    assert len(committer.committed) == 1


def test_small_commit_is_not_held_back(sending: Sending) -> None:
    sending.commits.take(SMALL)
    sending.commits.delay()
    assert sending.commits.delayed_s <= 0


@pytest.mark.parametrize(("commit", "pause_s"), [(LARGE, 0.02002), (HUGE, 0.2)])
def test_large_commit_that_a_command_decides_is_held_back_while_spark_plans(
    sending: Sending, commit: Commit, pause_s: float
) -> None:
    commits = sending.commits
    commits.take(commit)
    commits.delay()
    assert commits.delayed_s == pytest.approx(pause_s, rel=1e-3)
    commits.send_due()
    assert commits.delayed_s > 0
    sending.clock.now += pause_s / 2
    commits.delay()
    assert commits.delayed_s == pytest.approx(pause_s / 2, rel=1e-3), "the next command does not prolong it"
    sending.clock.now += 1
    assert commits.delayed_s <= 0
    commits.send_due()
    assert commits.answers.get(timeout=PATIENCE_S) is None


def test_large_commit_that_no_caller_waits_for_is_not_held_back(sending: Sending) -> None:
    sending.commits.take(LARGE)
    assert sending.commits.delayed_s <= 0


def test_what_was_sent_is_not_held_back_any_more(sending: Sending) -> None:
    sending.commits.take(LARGE)
    sending.commits.send_due()
    sending.commits.delay()
    assert sending.commits.delayed_s == 0.0


# ------------------------------------------------------------------------------ retries


def pauses(sending: Sending, count: int) -> list[float]:
    """Return the lengths of ``count`` pauses in a row."""
    found = []
    for _ in range(count):
        sending.commits.retry_later()
        found.append(round(sending.commits.until_retry_s(60.0), 6))
        sending.clock.now += found[-1]
        sending.commits.retry_due()
    assert sending.loop.fed == [Retry()] * count
    sending.loop.fed.clear()
    return found


def test_no_retry_is_due_before_a_failure(sending: Sending) -> None:
    sending.commits.retry_due()
    assert sending.loop.fed == []
    assert sending.commits.until_retry_s(0.05) == 0.05


def test_retry_is_due_once_when_its_pause_is_over(sending: Sending) -> None:
    sending.commits.retry_later()
    sending.commits.retry_due()
    assert sending.loop.fed == []
    sending.clock.now += 1
    sending.commits.retry_due()
    sending.commits.retry_due()
    assert sending.loop.fed == [Retry()]


def test_pauses_grow_up_to_a_second(sending: Sending) -> None:
    assert pauses(sending, 7) == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_pause_after_a_success_is_short_again(sending: Sending) -> None:
    pauses(sending, 3)
    Commits.answered(sending.commits, None)
    assert sending.loop.fed == [CommitAnswered(None, False)]
    sending.loop.fed.clear()
    assert pauses(sending, 1) == [0.05]


def test_wait_ends_when_a_retry_is_due_and_is_never_negative(sending: Sending) -> None:
    sending.commits.retry_later()
    assert sending.commits.until_retry_s(0.01) == 0.01
    assert sending.commits.until_retry_s(60.0) == pytest.approx(0.05)
    sending.clock.now += 1
    assert sending.commits.until_retry_s(60.0) == 0.0
