"""What librdkafka tells of topics, where it has to be asked: how many partitions they have, and their ids."""

from __future__ import annotations

from collections.abc import Collection

from pyspark_kafka_group.offsets.cluster.cluster_answers import TopicInfo
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.topic_ids import topic_id_text
from pyspark_kafka_group.offsets.cluster.unjoined_consumer import UnjoinedConsumer
from pyspark_kafka_group.offsets.properties.client_config import Properties

# How long topic ids may take; a broker that does not know the question may not answer at all.
_IDS_TIMEOUT_S = 1.0


class TopicConsumer(UnjoinedConsumer):
    """Asks for topics, too.  Belongs to one thread."""

    def __init__(self, properties: Properties, *, group_id: str, isolation: str) -> None:
        super().__init__(properties, group_id=group_id, isolation=isolation)
        self._has_topic_ids: bool | None = None  # None: they were not asked for yet

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Return the topics that exist, without the epochs of their leaders.

        Raises
        ------
        TryAgainError
            If the cluster does not answer.
        """
        # By the admin client: it is connected then, and what it is asked next is answered soon if at all.
        counts = {name: self.partition_count(name, client=self.admin_client()) for name in sorted(names)}
        there = [name for name, count in counts.items() if count]
        ids = self._ids(there)
        return {name: TopicInfo(ids.get(name), dict.fromkeys(range(counts[name]), -1)) for name in there}

    def _ids(self, names: Collection[str]) -> dict[str, str | None]:
        """Return the topics' ids; nothing where the brokers have none to tell."""
        from confluent_kafka import KafkaException, TopicCollection

        if not names or self._has_topic_ids is False:
            return {}
        wanted = TopicCollection([*names])
        asked = self.ask(lambda: self.admin_client().describe_topics(wanted, request_timeout=_IDS_TIMEOUT_S))
        found = {}
        for topic, answer in asked.items():
            try:
                found[topic] = topic_id_text(answer.result(_IDS_TIMEOUT_S).topic_id)
                self._has_topic_ids = True
            except TimeoutError:
                if self._has_topic_ids:
                    raise TryAgainError(f"topic {topic!r}: no answer") from None
                self._has_topic_ids = False  # librdkafka's mock cluster never answers
                return {}
            except KafkaException as problem:
                self.raise_if_final(problem.args[0], f"topic {topic!r}")
                raise TryAgainError(f"topic {topic!r}: {problem.args[0].name()}") from None
        return found
