"""An environment variable that takes the faster ways of reading away, for comparisons."""

from __future__ import annotations

import os

READER_OVERRIDE = "KAFKA_GROUP_ACCELERATOR"
"""With ``librdkafka`` readers do not fetch by themselves, with ``off`` they use confluent-kafka's message objects."""


def reader_override() -> str:
    """Return what :data:`READER_OVERRIDE` says; empty if nothing."""
    return os.environ.get(READER_OVERRIDE, "").strip().lower()
