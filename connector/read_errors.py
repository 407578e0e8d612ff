"""What librdkafka's errors mean to a reader of ranges: the one table that decides about them.

What is then done is said in `reading`.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class Meaning(Enum):
    """What an error of librdkafka means to a reader."""

    END = auto()  # of the partition
    OUT_OF_RANGE = auto()  # the position is not in the log, or no longer in the same log
    REFUSED = auto()  # credentials or rights; counts when it lasts
    GONE = auto()  # no such topic or partition; counts when it lasts
    PASSING = auto()  # librdkafka is retrying
    NOT_OURS = auto()  # about the coordinator, which readers do not need
    FINAL = auto()  # any other: a corrupt record, say, which librdkafka would pass over


@cache
def _meanings() -> dict[int, Meaning]:
    from confluent_kafka import KafkaError

    codes = {
        Meaning.END: ("_PARTITION_EOF",),
        Meaning.OUT_OF_RANGE: ("_AUTO_OFFSET_RESET", "_LOG_TRUNCATION", "OFFSET_OUT_OF_RANGE"),
        Meaning.REFUSED: (
            "_AUTHENTICATION",
            "_SSL",
            "CLUSTER_AUTHORIZATION_FAILED",
            "SASL_AUTHENTICATION_FAILED",
            "TOPIC_AUTHORIZATION_FAILED",
        ),
        Meaning.GONE: (
            "_UNKNOWN_PARTITION",
            "_UNKNOWN_TOPIC",
            "UNKNOWN_TOPIC_ID",
            "UNKNOWN_TOPIC_OR_PART",
        ),
        Meaning.PASSING: (
            "_ALL_BROKERS_DOWN",
            "_RESOLVE",
            "_TIMED_OUT",
            "_TIMED_OUT_QUEUE",
            "_TRANSPORT",
            "_WAIT_CACHE",
            "BROKER_NOT_AVAILABLE",
            "FENCED_LEADER_EPOCH",
            "KAFKA_STORAGE_ERROR",
            "LEADER_NOT_AVAILABLE",
            "NETWORK_EXCEPTION",
            "NOT_LEADER_FOR_PARTITION",
            "OFFSET_NOT_AVAILABLE",
            "REPLICA_NOT_AVAILABLE",
            "REQUEST_TIMED_OUT",
            "THROTTLING_QUOTA_EXCEEDED",
            "UNKNOWN",
            "UNKNOWN_LEADER_EPOCH",
        ),
        Meaning.NOT_OURS: (
            "_WAIT_COORD",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "GROUP_AUTHORIZATION_FAILED",
            "NOT_COORDINATOR",
        ),
    }
    return {getattr(KafkaError, name): meaning for meaning, names in codes.items() for name in names}


def meaning_of(error: KafkaError) -> Meaning:
    """What a reader has to make of `error`."""
    return Meaning.FINAL if error.fatal() else _meanings().get(error.code(), Meaning.FINAL)
