"""Commits go out under the identity of the moment, on a thread of their own where that can be."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from pyspark_kafka_group.coordinator.commits import Commits
from pyspark_kafka_group.coordinator.fixed_member import FixedMember
from pyspark_kafka_group.coordinator.handover.outputs import Commit
from pyspark_kafka_group.coordinator.member import Callbacks, Member
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.cluster import assigned_committer
from pyspark_kafka_group.offsets.cluster.committer import CommitRefusedError, OffsetsToCommit
from pyspark_kafka_group.offsets.cluster.group_identity import group_identity
from pyspark_kafka_group.offsets.errors import AuthenticationError
from tests.coordinator.machine import LEADER, POLICY, A, B, note, to_commit

PATIENCE_S = 10.0
DECIDED = Commit({A: to_commit(1, 5, note(since=0)), B: to_commit(1, 7, note(since=2), leader=None)}, after_batch=1)
OFFSETS = {A: (5, LEADER, note(since=0).encode()), B: (7, None, note(since=2).encode())}


class FakeCommitter:
    """Notes what it is to commit, and fails if it is to."""

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
    """Commits by itself, as for clusters that only librdkafka can reach."""

    def __init__(self, metadata: bytes = b"group\0m1\0generation") -> None:
        self.metadata = metadata
        self.committed: list[OffsetsToCommit] = []

    def group_metadata(self) -> bytes:
        return self.metadata

    def commit(self, offsets: OffsetsToCommit, answered: Callable[[Exception | None], None]) -> None:
        self.committed.append(offsets)
        answered(None)


MADE: list[Commits] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


class Sending:
    def __init__(self, mode: CommitMode, **changes: Any) -> None:
        self.answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
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
        self.commits = Commits(settings, query_id="q", client_id="c", answered=self.answers.put)
        MADE.append(self.commits)
        self.member = FakeMember()

    def send(self, member_id: str = "m1") -> Exception | None:
        self.commits.send(DECIDED, cast(Member, self.member), member_id)
        return self.answers.get(timeout=PATIENCE_S)


COMMITS = "pyspark_kafka_group.coordinator.commits"


@pytest.fixture
def committer(monkeypatch: pytest.MonkeyPatch) -> FakeCommitter:
    fake = FakeCommitter()

    def made(*_: Any, **__: Any) -> FakeCommitter:
        return fake

    monkeypatch.setattr(f"{COMMITS}.TransactionalCommitter", made)
    monkeypatch.setattr(f"{COMMITS}.open_plain_committer", made)
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


def test_member_commits_by_itself_where_only_librdkafka_reaches_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{COMMITS}.open_plain_committer", lambda *_, **__: None)
    sending = Sending(CommitMode.PLAIN)
    assert sending.send() is None
    assert sending.member.committed == [OFFSETS]
    sending.commits.prepare()
    sending.commits.serve()
    sending.commits.close()


def test_given_partitions_are_committed_without_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCommitter()
    monkeypatch.setattr(assigned_committer, "open_plain_committer", lambda *_, **__: fake)
    sending = Sending(CommitMode.PLAIN, partitions=(A, B))
    metadata = FixedMember(sending.settings, callbacks=cast(Callbacks, None)).group_metadata()
    sending.member.metadata = metadata
    assert sending.send(member_id="") is None
    assert fake.committed == [(OFFSETS, metadata)]
    assert group_identity(metadata) == (-1, "", None)


def test_nothing_is_committed_where_no_group_keeps_the_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned_committer, "open_plain_committer", lambda *_, **__: pytest.fail("it was opened"))
    sending = Sending(CommitMode.PLAIN, partitions=(A, B), start=replace(POLICY, keeps_offsets=False))
    assert sending.send(member_id="") is None
