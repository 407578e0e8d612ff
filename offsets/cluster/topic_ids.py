"""Topic ids of librdkafka's, as Kafka prints them."""

from __future__ import annotations

_KAFKAS_BASE64 = str.maketrans("+/", "-_")


def topic_id_text(topic_id: object) -> str | None:
    """Return a topic id of librdkafka's as Kafka prints it, and as our own requests return it; None if it is none.

    librdkafka 2.16 prints base64 with ``+`` and ``/``, Kafka with ``-`` and ``_``: taken as they are, every second id
    would look like that of another topic.

    Parameters
    ----------
    topic_id : confluent_kafka.Uuid
        What an admin client has returned, or its text.
    """
    text = str(topic_id)
    # A broker without topic ids gives zero, which is all A in base64.
    return None if topic_id is None or not text.strip("A") else text.translate(_KAFKAS_BASE64)
