"""Sends commits and brings back their answers, without holding up the group thread where that can be helped."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark_kafka_group.coordinator.fixed_member import FixedMember
from pyspark_kafka_group.coordinator.handover.outputs import Commit
from pyspark_kafka_group.coordinator.member import Member
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.offsets.cluster.assigned_committer import Committer, open_assigned_committer
from pyspark_kafka_group.offsets.cluster.committer import CommitRefusedError, OffsetsToCommit, TransactionalCommitter
from pyspark_kafka_group.offsets.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.offsets.cluster.plain_committer import open_plain_committer
from pyspark_kafka_group.offsets.errors import KafkaGroupError

_log = logging.getLogger(__name__)


class Commits:
    """The commits of one member, on a thread of their own.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    query_id : str
        Names the query's transactions.
    client_id : str
        Names the query in the log.
    answered : callable
        Takes None for a commit that succeeded, else what was wrong.  Called on any thread.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        query_id: str,
        client_id: str,
        answered: Callable[[Exception | None], None],
    ) -> None:
        self._client_id = client_id
        self._answered = answered
        # None where librdkafka has to make plain commits, over the member's own handle.
        self._committer: Committer | None
        self._has_member = not settings.partitions
        if not self._has_member:
            self._committer = open_assigned_committer(
                settings.properties,
                group_id=settings.group_id,
                client_id=client_id,
                keeps_offsets=settings.start.keeps_offsets,
            )
        elif settings.commit_mode is CommitMode.TRANSACTION:
            self._committer = TransactionalCommitter(settings.properties, group_id=settings.group_id, query_id=query_id)
        else:
            self._committer = open_plain_committer(settings.properties, group_id=settings.group_id, client_id=client_id)
        self._worker = DaemonExecutor("kafka-group-commits")

    def prepare(self) -> None:
        """Begin to get ready, so that the first commit need not."""
        if self._committer is not None:
            self._worker.submit(self._committer.prepare)

    def send(self, command: Commit, member: Member | FixedMember, member_id: str) -> None:
        """Send a commit under the generation of this moment.  On the group thread.

        The partitions are owned at the epoch of the command: it was decided on this thread a moment ago, and after
        each poll the identity of the member was checked.
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
            assert not isinstance(member, FixedMember), "without a member there is always a committer"
            member.commit(offsets, self._answered)
            return
        self._worker.submit(lambda: self._answered(self._problem_of(lambda: committer.commit(offsets, pinned))))

    def serve(self) -> None:
        """Empty the queues of a client that has nothing to do."""
        if self._committer is not None:
            self._worker.submit(self._committer.serve)

    def close(self) -> None:
        """Let the clients go; returns before that is done."""
        if self._committer is not None:
            self._worker.submit(self._committer.close)
        self._worker.close()

    def _problem_of(self, commit: Callable[[], None]) -> Exception | None:
        """Run ``commit``; return None if it succeeded, else what was wrong."""
        try:
            commit()
        except KafkaGroupError as problem:
            return problem
        except Exception as problem:
            _log.exception("%s: a commit failed unexpectedly", self._client_id)
            return problem
        return None
