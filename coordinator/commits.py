"""Commits: when to send each one, how to send it without blocking the group thread, and what its answer means.

A commit that a command decides is sent after the answer to its caller.  Every commit is sent before the next input: it
may take away the partitions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait

from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset
from pyspark_kafka_group.cluster.committer import (
    TRANSACTION_TIMEOUT_S,
    CommitRefusedError,
    OffsetsToCommit,
    TransactionalCommitter,
)
from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.plain_committer import PlainCommitter
from pyspark_kafka_group.coordinator.activity import Time
from pyspark_kafka_group.coordinator.handover import inputs
from pyspark_kafka_group.coordinator.handover.outputs import Commit
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.loop import Loop
from pyspark_kafka_group.coordinator.rebalances import Rebalances
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.coordinator.start_requests import StartRequests
from pyspark_kafka_group.offsets.errors import ActiveGroupError, GroupError, KafkaGroupError, OffsetFormatError
from pyspark_kafka_group.offsets.notes import read_commit
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import TopicPartition

_log = logging.getLogger(__name__)

# Pause after a failed commit.  The first is short, because most commits fail at the end of a rebalance.
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 1.0

# A commit of more partitions than this is delayed for a time for each of them, while Spark plans the next batch.
# Building and encoding it takes as much Python time as planning, so both at once would double the time of the plan.
# The group thread does not poll meanwhile, so the pause has a limit.
_LARGE_COMMIT = 1000
_PAUSE_OF_PARTITION_S = 20e-6
_LONGEST_PAUSE_S = 0.2

# How long commits may fail with an unexpected error.  Retries cure few of them.
_UNEXPECTED_S = 60.0

Found = Mapping[TopicPartition, GroupOffset | None]
"""The group's committed offset of each partition; None for a partition without one."""


class Commits:
    """The commits of one member.  All methods belong to the group thread, unless they say otherwise.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    query_id : str
        The id of the query, which names its transactions.
    client_id : str
        The prefix of each log line.
    loop : Loop
        The loop of the group thread.
    rebalances : Rebalances
        The member that commits, and the member id under which its partitions were assigned.
    start_requests : StartRequests
        Checks whether topics were deleted.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        query_id: str,
        client_id: str,
        loop: Loop,
        rebalances: Rebalances,
        start_requests: StartRequests,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._loop = loop
        self._rebalances = rebalances
        self._start_requests = start_requests
        self._clock = clock
        self._unsent: Commit | None = None  # at most one is outstanding
        self._send_at = 0.0
        self._sent_at = 0.0  # when the outstanding commit was sent
        self._retry_at: float | None = None
        self._retry_pause_s = _FIRST_RETRY_S
        self._unexpected_until: float | None = None  # until when commits may fail with an unexpected error
        self._has_member = not settings.partitions
        # None with `assign` and no group: then only Spark's checkpoint has offsets.
        self._committer: TransactionalCommitter | PlainCommitter | None = None
        if self._has_member and settings.commit_mode is CommitMode.TRANSACTION:
            self._committer = TransactionalCommitter(settings.properties, group_id=settings.group_id, query_id=query_id)
        elif settings.commits:
            cluster = connect(settings.properties, client_id=client_id)
            self._committer = PlainCommitter(cluster, settings.properties, group_id=settings.group_id)
        self._worker = DaemonExecutor("kafka-group-commits")
        self._prepared: Future[object] | None = None

    # ------------------------------------------------------------------------------------ when

    def take(self, commit: Commit) -> None:
        """Take a commit to send."""
        self._unsent, self._send_at = commit, 0.0

    def delay(self) -> None:
        """Delay a large commit: a command has decided it, and its caller is about to get the answer."""
        count = 0 if self._unsent is None else len(self._unsent.entries)
        if count > _LARGE_COMMIT and not self._send_at:
            self._send_at = self._clock() + min(count * _PAUSE_OF_PARTITION_S, _LONGEST_PAUSE_S)

    @property
    def delayed_s(self) -> float:
        """How long the commit is still delayed, in seconds; 0 or less if none is."""
        return 0.0 if self._unsent is None else self._send_at - self._clock()

    def send_due(self) -> None:
        """Send the commit that was decided, unless it is delayed."""
        commit = self._unsent
        if commit is not None and self.delayed_s <= 0:
            self._unsent = None
            self._sent_at = self._clock()
            self.send(commit)

    def retry_later(self) -> None:
        """Begin a pause.  Each is longer than the one before."""
        self._retry_at = self._clock() + self._retry_pause_s
        self._retry_pause_s = min(2 * self._retry_pause_s, _LAST_RETRY_S)

    def until_retry_s(self, at_most_s: float) -> float:
        """Return the seconds until the pause ends, at most ``at_most_s``."""
        return at_most_s if self._retry_at is None else max(0.0, min(at_most_s, self._retry_at - self._clock()))

    def retry_due(self) -> None:
        """Decide the commit again that has failed, if the pause is over."""
        if self._retry_at is not None and self._clock() >= self._retry_at:
            self._retry_at = None
            self._loop.feed(inputs.Retry())

    # ------------------------------------------------------------------------------------ how

    def prepare(self) -> None:
        """Begin to prepare the client, so that the first commit does not wait for it."""
        if self._committer is not None:
            self._prepared = self._worker.post(self._committer.prepare)

    def await_prepared(self) -> None:
        """Wait until a transaction that a former process of this query has left open is over.  Any thread."""
        if self._prepared is not None:
            wait([self._prepared], TRANSACTION_TIMEOUT_S)  # by then the broker has ended it

    def send(self, commit: Commit) -> None:
        """Send a commit under the current generation.

        The member owns the partitions under the epoch of the commit: this thread has not polled the member since it has
        decided the commit, and it checks the member's identity after each poll.
        """
        offsets: OffsetsToCommit = {
            tp: (offset, leader_epoch, note.encode()) for tp, (_, offset, leader_epoch, note) in commit.entries.items()
        }
        member_id, pinned = self._rebalances.member_id, self._rebalances.member.group_metadata()
        if self._has_member and (not member_id or f"\0{member_id}\0".encode() not in pinned):
            # A broker does not fence the commit of a member without an id (seen with 4.3.1, classic protocol).
            self.answered(CommitRefusedError("UNKNOWN_MEMBER_ID", "the member has lost its place in the group"))
            return
        committer = self._committer
        if committer is None:
            self.answered(None)
            return
        self._worker.post(lambda: self.answered(self._problem_of(lambda: committer.commit(offsets, pinned))))

    def read_back(self, partitions: Collection[TopicPartition]) -> None:
        """Begin to read the group's offsets.  Their answer comes after the answers to earlier commits."""
        self._worker.post(lambda: self.found(self._read(partitions)))

    def serve(self) -> None:
        """Empty the queues of an idle client."""
        if self._committer is not None:
            self._worker.post(self._committer.serve)

    def close(self) -> None:
        """Begin to close the clients, and return at once."""
        if self._committer is not None:
            self._worker.post(self._committer.close)
        self._worker.close()

    def _problem_of(self, commit: Callable[[], None]) -> Exception | None:
        """Run ``commit``; return None if it succeeded, else the problem."""
        try:
            commit()
        except KafkaGroupError as problem:
            return problem
        except Exception as problem:
            _log.exception("%s: a commit failed unexpectedly", self._client_id)
            return problem
        return None

    def _read(self, partitions: Collection[TopicPartition]) -> Found | OffsetFormatError | None:
        try:
            assert isinstance(self._committer, PlainCommitter), "only plain commits are read back"
            return _stored(self._committer.committed(partitions))
        except OffsetFormatError as problem:
            return problem
        except (TryAgainError, KafkaGroupError) as problem:
            _log.debug("%s: the group's offsets are not known: %s", self._client_id, problem)
        except Exception:
            _log.exception("%s: the group's offsets could not be read back", self._client_id)
        return None

    # ------------------------------------------------------------------------------------ what the answer means

    def answered(self, problem: Exception | None) -> None:
        """Take the answer to a commit: None if it has succeeded, else the problem.  Any thread."""
        self._loop.post(lambda: self._hear(problem))

    def found(self, found: Found | OffsetFormatError | None) -> None:
        """Take the group's offsets, or None if they are not known.  Any thread.

        The error says that a newer version of this project has written one of their notes.
        """
        self._loop.post(lambda: self._take(found))

    def _take(self, found: Found | OffsetFormatError | None) -> None:
        if isinstance(found, OffsetFormatError):
            self._loop.fail(found)
        else:
            self._loop.feed(inputs.OffsetsReadBack(found))

    def _hear(self, problem: Exception | None) -> None:
        self._loop.emit.activity.add(Time.COMMITTING, self._clock() - self._sent_at)
        if problem is None:
            self._retry_pause_s = _FIRST_RETRY_S
        # With `assign`, a commit that arrives late does no harm: the checkpoint decides, and nothing is read back.
        unclear = isinstance(problem, CommitRefusedError) and problem.unclear and self._has_member
        self._loop.feed(inputs.CommitAnswered(None if problem is None else str(problem), unclear))
        if isinstance(problem, CommitRefusedError):
            if problem.evicted and not self._has_member:
                self._loop.fail(ActiveGroupError(self._settings.group_id))
            elif problem.evicted:
                # The group has thrown this member out while it drained.  librdkafka reports that after the callback
                # has returned.  To wait for the deadline would only delay the next owners.
                draining = (tp for tp, p in self._loop.state.owned.items() if p.phase is Phase.DRAINING)
                self._loop.feed(inputs.Lose(tuple(draining)))
            # Deliberate: one broker's answer does not count.  A coordinator may not know a new topic yet.
            self._start_requests.check(problem.missing - self._loop.state.deleted)
        elif isinstance(problem, KafkaGroupError):
            self._loop.fail(problem)
        self._check_lasting(problem)

    def _check_lasting(self, problem: Exception | None) -> None:
        """End the query if commits have failed for long with an error that retries do not cure."""
        if problem is None or not _lasts(problem):
            self._unexpected_until = None
        elif self._unexpected_until is None:
            self._unexpected_until = self._clock() + _UNEXPECTED_S
        elif self._clock() >= self._unexpected_until:
            known = isinstance(problem, KafkaGroupError)
            text = str(problem) if known else repr(problem)
            remedy = "Try commitMode=plain" if known else "This is a bug, or confluent-kafka has changed"
            self._loop.fail(
                GroupError(
                    f"Commits have failed for {_UNEXPECTED_S:g} s with an error that retries do not cure: {text}. "
                    f"{remedy}. Batches that are not committed will be processed again."
                )
            )


def _lasts(problem: Exception) -> bool:
    """Return whether retries rarely cure the problem of a commit: it is unexpected, or the client is at fault."""
    return problem.lasting if isinstance(problem, CommitRefusedError) else not isinstance(problem, KafkaGroupError)


def _stored(found: Mapping[TopicPartition, CommittedOffset | None]) -> Found:
    return {
        tp: None if one is None else GroupOffset(one.offset, read_commit(one.metadata, tp)) for tp, one in found.items()
    }
