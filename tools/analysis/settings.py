"""The settings of brokers and topics, for whom may see them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.client_config import Properties, client_error, connection_properties

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConfigResource

_REQUEST_S = 10.0


def broker_settings(properties: Properties, node_id: int) -> dict[str, str] | None:
    """Return the settings of a broker by their names; None if it does not tell them, for lack of a right say.

    Parameters
    ----------
    properties : mapping
        Properties of the client, as librdkafka names them.
    node_id : int
        The id of the broker.
    """
    from confluent_kafka.admin import ConfigResource

    return _settings(properties, [ConfigResource(ConfigResource.Type.BROKER, str(node_id))]).get(str(node_id))


def topic_settings(properties: Properties, names: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the settings of topics; those that are not told are left out."""
    from confluent_kafka.admin import ConfigResource

    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(names)]
    return _settings(properties, resources) if resources else {}


def _settings(properties: Properties, resources: list[ConfigResource]) -> dict[str, dict[str, str]]:
    from confluent_kafka import KafkaException

    admin = _admin(properties)
    found = {}
    try:
        for resource, answer in admin.describe_configs(resources, request_timeout=_REQUEST_S).items():
            try:
                entries = answer.result().values()
            except KafkaException:
                continue
            found[str(resource.name)] = {entry.name: entry.value for entry in entries if entry.value is not None}
    except (KafkaException, ValueError, TypeError):
        return {}
    return found


def _admin(properties: Properties) -> AdminClient:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient({**connection_properties(properties), "log_level": 0})
    except (KafkaException, ValueError, TypeError) as problem:
        raise client_error(problem, properties) from None
