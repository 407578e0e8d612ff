"""Which topics do not exist: asked if a request takes long, because that may be why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.topic_requests import TopicRequests
from pyspark_kafka_group.offsets.errors import KafkaGroupError, OptionError
from pyspark_kafka_group.offsets.kafka_errors import Consequence, has
from pyspark_kafka_group.offsets.properties.client_config import (
    Properties,
    client_properties,
    connection_properties,
    reach,
)
from pyspark_kafka_group.offsets.properties.kafka_properties import ClientKind
from pyspark_kafka_group.offsets.types import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class MissingTopics:
    """Asks which topics do not exist, with one client for all questions.  Belongs to one thread.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    client_id : str
        What the brokers' logs and quotas call the client.
    """

    def __init__(self, properties: Properties, *, client_id: str) -> None:
        self._properties = properties
        self._requests: TopicRequests | None = None
        config = connection_properties(properties)
        with suppress(OptionError):
            found = reach(config)
            self._requests = TopicRequests(*found, client_id=client_id, properties=properties)
        self._admin: AdminClient | None = None

    def of(self, partitions: Collection[TopicPartition], *, timeout_s: float) -> frozenset[str]:
        """Return the topics of ``partitions`` that do not exist, or no longer have the partition.

        Only what a broker says counts: if none answers within ``timeout_s`` seconds, nothing is missing.  Blocks.
        """
        topics = {tp.topic for tp in partitions}
        known = self._ask(topics, timeout_s) if self._requests is not None else self._ask_librdkafka(topics, timeout_s)
        if known is None:
            return frozenset()
        return frozenset(tp.topic for tp in partitions if tp.partition not in known.get(tp.topic, [tp.partition]))

    def close(self) -> None:
        """Close the connections."""
        self._admin = None
        if self._requests is not None:
            self._requests.close()

    def _ask(self, topics: Collection[str], timeout_s: float) -> Mapping[str, Collection[int]] | None:
        """Return the partitions of each topic, none of one that does not exist; None without an answer."""
        assert self._requests is not None
        try:
            found = self._requests.topics(topics, timeout_s=timeout_s)
        except (TryAgainError, KafkaGroupError):
            return None
        return {topic: found[topic].leader_epochs.keys() if topic in found else () for topic in topics}

    def _ask_librdkafka(self, topics: Collection[str], timeout_s: float) -> Mapping[str, Collection[int]] | None:
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        found: dict[str, Collection[int]] = {}
        try:
            if self._admin is None:
                self._admin = AdminClient(client_properties(ClientKind.ADMIN, self._properties))
            # Deliberate: neither the producer nor list_topics(topic), which might create the topic anew.
            answers = self._admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=timeout_s)
        except (KafkaException, ValueError, TypeError):
            return None
        for topic, answer in answers.items():
            try:
                found[topic] = range(len(answer.result(timeout_s).partitions))
            except TimeoutError:
                return None
            except KafkaException as problem:
                if has(problem.args[0].name(), Consequence.NO_TOPIC):
                    found[topic] = ()
        return found
