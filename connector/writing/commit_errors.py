"""The errors of the commit of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, KafkaGroupError, SinkTransactionError
from pyspark_kafka_group.offsets.types import TopicPartition

FENCED = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"})
"""Another producer has taken over the transactional id."""

DELETED = "UNKNOWN_TOPIC_OR_PARTITION"
"""A topic that was deleted meanwhile."""


def accept(batch: int) -> str:
    """Return how to accept a batch as it is in Kafka."""
    return (
        f"To accept the rows in Kafka as batch {batch} and continue, start the query with the option "
        f"acceptBatch={batch}."
    )


def twice(batch: int) -> SinkTransactionError:
    """Return the error if another run commits the same batch."""
    return SinkTransactionError(
        f"Another run of this query has committed batch {batch}, or is committing it, while this run wrote it. The "
        f"same checkpoint is in use twice: stop one of the queries. No row of the batch is committed twice."
    )


def named(batch: int | None) -> str:
    """Return the name of a batch in errors; None is the write of a batch job."""
    return "The write" if batch is None else f"Batch {batch}"


def unanswered(problem: Exception) -> BrokerError:
    """Return the error if no broker answers."""
    return BrokerError(f"The cluster does not answer: {problem}. Check kafka.bootstrap.servers and the brokers.")


def no_right(batch: int, problem: str, topics: Sequence[str], group: str) -> AuthenticationError:
    """Return the error if the user may not store the decision."""
    return AuthenticationError(
        f"{named(batch)}: the decision to commit it cannot be stored: {problem}. Nothing of the batch can be read "
        f"in Kafka. The user of this query needs READ on the topic {', '.join(map(repr, topics))} and on the group "
        f"{group!r}."
    )


def decision_refused(
    refused: Mapping[TopicPartition, str], topics: Sequence[str], batch: int, group: str
) -> KafkaGroupError:
    """Return the error if the decision cannot be stored for some topics, whose errors are ``refused``."""
    tp, name = min(refused.items(), key=lambda one: one[1] == DELETED)  # report another error than this first
    if name in FENCED:
        return twice(batch)
    if name.endswith("AUTHORIZATION_FAILED"):
        denied = sorted(tp.topic for tp, name in refused.items() if name.endswith("AUTHORIZATION_FAILED"))
        return no_right(batch, name, denied or topics, group)
    return SinkTransactionError(
        f"{named(batch)}: the decision to commit it cannot be stored for {tp}: {name}. Nothing of the batch can be "
        f"read in Kafka. "
        + (
            "The topic was deleted: create it."
            if name == DELETED
            else "Write with fewer tasks, or set offset.metadata.max.bytes on the brokers to 4096 or more."
        )
    )
