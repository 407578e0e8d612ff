"""Checks before the first record is read whether the topic for dead letters exists.

Without the check, the first malformed record would end the query, perhaps after days.  No record would be lost.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from itertools import repeat

from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.offsets.errors import KafkaGroupError, OptionError
from pyspark_kafka_group.wire.deadline import Deadline

_TIMEOUT_S = 10.0
_CREATION_S = 5.0
"""How long a cluster may take to create a missing topic, in seconds; a second is usual."""

_PAUSE_S = 0.2


def require_dead_letter_topic(properties: Properties, topic: str) -> None:
    """Raise if a topic does not exist and the cluster does not create it.  Blocks.

    If no broker answers, this raises nothing: the readers report that, with a better error.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    topic : str
        The topic.

    Raises
    ------
    OptionError
        If the topic does not exist.
    """
    with closing(connect(properties, client_id="kafka-group")) as cluster:
        ask = partial(cluster.topics, [topic], timeout_s=_TIMEOUT_S)
        try:
            if ask(creates=False) or patiently(
                partial(ask, creates=True), Deadline.after(_CREATION_S), repeat(_PAUSE_S), is_enough=bool
            ):
                return
        except (TryAgainError, KafkaGroupError):
            return
    raise OptionError(
        "deadLetterTopic",
        f"the topic {topic!r} does not exist, and the cluster does not create it.",
        "Create it, or correct the name.",
    )
