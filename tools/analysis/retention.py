"""How long the brokers keep offsets that nobody uses."""

from __future__ import annotations

from pyspark_kafka_group.offsets.client_config import Properties
from pyspark_kafka_group.tools.analysis.settings import broker_settings

_PROPERTY = "offsets.retention.minutes"


def offsets_retention_s(properties: Properties, node_id: int) -> float | None:
    """Return a broker's ``offsets.retention.minutes``, in seconds; None if it does not tell, for lack of a right say.

    Parameters
    ----------
    properties : mapping
        Properties of the client, as librdkafka names them.
    node_id : int
        The id of the broker.
    """
    text = (broker_settings(properties, node_id) or {}).get(_PROPERTY, "")
    return float(text) * 60 if text.isdecimal() else None
