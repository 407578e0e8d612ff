"""The producers of tasks: which kind a task gets, and those kept between tasks, in each Python worker process.

A new producer costs the connections, logins and metadata requests that the last task has already paid for.  One is
lent to one task at a time, and comes back only from a task that has written everything.  Producers of transactions are
not kept: each has a transactional id of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from pyspark_kafka_group.columns.librdkafka_library import load_problem
from pyspark_kafka_group.columns.native_library import reader_override
from pyspark_kafka_group.writing.native_producer import SIGNATURES, NativeProducer
from pyspark_kafka_group.writing.native_rows import PRODUCE
from pyspark_kafka_group.writing.producer import MessageProducer, SinkProducer, log

_MAX_IDLE = 4  # a worker runs one task at a time, so more are of writes that are over

_idle: dict[tuple[int, frozenset[tuple[str, str]]], SinkProducer] = {}


@contextmanager
def lease(config: Mapping[str, str]) -> Iterator[SinkProducer]:
    """Lend a producer of this configuration; one that was kept, if there is one.

    Raises
    ------
    OptionError
        librdkafka refuses a property.
    """
    # Deliberate: by process.  What was inherited through a fork has no threads, and is left alone.
    key = os.getpid(), frozenset(config.items())
    producer = _idle.pop(key, None) or open_producer(config)
    try:
        yield producer
    except BaseException:
        producer.close()
        raise
    _idle[key] = producer
    for surplus in [kept for kept in _idle if kept[0] == key[0]][:-_MAX_IDLE]:
        _idle.pop(surplus).close()


def open_producer(config: Mapping[str, str]) -> SinkProducer:
    """Return a new producer: the faster one, if it can be had.

    Raises
    ------
    OptionError
        librdkafka refuses a property.
    """
    missing = _missing()
    if missing:
        _say_once(missing)
        return MessageProducer(config)
    return NativeProducer(config)


@cache
def _missing() -> str:
    """Return why there can be no fast producer; empty if there can."""
    if reader_override() == "off":
        return "it is switched off"
    return PRODUCE.problem or load_problem(SIGNATURES)


@cache
def _say_once(reason: str) -> None:
    log.warning("Writing by way of Python objects, which is slower: %s.", reason)
