"""The topics that match a pattern, checked at regular intervals."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor, unexpected
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator.loop import Loop
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# After this time without an answer, and then again after each such time, the log says that new topics are not found.
_WARN_S = 120.0


class TopicPattern:
    """Checks which topics match now.

    Parameters
    ----------
    pattern : str
        A regular expression for the whole name of a topic.
    refresh_s : float
        The pause between two checks, in seconds.
    worker : DaemonExecutor
        The thread for blocking requests.
    offsets : GroupOffsets
        The requests to the cluster; belongs to that thread.
    loop : Loop
        The loop of the group thread.
    """

    def __init__(
        self,
        pattern: str,
        *,
        refresh_s: float,
        worker: DaemonExecutor,
        offsets: GroupOffsets,
        loop: Loop,
    ) -> None:
        self._pattern = pattern
        self._refresh_s = refresh_s
        self._worker = worker
        self._offsets = offsets
        self._loop = loop
        self._look_at = Deadline.after(refresh_s)
        self._looking: Future[object] | None = None
        self._warn_at = time.monotonic() + _WARN_S  # if no check succeeds until then
        self._matching: frozenset[str] | None = None  # at the last check; written by the worker

    def matching(self) -> frozenset[str] | None:
        """Return the topics of the last check, None before the first; begin another check if one is due."""
        # The worker also serves starts of partitions, so only one check waits in its queue.
        if self._look_at.passed and (self._looking is None or self._looking.done()):
            self._look_at = Deadline.after(self._refresh_s)
            self._looking = self._worker.post(self._look)
            self._looking.add_done_callback(unexpected("Asking for the topics that match", self._loop.fail_later))
        return self._matching

    def _look(self) -> None:
        try:
            self._matching = frozenset(self._offsets.matching(self._pattern))
            self._warn_at = time.monotonic() + _WARN_S
        except TryAgainError as problem:  # the next check asks again
            if time.monotonic() >= self._warn_at:
                self._warn_at = time.monotonic() + _WARN_S
                _log.warning(
                    "subscribePattern %r: no broker has listed the topics for %g s or more (%s). New topics are not "
                    "found meanwhile.",
                    self._pattern,
                    _WARN_S,
                    problem,
                )
        except KafkaGroupError as problem:
            self._loop.fail_later(problem)


def pattern_of(
    settings: GroupSettings, *, worker: DaemonExecutor, offsets: GroupOffsets, loop: Loop
) -> TopicPattern | None:
    """Return a :class:`TopicPattern` with the same arguments; None if the query names its topics."""
    if settings.pattern is None:
        return None
    return TopicPattern(
        settings.pattern, refresh_s=settings.topics_refresh_s, worker=worker, offsets=offsets, loop=loop
    )
