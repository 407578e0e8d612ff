"""Whether the topic for dead letters is there, asked before the first record is read.

Otherwise the first malformed record would tell, perhaps after days: nothing would be lost, but the query would end.
"""

from __future__ import annotations

import time
from contextlib import closing

from pyspark_kafka_group.offsets.cluster.missing_topics import MissingTopics
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.properties.client_config import Properties, client_properties
from pyspark_kafka_group.offsets.properties.kafka_properties import ClientKind
from pyspark_kafka_group.offsets.types import TopicPartition

_TIMEOUT_S = 10.0
_CREATION_S = 5.0
"""How long a cluster that creates topics by itself may take; a second is usual."""


def require_dead_letter_topic(properties: Properties, topic: str) -> None:
    """Raise if a topic does not exist and the cluster does not create it by itself.  Blocks.

    If no broker answers, this raises nothing: what reads records says so, and better.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    topic : str
        The topic.

    Raises
    ------
    OptionError
        It does not exist.
    """
    wanted = [TopicPartition(topic, 0)]
    with closing(MissingTopics(properties, client_id="kafka-group")) as missing:
        if not missing.of(wanted, timeout_s=_TIMEOUT_S):
            return
        _ask_as_producers_do(properties, topic)
        deadline = time.monotonic() + _CREATION_S
        while missing.of(wanted, timeout_s=_TIMEOUT_S):
            if time.monotonic() > deadline:
                raise OptionError(
                    "deadLetterTopic",
                    f"the topic {topic!r} does not exist, and the cluster does not create it by itself.",
                    "Create it, or correct the name.",
                )
            time.sleep(0.2)


def _ask_as_producers_do(properties: Properties, topic: str) -> None:
    """Ask for a topic so that a cluster creates it that does so for producers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        AdminClient(client_properties(ClientKind.ADMIN, properties)).list_topics(topic, timeout=_TIMEOUT_S)
    except KafkaException:
        return  # then it is still missing
