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

from pyspark_kafka_group.cluster.properties.clients import needs_renewals
from pyspark_kafka_group.columns.native_library import reader_override
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.writing.direct_producer import DirectProducer
from pyspark_kafka_group.writing.direct_settings import NotSupportedError, direct_settings, tunes_librdkafka
from pyspark_kafka_group.writing.producer import MessageProducer, SinkProducer, log
from pyspark_kafka_group.writing.record_writer import RECORD_WRITER

_MAX_IDLE = 4  # a worker runs one task at a time, so more idle producers belong to writes that have ended

_IDLE_S = 180.0
"""How long a producer is kept without a task.  Azure, for one, drops connections after four silent minutes."""

_idle: dict[tuple[int, frozenset[tuple[str, str]]], tuple[SinkProducer, Deadline]] = {}


@contextmanager
def lease(config: Mapping[str, str]) -> Iterator[SinkProducer]:
    """Lend a producer with this configuration, a kept one if possible.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.
    """
    # Deliberate: by process.  A producer that was inherited through a fork has no threads, or shares connections with
    # the parent.  So it is not used or closed.
    key = os.getpid(), frozenset(config.items())
    for old in [other for other, (_, until) in _idle.items() if other[0] == key[0] and until.passed]:
        _idle.pop(old)[0].close()
    kept = _idle.pop(key, None)
    producer = kept[0] if kept else open_producer(config)
    try:
        yield producer
    except BaseException:
        producer.close()
        raise
    if isinstance(producer, MessageProducer) and needs_renewals(config):
        # Deliberate: not kept.  Without a task, nobody would renew its token, and it would try to log in for ever.
        producer.close()
        return
    _idle[key] = producer, Deadline.after(_IDLE_S)
    for surplus in [other for other in _idle if other[0] == key[0]][:-_MAX_IDLE]:
        _idle.pop(surplus)[0].close()


def open_producer(config: Mapping[str, str]) -> SinkProducer:
    """Return a new producer, the faster kind if possible.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.
    """
    if problem := _problem():
        _say_once(problem)
        return MessageProducer(config)
    try:
        settings = direct_settings(config)
    except NotSupportedError as problem:
        _say_once(str(problem))
        return MessageProducer(config)
    if tunes_librdkafka(config):
        _check(frozenset(item for item in config.items() if item[0] != "transactional.id"))
    return DirectProducer(config, settings)


@cache
def _check(config: frozenset[tuple[str, str]]) -> None:
    """Let librdkafka check a configuration with properties that the direct producer ignores."""
    MessageProducer(dict(config)).close()


def _problem() -> str:
    """Return why the faster producer is not available; empty if it is."""
    return "it is switched off" if reader_override() == "off" else RECORD_WRITER.problem


@cache
def _say_once(reason: str) -> None:
    log.warning("The sink writes with librdkafka and Python objects, which is slower: %s.", reason)
