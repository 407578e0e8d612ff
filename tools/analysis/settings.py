"""The settings of brokers and topics, if the user may see them."""

from __future__ import annotations

from collections.abc import Collection

from pyspark_kafka_group.offsets.properties.client_config import Properties, client_error, connection_properties

_REQUEST_S = 10.0


def broker_settings(properties: Properties, node_id: int | None) -> dict[str, str] | None:
    """Return the settings of a broker by name; None if the user may not see them, or the broker is not known."""
    return None if node_id is None else _settings(properties, "BROKER", [str(node_id)]).get(str(node_id))


def offsets_retention_s(properties: Properties, node_id: int | None) -> float | None:
    """Return the broker's ``offsets.retention.minutes``, in seconds; None if the user may not see it."""
    text = (broker_settings(properties, node_id) or {}).get("offsets.retention.minutes", "")
    return float(text) * 60 if text.isdecimal() else None


def topic_settings(properties: Properties, names: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the settings of topics by name, without topics whose settings the user may not see."""
    return _settings(properties, "TOPIC", sorted(names)) if names else {}


def _settings(properties: Properties, kind: str, names: Collection[str]) -> dict[str, dict[str, str]]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource

    try:
        admin = AdminClient({**connection_properties(properties), "log_level": 0})
    except (KafkaException, ValueError, TypeError) as problem:
        raise client_error(problem, properties) from None
    found = {}
    try:
        resources = [ConfigResource(ConfigResource.Type[kind], name) for name in names]
        for resource, answer in admin.describe_configs(resources, request_timeout=_REQUEST_S).items():
            try:
                entries = answer.result().values()
            except KafkaException:
                continue
            found[str(resource.name)] = {entry.name: entry.value for entry in entries if entry.value is not None}
    except (KafkaException, ValueError, TypeError):
        return {}
    return found
