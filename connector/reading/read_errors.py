"""What librdkafka's errors mean to a reader of ranges, by the table of `kafka_errors`.

What is then done is decided in `range_reader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.kafka_errors import Meaning, row_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


def meaning_of(error: KafkaError) -> Meaning:
    """What a reader has to make of `error`."""
    return Meaning.FINAL if error.fatal() else row_of(error.name()).reader
