"""What becomes of an error that Kafka or librdkafka tells the source process: it is tried again, or ends the query.

The table in `kafka_errors` decides which of the two, and has the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from pyspark_kafka_group.cluster.properties.kafka_properties import transactional_id
from pyspark_kafka_group.offsets.errors import BrokerError, KafkaGroupError
from pyspark_kafka_group.offsets.kafka_errors import row_of
from pyspark_kafka_group.offsets.redaction import redact

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class TryAgainError(Exception):
    """The cluster could not answer just now."""


class Remedy(Enum):
    """What to do about an error of the group or of a commit."""

    RETRY = "retry"  # passes by itself, or the group thread gets to know why not
    FAIL = "fail"  # no retry cures it: end the query with an explained error


def remedy_for(error: KafkaError) -> Remedy:
    """Return what to do about ``error``; unknown errors are retried, never a reason to end a query.

    Deliberate: whether librdkafka calls the error fatal does not matter here.  That ends a handle, and the
    owner of the handle makes a new one.
    """
    return Remedy.RETRY if row_of(error.name()).ends is None else Remedy.FAIL


def refusal(name: str, text: str, *, group_id: str, properties: Mapping[str, str]) -> KafkaGroupError | None:
    """Return the error to end the query with, or None if a retry may help; for errors that others than librdkafka tell.

    Parameters
    ----------
    name : str
        The name of the error, Kafka's or librdkafka's.
    text : str
        What was wrong.
    group_id : str
        The group.
    properties : mapping
        The user's properties, for redaction.
    """
    if row_of(name).ends is None:
        return None
    return explanation(name, text, group_id=group_id, properties=properties)


def explained(error: KafkaError, *, group_id: str, properties: Mapping[str, str], what: str = "") -> KafkaGroupError:
    """Return the error to end the query with, for one of librdkafka's that no retry cures.

    Parameters
    ----------
    error : KafkaError
        What librdkafka says, which is not about whom: a topic, say.
    group_id : str
        The group.
    properties : mapping
        The user's properties, for redaction.
    what : str
        What was asked about.
    """
    text = f"{what}: {error.str()}" if what else error.str()
    return explanation(error.name(), text, group_id=group_id, properties=properties)


def explanation(name: str, text: str, *, group_id: str, properties: Mapping[str, str]) -> KafkaGroupError:
    """Return the error to end the query with, whatever its name; see :func:`refusal`."""
    row = row_of(name)
    text = redact(text, properties)
    if row.ends is None:
        return BrokerError(f"Kafka answered with {name}: {text}")
    problem, remedy = told(row.problem, group_id), told(row.remedy, group_id)
    return row.ends(f"{problem} ({text}). {remedy}")


def told(text: str, group_id: str) -> str:
    """Return a text of the table for one group."""
    return text.format(group_id=group_id, transactional_ids=transactional_id(group_id, ""))
