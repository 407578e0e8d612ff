"""Chooses the producer of each task, and keeps producers between tasks, in each Python worker process.

A new producer costs connections, logins and metadata requests.  A kept one has already paid for them.  The cache lends
a producer to one task at a time, and keeps it only if the task has written everything.  It does not keep producers with
transactions, because each has its own transactional id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from pyspark_kafka_group.columns.librdkafka_library import load_problem
from pyspark_kafka_group.columns.native_library import reader_override
from pyspark_kafka_group.offsets.client_login import needs_renewals
from pyspark_kafka_group.writing.native_producer import SIGNATURES, NativeProducer
from pyspark_kafka_group.writing.native_rows import PRODUCE
from pyspark_kafka_group.writing.producer import MessageProducer, SinkProducer, log

_MAX_IDLE = 4  # a worker runs one task at a time, so more idle producers belong to writes that have ended

_idle: dict[tuple[int, frozenset[tuple[str, str]]], SinkProducer] = {}


@contextmanager
def lease(config: Mapping[str, str]) -> Iterator[SinkProducer]:
    """Lend a producer with this configuration, a kept one if possible.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.
    """
    # Deliberate: by process.  A producer that was inherited through a fork has no threads, and is not used or closed.
    key = os.getpid(), frozenset(config.items())
    producer = _idle.pop(key, None) or open_producer(config)
    try:
        yield producer
    except BaseException:
        producer.close()
        raise
    if needs_renewals(config):
        # Deliberate: not kept.  Without a task, nobody would renew its token, and it would try to log in for ever.
        producer.close()
        return
    _idle[key] = producer
    for surplus in [kept for kept in _idle if kept[0] == key[0]][:-_MAX_IDLE]:
        _idle.pop(surplus).close()


def open_producer(config: Mapping[str, str]) -> SinkProducer:
    """Return a new producer, the faster kind if possible.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.
    """
    missing = _missing()
    if missing:
        _say_once(missing)
        return MessageProducer(config)
    return NativeProducer(config)


@cache
def _missing() -> str:
    """Return why the fast producer is not available; empty if it is."""
    if reader_override() == "off":
        return "it is switched off"
    return PRODUCE.problem or load_problem(SIGNATURES)


@cache
def _say_once(reason: str) -> None:
    log.warning("The sink writes through Python objects, which is slower: %s.", reason)
