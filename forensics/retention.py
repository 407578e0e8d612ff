"""How long the brokers keep offsets that nobody uses."""

from __future__ import annotations

from pyspark_kafka_group.offsets.client_config import Properties, client_error, connection_properties

_PROPERTY = "offsets.retention.minutes"
_REQUEST_S = 10.0


def offsets_retention_s(properties: Properties, node_id: int) -> float | None:
    """Return a broker's ``offsets.retention.minutes``, in seconds; None if it does not tell, for lack of a right say.

    Parameters
    ----------
    properties : mapping
        Properties of the client, as librdkafka names them.
    node_id : int
        The id of the broker.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource

    try:
        admin = AdminClient({**connection_properties(properties), "log_level": 0})
    except (KafkaException, ValueError, TypeError) as problem:
        raise client_error(problem, properties) from None
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id))
    try:
        (answer,) = admin.describe_configs([resource], request_timeout=_REQUEST_S).values()
        entry = answer.result().get(_PROPERTY)
        return None if entry is None else float(entry.value) * 60
    except (KafkaException, ValueError, TypeError):
        return None
