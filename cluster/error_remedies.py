"""What to do about an error of Kafka or librdkafka in the source process: retry, or end the query.

The table in `kafka_errors` decides which of the two, and has the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from pyspark_kafka_group.cluster.properties.clients import client_text
from pyspark_kafka_group.cluster.properties.kafka_properties import transactional_id
from pyspark_kafka_group.offsets.errors import BrokerError, KafkaGroupError
from pyspark_kafka_group.offsets.kafka_errors import row_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class TryAgainError(Exception):
    """The cluster could not answer just now."""


class Remedy(Enum):
    """What to do about an error of the group or of a commit."""

    RETRY = "retry"  # temporary, or the group thread learns the reason elsewhere
    FAIL = "fail"  # no retry cures it: end the query with an explained error


def remedy_for(error: KafkaError) -> Remedy:
    """Return what to do about ``error``.  Unknown errors are retried; they never end a query.

    Deliberate: whether librdkafka calls the error fatal does not matter here.  A fatal error ends a handle, and the
    owner of the handle makes a new one.
    """
    return Remedy.RETRY if row_of(error.name()).ends is None else Remedy.FAIL


def refusal(name: str, text: str, *, group_id: str, properties: Mapping[str, str]) -> KafkaGroupError | None:
    """Return the error to end the query with, for errors that librdkafka does not report; None if a retry may help.

    Parameters
    ----------
    name : str
        The name of the error, Kafka's or librdkafka's.
    text : str
        The problem.
    group_id : str
        The group.
    properties : mapping
        The user's properties, for redaction.
    """
    if row_of(name).ends is None:
        return None
    return explanation(name, text, group_id=group_id, properties=properties)


def explained(error: KafkaError, *, group_id: str, properties: Mapping[str, str], what: str = "") -> KafkaGroupError:
    """Return the error to end the query with, for an error of librdkafka that no retry cures.

    Parameters
    ----------
    error : KafkaError
        librdkafka's error.  It does not name its subject, for example the topic.
    group_id : str
        The group.
    properties : mapping
        The user's properties, for redaction.
    what : str
        The subject of the question.
    """
    text = f"{what}: {error.str()}" if what else error.str()
    return explanation(error.name(), text, group_id=group_id, properties=properties)


def explanation(name: str, text: str, *, group_id: str, properties: Mapping[str, str]) -> KafkaGroupError:
    """Return the error to end the query with, for any name; see :func:`refusal`."""
    row = row_of(name)
    text = client_text(text, properties)
    if row.ends is None:
        return BrokerError(f"Kafka answered with {name}: {text}")
    problem, remedy = told(row.problem, group_id), told(row.remedy, group_id)
    return row.ends(f"{problem} ({text}). {remedy}", code=name)


def told(text: str, group_id: str) -> str:
    """Return a text of the table for one group."""
    return text.format(group_id=group_id, transactional_ids=transactional_id(group_id, ""))
