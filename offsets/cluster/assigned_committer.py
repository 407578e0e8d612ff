"""Commits of a query that is no member of the group, because its partitions are given: ``assign``."""

from __future__ import annotations

from typing import Protocol

from pyspark_kafka_group.offsets.client_config import Properties
from pyspark_kafka_group.offsets.cluster.committer import (
    CommitRefusedError,
    OffsetsToCommit,
    commit_requests,
    kafka_partitions,
)
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.plain_committer import open_plain_committer
from pyspark_kafka_group.offsets.cluster.unjoined_consumer import UnjoinedConsumer


class Committer(Protocol):
    """Commits offsets.  Belongs to one thread; its calls block."""

    def prepare(self) -> None:
        """Get ready, so that the first commit need not."""

    def commit(self, offsets: OffsetsToCommit, group_metadata: bytes) -> None:
        """Commit ``offsets``; raises as :meth:`PlainCommitter.commit` does."""

    def serve(self) -> None:
        """Empty the queues of events."""

    def close(self) -> None:
        """Close the connections."""


def open_assigned_committer(properties: Properties, *, group_id: str, client_id: str, keeps_offsets: bool) -> Committer:
    """Return what commits for a query with ``assign``.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    group_id : str
        The group.
    client_id : str
        What the brokers' logs call us.
    keeps_offsets : bool
        Whether the group keeps the offsets; else nothing is committed.
    """
    if not keeps_offsets:
        return CheckpointOnly()
    plain = open_plain_committer(properties, group_id=group_id, client_id=client_id)
    return plain or UnjoinedCommitter(properties, group_id=group_id)


class CheckpointOnly:
    """Commits nothing: what Spark has in its checkpoint is all there is."""

    def prepare(self) -> None:
        """Do nothing."""

    def commit(self, offsets: OffsetsToCommit, group_metadata: bytes) -> None:
        """Do nothing, with success."""

    def serve(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class UnjoinedCommitter:
    """Commits through librdkafka, where only that can reach the brokers; the client is made by the first commit.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    group_id : str
        The group.
    """

    def __init__(self, properties: Properties, *, group_id: str) -> None:
        self._properties = properties
        self._group_id = group_id
        self._client: UnjoinedConsumer | None = None

    def prepare(self) -> None:
        """Do nothing: the first commit finds the coordinator."""

    def commit(self, offsets: OffsetsToCommit, group_metadata: bytes) -> None:
        """Commit ``offsets`` as one that is no member.

        Raises
        ------
        CommitRefusedError
            If it was refused, or its outcome is not known.
        KafkaGroupError
            If no retry can help.
        """
        if self._client is None:
            self._client = UnjoinedConsumer(self._properties, group_id=self._group_id, isolation="read_committed")
        for request in commit_requests(kafka_partitions(offsets)):
            try:
                refused = self._client.commit(request)
            except TryAgainError as problem:
                name, _, text = str(problem).partition(": ")
                raise CommitRefusedError(name, text) from None
            if refused is not None:
                raise CommitRefusedError(refused, "commit")

    def serve(self) -> None:
        """Empty the queue of events."""
        if self._client is not None:
            self._client.serve()

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
