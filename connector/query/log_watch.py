"""Looks where the logs end, and whether they are still the logs that the query has read.

A look costs little for a few partitions and milliseconds of CPU for many thousands, so what a look costs decides how
often to look.  The leaders are asked directly (`direct_log_ends`), or by librdkafka where that does not go as expected;
its requests run on a thread of their own, and all else belongs to the thread that Spark calls.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.log_ends import LogEnds, TopicIds
from pyspark_kafka_group.offsets.redaction import redact
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.query.direct_log_ends import (
    NO_LIMIT,
    DirectLogEnds,
    UnknownPartitionsError,
    open_direct_log_ends,
)
from pyspark_kafka_group.query.log_inspection import Changes, LogInspection
from pyspark_kafka_group.query.planning import LeaderEpochs, Plannable
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.types import Address, ProtocolError, UnsupportedVersionError

_log = logging.getLogger(__name__)

# The shortest pause between two looks.  Spark's own source looks every 10 ms.
_SHORTEST_PAUSE_S = 0.005

# The longest: what comes to very many partitions is seen at least this soon.
_LONGEST_PAUSE_S = 1.0

# A pause is this share of the time for which nothing has come ...
_LATER_SHARE = 0.1

# ... until looks, and the calls of Spark between them, take no more than this share of a core.  After a pause a look
# costs 0.3 to 0.5 ms, right after another one 0.05: most of it is waking up.  For the sake of latency it may come this
# often in any case.
_CPU_SHARE = 0.01
_CHEAP_PAUSE_S = 0.05

# What the last look cost counts for this much: the cost of one is a matter of chance.
_NEWEST_SHARE = 0.25

# Longer than one request may take.
_PATIENCE_S = 15.0

# How long to leave the question to librdkafka where brokers did not answer it directly: longer each time, because it
# takes seconds to find that out.
_FIRST_BACKOFF_S = 30.0
_LAST_BACKOFF_S = 300.0

# For how long nothing is planned behind a position that no leader confirms, where librdkafka tells the log ends: a
# broker that has failed may come back with a truncated log, and librdkafka does not tell leader epochs.
_UNCONFIRMED_S = 30.0

# For how long to leave out a topic that a broker does not know.
_UNKNOWN_PAUSE_S = 0.5

_UNCONFIRMED = "its leader has not confirmed that the log is still the same"

# How often to warn that log ends are not to be had.
_WARN_PAUSE_S = 10.0


def pause_s(idle_s: float, cost_s: float) -> float:
    """Return how long to pause before the next look.

    Parameters
    ----------
    idle_s : float
        For how long nothing has come.
    cost_s : float
        CPU time of one look, and of the calls of Spark since the one before.
    """
    longest_s = min(max(_CHEAP_PAUSE_S, cost_s / _CPU_SHARE), _LONGEST_PAUSE_S)
    return min(max(_SHORTEST_PAUSE_S, cost_s, _LATER_SHARE * idle_s), longest_s)


class Pace:
    """Says when to look again.

    Attributes
    ----------
    due_at : Deadline
        When the next look is due.
    """

    def __init__(self) -> None:
        self.due_at = Deadline.after(0)
        self._news_at = time.monotonic()
        self._cost_s = 0.0
        self._calls_cpu_s = time.thread_time()

    @property
    def is_due_soon(self) -> bool:
        """Whether looks cost so little that one more does not matter."""
        return self.due_at.left_s <= _CHEAP_PAUSE_S

    @contextmanager
    def look(self) -> Iterator[None]:
        """Measure the look that goes on inside; the next one is due after a pause."""
        calls_s = time.thread_time() - self._calls_cpu_s
        begin_s = time.process_time()
        try:
            yield
        finally:
            cost_s = calls_s + time.process_time() - begin_s
            self._cost_s += _NEWEST_SHARE * (cost_s - self._cost_s)
            self.due_at = Deadline.after(pause_s(time.monotonic() - self._news_at, self._cost_s))
            self._calls_cpu_s = time.thread_time()

    def news(self) -> None:
        """Note that something has come: the next look is due at once, and those after it soon."""
        self._news_at = time.monotonic()
        self.due_at = Deadline.after(0)


class LogWatch:
    """Where the logs of a query's partitions end, and whether they are still the same logs.

    Parameters
    ----------
    settings : GroupSettings
        The group, its topics and its properties.

    Attributes
    ----------
    version : int
        Rises with each look that finds anything else than the one before: other ends, other leader epochs, other
        partitions that were asked for, or another client that answered.  While it stays, whoever has seen that there
        is nothing to do need not look at the ends again.
    looked_at : float or None
        When it was looked last, by the monotonic clock.
    known_ends : mapping of TopicPartition to Offset
        The log ends of the last look; where it found none, those of an earlier one.  Replaced as a whole.
    """

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._worker = DaemonExecutor("kafka-group-log-ends")
        self._client: LogEnds | None = None
        self._direct = open_direct_log_ends(
            settings.properties, client_id=f"{settings.group_id}-offsets", read_committed=settings.read_committed
        )
        self._direct_at = Deadline.after(0)
        self._rest_s = _FIRST_BACKOFF_S
        self._warn_at = Deadline.after(0)
        self._ends: Mapping[TopicPartition, Offset] = {}
        self._leader_epochs: LeaderEpochs = {}
        self._unknown: dict[str, float] = {}  # topics that a broker does not know, and since when
        self._ids_asked: TopicIds | None = None
        self._has_epoch_ends = True
        self._by_librdkafka = False  # whether it has told the ends of the last look
        self._unconfirmed_since: float | None = None
        self._inspection = LogInspection(self._topic_ids, self._epoch_ends, self._why_no_epoch_end)
        self._problem = ""  # why the last look has no end of some partitions, where librdkafka was asked
        self.known_ends: Mapping[TopicPartition, Offset] = {}
        self._found: object = None  # by the last look, all that tells it from another one
        self.version = 0
        self.pace = Pace()
        self.looked_at: float | None = None

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """The epochs of the leaders that answered the last look; empty where librdkafka was asked."""
        return self._leader_epochs

    @property
    def leaders(self) -> Mapping[TopicPartition, Address]:
        """Who leads the partitions, as far as that is known here: where librdkafka was asked it is not."""
        return {} if self._direct is None else self._direct.leaders

    @property
    def strange(self) -> bool:
        """Whether the last inspection has seen something that calls for another one."""
        return self._inspection.strange

    def look(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Return where the logs end now, without those of brokers that do not answer; see :attr:`version`."""
        self._ends = self._list(partitions)
        self.looked_at = time.monotonic()
        missing = {} if len(self._ends) >= len(partitions) else {tp for tp in partitions if tp not in self._ends}
        old = {tp: self.known_ends[tp] for tp in missing if tp in self.known_ends}
        known = {**old, **self._ends} if old else self._ends
        if not old or known != self.known_ends:  # the same mapping as long as it says the same
            self.known_ends = known
        # Compared by value.  It costs little where nothing is new: the clients return the mappings that they returned
        # before, and Python compares no object with itself.
        found = (self._ends, self._leader_epochs, self._by_librdkafka, [*partitions])
        if found != self._found:
            self._found = found
            self.version += 1
        return self._ends

    def inspect(self, plannable: Plannable, *, news: bool) -> Changes:
        """Return what has happened to the logs since their partitions got their positions; after :meth:`look`.

        Parameters
        ----------
        plannable : Plannable
            The partitions of the last look and their positions.
        news : bool
            Whether a batch is about to be planned.
        """
        changes = self._inspection.inspect(plannable, self._ends, self._leader_epochs, news=news)
        if changes.unsure and self._direct is not None and not self._by_librdkafka:
            self._direct.refind_leaders()
        if self._by_librdkafka and self._direct is not None and self._direct_at.passed:
            # Leaders answer again: the next look tells under which epoch the log reaches to its end.
            known = {tp for tp, position in plannable.items() if position.leader_epoch is not None}
            changes = replace(changes, unsure=changes.unsure | (known - changes.truncated))
        return changes

    def held_back(self, plannable: Plannable, changes: Changes) -> dict[TopicPartition, str]:
        """Return the partitions that cannot be planned after the last look and inspection, and why."""
        if not (self._inspection.strange or changes.unsure):
            return {}
        silent = {tp: self._silence_of(tp) for tp in plannable if tp not in self._ends}
        return {**{tp: self._inspection.reasons.get(tp, _UNCONFIRMED) for tp in changes.unsure}, **silent}

    def _silence_of(self, tp: TopicPartition) -> str:
        if tp.topic in self._unknown:
            return "the brokers do not know its topic"
        if not self._by_librdkafka:
            return "it has no leader"
        return f"its broker does not tell where the log ends{f': {self._problem}' if self._problem else ''}"

    def close(self) -> None:
        """Close the connections and end the threads; returns before that is done."""
        if self._direct is not None:
            self._direct.close()
        if self._client is not None:
            self._worker.submit(self._client.close)
            self._client = None
        self._worker.close()

    # -- where the logs end

    def _list(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """List log ends; empty if the cluster does not answer."""
        if self._direct is not None and self._direct_at.passed:
            try:
                ends = self._direct_ends(self._direct, partitions)
            except (OSError, ProtocolError) as problem:
                self._rest(problem)
            else:
                self._rest_s = _FIRST_BACKOFF_S
                self._leader_epochs = self._direct.leader_epochs
                self._by_librdkafka, self._unconfirmed_since, self._problem = False, None, ""
                return ends
        self._leader_epochs, self._by_librdkafka = {}, True
        try:
            return self._worker.submit(self._librdkafka().ends, partitions).result(_PATIENCE_S)
        except (TryAgainError, TimeoutError) as problem:
            self._problem = redact(str(problem) or "no answer", self._settings.properties)
            if self._warn_at.passed:
                self._warn_at = Deadline.after(_WARN_PAUSE_S)
                _log.warning("group %s: no log ends just now: %s", self._settings.group_id, str(problem) or "no answer")
            return {}

    def _direct_ends(
        self, direct: DirectLogEnds, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Offset]:
        """List log ends of the topics that brokers know; one that was deleted must not hold up the others."""
        now = time.monotonic()
        self._unknown = {topic: at for topic, at in self._unknown.items() if now < at + _UNKNOWN_PAUSE_S}
        while True:
            wanted = [tp for tp in partitions if tp.topic not in self._unknown] if self._unknown else partitions
            if not wanted:
                return {}
            try:
                return direct.ends(wanted)
            except UnknownPartitionsError as problem:
                self._unknown |= dict.fromkeys(problem.topics, now)

    def _rest(self, problem: Exception) -> None:
        text = self._problem = redact(str(problem) or "no answer", self._settings.properties)
        _log.info("group %s: asking librdkafka for log ends: %s", self._settings.group_id, text)
        self._direct_at = Deadline.after(self._rest_s)
        self._rest_s = min(2 * self._rest_s, _LAST_BACKOFF_S)

    def _librdkafka(self) -> LogEnds:
        if self._client is None:
            self._client = self._worker.submit(
                LogEnds,
                self._settings.properties,
                group_id=self._settings.group_id,
                read_committed=self._settings.read_committed,
            ).result()
        return self._client

    # -- which logs they are

    def _topic_ids(self, topics: Collection[str], wait: bool) -> Mapping[str, str | None] | None:
        """Return the ids of these topics; None if nobody answers, or not yet."""
        if self._direct is not None and self._direct_at.passed:
            try:
                return self._direct.topic_ids(topics)
            except (OSError, ProtocolError) as problem:
                _log.debug("group %s: no topic ids: %s", self._settings.group_id, problem)
        if self._ids_asked is None:
            try:
                self._ids_asked = self._worker.submit(self._librdkafka().ask_topic_ids, topics).result(_PATIENCE_S)
            except (TryAgainError, TimeoutError):
                return None
        if not (wait or self._ids_asked.here):
            return None
        asked, self._ids_asked = self._ids_asked, None
        if not asked.of(topics):
            return None
        try:
            return asked.wait(_PATIENCE_S)
        except (TryAgainError, TimeoutError):
            return None

    def _epoch_ends(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> Mapping[TopicPartition, Offset]:
        if self._direct is None or not self._has_epoch_ends:
            return dict.fromkeys(epochs, NO_LIMIT)
        try:
            ends = self._direct.epoch_ends(epochs)
        except UnsupportedVersionError:
            self._has_epoch_ends = False
            return dict.fromkeys(epochs, NO_LIMIT)
        except (OSError, ProtocolError) as problem:
            _log.debug("group %s: no ends of leader epochs: %s", self._settings.group_id, problem)
            now = time.monotonic()
            self._unconfirmed_since = self._unconfirmed_since or now
            waited = self._by_librdkafka and now - self._unconfirmed_since > _UNCONFIRMED_S
            return dict.fromkeys(epochs, NO_LIMIT) if waited else {}
        if ends:
            self._direct_at = Deadline.after(0)
        return ends

    def _why_no_epoch_end(self, tp: TopicPartition) -> str:
        return "no answer" if self._direct is None else self._direct.epoch_errors.get(tp, "no answer")
