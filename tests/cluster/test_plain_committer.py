"""The content of a plain commit, and the reaction to its answers.  The tests of Cluster cover the requests."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pyspark_kafka_group.cluster import plain_committer
from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset
from pyspark_kafka_group.cluster.committer import CommitRefusedError, OffsetsToCommit
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_identity import GroupIdentity
from pyspark_kafka_group.cluster.plain_committer import PlainCommitter
from pyspark_kafka_group.cluster.request_errors import CommitUnclearError
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition

A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)
OFFSETS: OffsetsToCommit = {
    A: (Offset(5), LeaderEpoch(3), "note"),
    B: (Offset(6), None, "note"),
    C: (Offset(7), None, ""),
}


class FakeRequests:
    """A fake cluster that accepts a commit, refuses some partitions, or raises an error."""

    def __init__(self) -> None:
        self.refused: dict[TopicPartition, str] = {}
        self.problem: Exception | None = None
        self.sent: list[tuple[Any, ...]] = []
        self.closed = False
        self.answers: Answers[CommittedOffset] = Answers({}, {})

    def committed(self, *_: Any, **__: Any) -> Answers[CommittedOffset]:
        return self.answers

    def commit(self, *what: Any, timeout_s: float) -> dict[TopicPartition, str]:
        assert timeout_s > 0
        self.sent.append(what)
        if self.problem is not None:
            raise self.problem
        return self.refused

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the decoding of librdkafka's bytes, which other tests cover."""
    known = {b"group": GroupIdentity(4, "m-1", None), b"static": GroupIdentity(5, "m-2", "worker-1")}
    monkeypatch.setattr(plain_committer, "group_identity", known.__getitem__)


@pytest.fixture
def requests() -> FakeRequests:
    return FakeRequests()


@pytest.fixture
def plain(requests: FakeRequests) -> PlainCommitter:
    return PlainCommitter(cast(Cluster, requests), {}, group_id="etl")


def test_commit_is_that_of_the_member_and_generation_that_decided_it(
    plain: PlainCommitter, requests: FakeRequests
) -> None:
    plain.prepare()
    assert not requests.sent
    plain.commit(OFFSETS, b"group")
    plain.commit(OFFSETS, b"static")
    plain.serve()
    # The clients of librdkafka need the zero byte after the metadata.
    sent = {tp: (offset, epoch, f"{note}\0") for tp, (offset, epoch, note) in OFFSETS.items()}
    assert requests.sent == [("etl", "m-1", 4, None, sent), ("etl", "m-2", 5, "worker-1", sent)]


@pytest.mark.parametrize(
    "problem", [TryAgainError("nobody answers"), CommitUnclearError("no answer: some of it may be committed")]
)
def test_commit_whose_outcome_is_not_known_may_be_made_again(
    plain: PlainCommitter, requests: FakeRequests, problem: Exception
) -> None:
    requests.problem = problem
    with pytest.raises(CommitRefusedError, match=str(problem)) as refused:
        plain.commit(OFFSETS, b"group")
    assert (refused.value.evicted, refused.value.missing) == (False, frozenset())
    assert refused.value.unclear is isinstance(problem, CommitUnclearError), "it may arrive after the next one"


@pytest.mark.parametrize(
    ("name", "evicted"),
    [
        ("UNKNOWN_MEMBER_ID", True),
        ("FENCED_MEMBER_EPOCH", True),
        ("ILLEGAL_GENERATION", False),
        ("STALE_MEMBER_EPOCH", False),
        ("REBALANCE_IN_PROGRESS", False),
        ("COORDINATOR_NOT_AVAILABLE", False),
    ],
)
def test_refused_commit_says_whether_the_group_still_knows_the_member(
    plain: PlainCommitter, requests: FakeRequests, name: str, evicted: bool
) -> None:
    requests.refused = dict.fromkeys(OFFSETS, name)
    with pytest.raises(CommitRefusedError, match=f"{name}: commit of orders-0") as refused:
        plain.commit(OFFSETS, b"group")
    assert (refused.value.evicted, refused.value.missing) == (evicted, frozenset())


@pytest.mark.parametrize("name", ["UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"])
@pytest.mark.parametrize("others", [{}, {A: "REQUEST_TIMED_OUT"}], ids=["alone", "beside another problem"])
def test_topics_that_are_missing_are_named_so_that_the_others_can_be_committed(
    plain: PlainCommitter, requests: FakeRequests, name: str, others: dict[TopicPartition, str]
) -> None:
    requests.refused = {**others, C: name}
    with pytest.raises(CommitRefusedError) as refused:
        plain.commit(OFFSETS, b"group")
    assert refused.value.missing == {C}


@pytest.mark.parametrize("name", ["GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"])
def test_what_no_retry_cures_ends_the_query_also_where_it_concerns_one_partition(
    plain: PlainCommitter, requests: FakeRequests, name: str
) -> None:
    requests.refused = {A: "REBALANCE_IN_PROGRESS", C: name}
    with pytest.raises(AuthenticationError):
        plain.commit(OFFSETS, b"group")


def test_a_commit_whose_instance_id_is_taken_is_refused_and_no_reason_to_end(
    plain: PlainCommitter, requests: FakeRequests
) -> None:
    """Regression: a static member was suspended past its session, and joined again.  Its commit ended the query."""
    requests.refused = dict.fromkeys(OFFSETS, "FENCED_INSTANCE_ID")
    with pytest.raises(CommitRefusedError) as refused:
        plain.commit(OFFSETS, b"group")
    assert refused.value.evicted


def test_committed_offsets_are_read_back_all_or_none(plain: PlainCommitter, requests: FakeRequests) -> None:
    found = CommittedOffset(Offset(5), None, "note")
    requests.answers = Answers({A: found}, {})
    assert plain.committed((A, B)) == {A: found, B: None}
    requests.answers = Answers({A: found}, {B: "NOT_COORDINATOR"})
    with pytest.raises(TryAgainError, match="committed offset of orders-1: NOT_COORDINATOR"):
        plain.committed((A, B))


def test_closing_closes_the_connections(plain: PlainCommitter, requests: FakeRequests) -> None:
    plain.close()
    assert requests.closed
