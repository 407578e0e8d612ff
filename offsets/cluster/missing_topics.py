"""Which topics do not exist, asked when a request takes long and that may be why."""

from __future__ import annotations

from collections.abc import Collection

from pyspark_kafka_group.offsets.client_config import Properties, client_properties
from pyspark_kafka_group.offsets.kafka_errors import Consequence, has
from pyspark_kafka_group.offsets.kafka_properties import ClientKind
from pyspark_kafka_group.offsets.types import TopicPartition


def missing_topics(
    properties: Properties, partitions: Collection[TopicPartition], *, timeout_s: float
) -> frozenset[str]:
    """Return the topics of ``partitions`` that do not exist, or no longer have the partition.

    Only what a broker says counts; where none answers within ``timeout_s`` nothing is missing.  Blocks.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    partitions : collection of TopicPartition
        What is asked for.
    timeout_s : float
        How long the answer may take, in seconds.
    """
    from confluent_kafka import KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    highest: dict[str, int] = {}
    for tp in partitions:
        highest[tp.topic] = max(tp.partition, highest.get(tp.topic, 0))
    missing = set()
    try:
        # Deliberate: neither the producer nor list_topics(topic), which might create the topic anew.
        admin = AdminClient(client_properties(ClientKind.ADMIN, properties))
        answers = admin.describe_topics(TopicCollection(sorted(highest)), request_timeout=timeout_s)
    except (KafkaException, ValueError, TypeError):
        return frozenset()
    for topic, answer in answers.items():
        try:
            if len(answer.result(timeout_s).partitions) <= highest[topic]:
                missing.add(topic)
        except TimeoutError:
            return frozenset()
        except KafkaException as problem:
            if has(problem.args[0].name(), Consequence.NO_TOPIC):
                missing.add(topic)
    return frozenset(missing)
