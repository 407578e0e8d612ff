"""Keeps consumers of readers between tasks, one cache per Python worker process.

A new consumer costs connections, TLS and SASL handshakes and metadata requests.  A kept one has already paid for them.
The cache lends a consumer to one task at a time.  It keeps the consumer only if the task has succeeded, so no cached
consumer is in an unknown state.

Any thread may borrow a consumer.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pyspark_kafka_group.cluster.properties.kafka_properties import is_in_table
from pyspark_kafka_group.columns.chunk_reader import CHUNKS
from pyspark_kafka_group.columns.native_library import READER_OVERRIDE, reader_override
from pyspark_kafka_group.columns.record_batches import BATCHES
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.reader_client import ReaderClient
from pyspark_kafka_group.reading.reader_config import direct_settings, librdkafka_config

_log = logging.getLogger("pyspark_kafka_group.reading")

IDLE_S = 60.0
"""How long the cache keeps an unused consumer, in seconds: as long as Spark keeps idle Python workers.  After that, the
next task of any query closes it."""

MAX_IDLE = 4
"""How many unused consumers the cache keeps.  A worker runs one task at a time, with one consumer per configuration
(per query).  More than a few belong to configurations that do not return."""

_MAX_STALE_EVENTS = 1000
"""The largest number of events to drop from a cached consumer's queue, in case events keep coming."""

_FORKED: list[Any] = []
"""Consumers inherited through a fork.  librdkafka's threads do not exist in the child.  To close such a consumer, or to
let Python free it, would wait for them for ever.  So the list keeps them, unused, until the process ends."""


def open_client(config: Mapping[str, str]) -> ReaderClient:
    """Return a new client of the fastest kind available.

    Raises
    ------
    OptionError
        If librdkafka refuses a property, or our own connections do not support it.
    """

    def open_fallback() -> ReaderClient:
        # Deliberate: not at the top.  Most workers never need it, and the import takes 10 ms.
        from pyspark_kafka_group.reading.message_client import MessageClient

        return MessageClient(librdkafka_config(config))

    check_names(config)
    if missing := _missing_parts():
        _say_once(missing)
        return open_fallback()
    return DirectClient(config, direct_settings(config), open_fallback)


def _missing_parts() -> str:
    """Return why the direct client is not available; empty if it is."""
    if reader_override() == "off":
        return f"{READER_OVERRIDE} is off"
    return CHUNKS.problem or BATCHES.problem


@cache
def _say_once(reason: str) -> None:
    level = logging.INFO if reader_override() == "off" else logging.WARNING
    _log.log(level, "Reading through Python objects, which is slower: %s.", reason)


def check_names(config: Mapping[str, str]) -> None:
    """Let librdkafka check the properties that the table does not have.  Our own connections ignore them.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.
    """
    if not all(map(is_in_table, config)):
        from pyspark_kafka_group.reading.message_client import open_consumer

        open_consumer(librdkafka_config(config), {}).close()


@dataclass(slots=True, eq=False)
class _Idle:
    key: str
    client: ReaderClient
    since: float = field(default_factory=time.monotonic)


class ConsumerCache:
    """Lends out consumers by configuration.

    Parameters
    ----------
    create
        Creates a client for a configuration.
    idle_s
        How long an unused consumer is kept, in seconds.
    max_idle
        How many unused consumers are kept.  The one unused longest is closed first.
    """

    def __init__(
        self,
        create: Callable[[Mapping[str, str]], ReaderClient] = open_client,
        *,
        idle_s: float = IDLE_S,
        max_idle: int = MAX_IDLE,
    ) -> None:
        self._create = create
        self._idle_s = idle_s
        self._max_idle = max_idle
        self._start_in_this_process()

    def _start_in_this_process(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards the list; never held during a call to a consumer
        self._idle: list[_Idle] = []  # the one unused longest comes first

    @contextmanager
    def lease(self, config: Mapping[str, str]) -> Iterator[ReaderClient]:
        """Lend a consumer with this configuration and without an assignment.

        If the block succeeds, the consumer returns to the cache.  Any exception closes it.  This includes
        ``GeneratorExit``, with which Spark ends a reader early (``LIMIT``): fetched records are still in the queue.
        """
        key = _digest(config)
        client = self._take(key) or self._create(config)
        pid = os.getpid()
        try:
            yield client
            if os.getpid() == pid:
                client.unassign_all()
        except BaseException:
            _end(client, pid)
            raise
        if os.getpid() == pid:
            self._keep(_Idle(key, client))
        else:
            _end(client, pid)

    def close_idle(self) -> None:
        """Close all consumers in the cache."""
        self._forget_parent()
        with self._lock:
            idle, self._idle = self._idle, []
        _end_all(idle)

    def _take(self, key: str) -> ReaderClient | None:
        self._forget_parent()
        oldest = time.monotonic() - self._idle_s
        with self._lock:
            expired = [idle for idle in self._idle if idle.since <= oldest]
            del self._idle[: len(expired)]
            found = next((idle for idle in reversed(self._idle) if idle.key == key), None)
            if found is not None:
                self._idle.remove(found)
        _end_all(expired)
        if found is None:
            return None
        # Drop errors from before this task: a broker may have restarted while the consumer was unused.
        for _ in range(_MAX_STALE_EVENTS):
            if not found.client.discard():
                break
        found.client.errors.clear()
        return found.client

    def _keep(self, idle: _Idle) -> None:
        with self._lock:
            self._idle.append(idle)
            surplus = self._idle[: -self._max_idle]
            del self._idle[: len(surplus)]
        _end_all(surplus)

    def _forget_parent(self) -> None:
        if os.getpid() != self._pid:
            _FORKED.extend(self._idle)
            # Deliberate: also a new lock.  Another thread of the parent may have held the old one at the fork.
            self._start_in_this_process()


CONSUMERS = ConsumerCache()
"""The cache of this process.  It starts no thread and opens no connection before its first use."""


def _digest(config: Mapping[str, str]) -> str:
    """Return a key that reveals nothing about the configuration, whose values may be secret."""
    return hashlib.sha256(repr(sorted(config.items())).encode()).hexdigest()


def _end_all(idle: list[_Idle]) -> None:
    for entry in idle:
        _end(entry.client, os.getpid())


def _end(client: ReaderClient, pid: int) -> None:
    """Close a consumer in any state; `pid` is the process that lent it."""
    if os.getpid() != pid:
        _FORKED.append(client)
        return
    try:
        client.close()
    except Exception as error:
        _log.debug("closing a reader consumer failed: %s", error)
