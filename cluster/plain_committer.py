"""Commits offsets to the group with OffsetCommit requests, for ``commitMode=plain``.

These requests use our own connections. librdkafka sends such a commit only when it has found the coordinator, which
may take as long as a session lasts.  It then uses whatever member id and generation it has by then.  Here, the commit
has the member and the generation that decided it.  The broker refuses a member that has left or was replaced.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset
from pyspark_kafka_group.cluster.committer import CommitRefusedError, OffsetsToCommit, commit_error
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_identity import group_identity
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.cluster.request_errors import CommitUnclearError
from pyspark_kafka_group.offsets.kafka_errors import Consequence, has
from pyspark_kafka_group.offsets.types import TopicPartition

# How long a commit may take.  After that its outcome is unknown, and the offsets are committed again.
_TIMEOUT_S = 5.0


class PlainCommitter:
    """Commits with one request for up to 1000 partitions.  Belongs to one thread; its calls block.

    Parameters
    ----------
    cluster : Cluster
        Asks the coordinator.
    properties : mapping
        The user's ``kafka.*`` properties, for explained errors.
    group_id : str
        The group.
    """

    def __init__(self, cluster: Cluster, properties: Properties, *, group_id: str) -> None:
        self._cluster = cluster
        self._properties = properties
        self._group_id = group_id

    def prepare(self) -> None:
        """Do nothing: the first commit finds the coordinator."""

    def commit(self, offsets: OffsetsToCommit, group_metadata: bytes) -> None:
        """Commit ``offsets`` for the member and generation that ``group_metadata`` names.

        Raises
        ------
        CommitRefusedError
            If the commit was refused, or its outcome is unknown.  You may commit the offsets again.
        KafkaGroupError
            If no retry can help: an explained error, which ends the query.
        """
        member = group_identity(group_metadata)
        # Deliberate: librdkafka's own commits also end with a zero byte.  Without it, the binding of librdkafka 2.16.1
        # reads beyond the end of the metadata, so members that use it could not read them.
        offsets = {tp: (offset, epoch, f"{note}\0") for tp, (offset, epoch, note) in offsets.items()}
        try:
            refused = self._cluster.commit(
                self._group_id,
                member.member_id,
                member.generation,
                member.instance_id,
                offsets,
                timeout_s=_TIMEOUT_S,
            )
        except TryAgainError as problem:
            unclear = isinstance(problem, CommitUnclearError)
            raise CommitRefusedError("_TIMED_OUT", str(problem), unclear=unclear) from None
        missing = frozenset(tp for tp, name in refused.items() if has(name, Consequence.NO_TOPIC))
        errors = [
            commit_error(
                name,
                f"commit of {tp}",
                group_id=self._group_id,
                properties=self._properties,
                missing=missing,
            )
            for tp, name in refused.items()
        ]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, CommitRefusedError))  # one that ends the query first

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offsets of ``partitions``; None for a partition without one.

        Raises
        ------
        TryAgainError
            If the coordinator does not answer, or not for all of them.
        KafkaGroupError
            If no retry can help.
        """
        answers = self._cluster.committed(self._group_id, partitions, require_stable=False, timeout_s=_TIMEOUT_S)
        for tp, name in answers.failed.items():
            raise TryAgainError(f"committed offset of {tp}: {name}")
        return {tp: answers.found.get(tp) for tp in partitions}

    def serve(self) -> None:
        """Do nothing: there is no queue of events."""

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()
