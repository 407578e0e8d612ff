"""Compute how KEDA's Kafka scaler would scale a group, from the broker's answers.  KEDA itself does not run.

The rules are those of KEDA 2.16 (``pkg/scalers/kafka_scaler.go``).  The lag of a partition is the log end minus the
committed offset.  Without a committed offset, ``offsetResetPolicy`` and ``scaleToZeroOnInvalidOffset`` decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from integration.cluster import committed, log_ends

# A consumer of confluent-kafka returns this if there is no offset.
_NONE = -1001


class Scaling(NamedTuple):
    """The answer of a trigger.

    Attributes
    ----------
    active : bool
        Whether KEDA runs any replica at all.
    lag : int
        The metric that KEDA divides by ``lagThreshold``.
    """

    active: bool
    lag: int


class KafkaTrigger:
    """A trigger of type ``kafka``, which remembers the offsets of the last call.

    Parameters
    ----------
    metadata : mapping of str to str
        The metadata of the manifest.
    bootstrap, group, topic : str
        Values that replace those of the manifest.
    partitions : int
        The number of partitions of the topic.
    """

    def __init__(self, metadata: Mapping[str, str], *, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self._metadata = metadata
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._partitions = range(partitions)
        self._before: dict[int, int] = {}

    def look(self) -> Scaling:
        """Request the offsets from the broker, and return KEDA's answer to them."""
        offsets = committed(self._bootstrap, self._group, self._topic, self._partitions)
        ends = log_ends(self._bootstrap, [(self._topic, number) for number in self._partitions])
        found = [self._lag(number, offsets[number], ends[self._topic, number]) for number in self._partitions]
        metric, threshold = sum(lag for lag, _ in found), int(self._metadata["lagThreshold"])
        if not self._is("allowIdleConsumers") or self._is("limitToPartitionsWithLag"):
            most = len(found)
            if self._is("limitToPartitionsWithLag"):
                most = sum(lag > 0 for lag, _ in found)
            if metric // threshold > most:
                metric = most * threshold
        active = sum(persistent for _, persistent in found) > int(self._metadata["activationLagThreshold"])
        return Scaling(active, metric)

    def _lag(self, number: int, offset: int, end: int) -> tuple[int, int]:
        """Return two lags of a partition: without and with a lag that counts as persistent."""
        if offset == _NONE:
            zero = self._is("scaleToZeroOnInvalidOffset")
            lag = end if self._metadata["offsetResetPolicy"] == "earliest" else 1
            return (0, 0) if zero else (lag, lag)
        if self._is("excludePersistentLag"):
            before = self._before.get(number)
            self._before[number] = offset
            if before == offset:
                return 0, end - offset
        return end - offset, end - offset

    def _is(self, key: str) -> bool:
        return self._metadata[key] == "true"
