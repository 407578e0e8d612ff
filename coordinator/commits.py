"""Commits: when to send each one, and how to send it without blocking the group thread.

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
from pyspark_kafka_group.coordinator.fixed_member import FixedMember
from pyspark_kafka_group.coordinator.handover.outputs import Commit
from pyspark_kafka_group.coordinator.member import Member
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import KafkaGroupError, OffsetFormatError
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import TopicPartition

_log = logging.getLogger(__name__)

# Pause after a failed commit.  The first is short, because most commits fail at the end of a rebalance.
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 1.0

# A commit of more partitions than this is held back for a time for each of them, while Spark plans the next batch.  To
# build and encode it takes as much Python time as the plan, which would take twice as long.  The group thread does not
# poll meanwhile, so the pause has a limit.
_LARGE_COMMIT = 1000
_PAUSE_OF_PARTITION_S = 20e-6
_LONGEST_PAUSE_S = 0.2

Found = Mapping[TopicPartition, GroupOffset | None]
"""The group's committed offset of each partition; None for a partition without one."""


class CommitSchedule:
    """The commit to send, and the time of the next retry.  Belongs to the group thread.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: Commit | None = None  # at most one is outstanding
        self._held_until = 0.0
        self._retry_at: float | None = None
        self._retry_pause_s = _FIRST_RETRY_S

    def hold(self, commit: Commit) -> None:
        """Take a commit to send."""
        self._held, self._held_until = commit, 0.0

    def hold_back(self) -> None:
        """Hold a large commit back: a command has decided it, and its caller is about to get the answer."""
        count = 0 if self._held is None else len(self._held.entries)
        if count > _LARGE_COMMIT and not self._held_until:
            self._held_until = self._clock() + min(count * _PAUSE_OF_PARTITION_S, _LONGEST_PAUSE_S)

    @property
    def held_for_s(self) -> float:
        """How long the commit is still held back, in seconds; 0 or less if none is."""
        return 0.0 if self._held is None else self._held_until - self._clock()

    def take(self) -> Commit | None:
        """Return the commit to send now; None if there is none, or it is held back."""
        if self.held_for_s > 0:
            return None
        held, self._held = self._held, None
        return held

    def retry_later(self) -> None:
        """Begin a pause.  Each is longer than the one before."""
        self._retry_at = self._clock() + self._retry_pause_s
        self._retry_pause_s = min(2 * self._retry_pause_s, _LAST_RETRY_S)

    def succeeded(self) -> None:
        """Note that a commit has succeeded, so that the next pause is short again."""
        self._retry_pause_s = _FIRST_RETRY_S

    def until_retry_s(self, at_most_s: float) -> float:
        """Return the seconds until the pause ends, at most ``at_most_s``."""
        return at_most_s if self._retry_at is None else max(0.0, min(at_most_s, self._retry_at - self._clock()))

    def take_retry(self) -> bool:
        """Return True, once, if the pause is over."""
        over = self._retry_at is not None and self._clock() >= self._retry_at
        if over:
            self._retry_at = None
        return over


class Commits:
    """The commits of one member, on their own thread.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    query_id : str
        The id of the query, which names its transactions.
    client_id : str
        The prefix of each log line.
    answered : callable
        Takes None for a commit that succeeded, else the problem.  Called on any thread.
    found : callable
        Takes the group's offsets; None if :meth:`read_back` has failed; the error if a newer version of this project
        has written one of their notes.  Called on any thread.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        query_id: str,
        client_id: str,
        answered: Callable[[Exception | None], None],
        found: Callable[[Found | OffsetFormatError | None], None],
    ) -> None:
        self._client_id = client_id
        self._answered = answered
        self._found = found
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

    def prepare(self) -> None:
        """Begin to prepare the client, so that the first commit does not wait for it."""
        if self._committer is not None:
            self._prepared = self._worker.post(self._committer.prepare)

    def await_prepared(self) -> None:
        """Wait until a transaction that a former process of this query has left open is over.  Any thread."""
        if self._prepared is not None:
            wait([self._prepared], TRANSACTION_TIMEOUT_S)  # by then the broker has ended it

    def send(
        self,
        command: Commit,
        member: Member | FixedMember,
        member_id: str,
    ) -> None:
        """Send a commit under the current generation.  On the group thread.

        The member owns the partitions under the epoch of the command: this thread decided the command a moment ago,
        and it checks the member's identity after each poll.

        Parameters
        ----------
        command : Commit
            The offsets to commit.
        member : Member or FixedMember
            The member that commits.
        member_id : str
            The member id under which the partitions were assigned.
        """
        offsets: OffsetsToCommit = {
            tp: (offset, leader_epoch, note.encode()) for tp, (_, offset, leader_epoch, note) in command.entries.items()
        }
        pinned = member.group_metadata()
        if self._has_member and (not member_id or f"\0{member_id}\0".encode() not in pinned):
            # A broker does not fence the commit of a member without an id (seen with 4.3.1, classic protocol).
            self._answered(CommitRefusedError("UNKNOWN_MEMBER_ID", "the member has lost its place in the group"))
            return
        committer = self._committer
        if committer is None:
            self._answered(None)
            return
        self._worker.post(lambda: self._answered(self._problem_of(lambda: committer.commit(offsets, pinned))))

    def read_back(self, partitions: Collection[TopicPartition]) -> None:
        """Begin to read the group's offsets; ``found`` gets them after the answers to earlier commits."""
        self._worker.post(lambda: self._found(self._read(partitions)))

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


def _stored(found: Mapping[TopicPartition, CommittedOffset | None]) -> Found:
    return {
        tp: None if one is None else GroupOffset(one.offset, CommitNote.decode(one.metadata))
        for tp, one in found.items()
    }
