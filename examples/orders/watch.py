"""Watch the demo from the outside: Kafka's own view of the group, and the applications' event logs.

Ownership and lag come from Kafka, as any monitoring tool would see them. Hand-overs come from the event logs, because
those also contain the moments between two polls of Kafka.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

POLL_INTERVAL_S = 0.5
REQUEST_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One poll of Kafka. `owners` is None if the broker does not report them (the mock)."""

    at: float
    owners: Mapping[int, str] | None
    committed: Mapping[int, int]
    ends: Mapping[int, int]

    def lag(self, partition: int) -> int:
        """Return the number of records that the group has not committed yet."""
        return self.ends.get(partition, 0) - self.committed.get(partition, 0)

    @property
    def total_lag(self) -> int:
        """The lag of all partitions together."""
        return sum(map(self.lag, self.ends))


class KafkaWatch:
    """Poll the group twice a second, in a separate thread, so that a slow broker does not freeze the screen."""

    def __init__(self, servers: str, group: str, topic: str, partitions: int, *, describes_groups: bool) -> None:
        self._servers, self._group, self._topic, self._partitions = servers, group, topic, partitions
        self._describes_groups = describes_groups
        self._stop = threading.Event()
        self._latest = Snapshot(at=time.time(), owners=None, committed={}, ends={})
        self.problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-watch", daemon=True)

    def start(self) -> None:
        """Start to poll. The topic must exist."""
        self._thread.start()

    @property
    def latest(self) -> Snapshot:
        """The newest complete poll."""
        return self._latest

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2 * REQUEST_TIMEOUT_S)

    def _run(self) -> None:
        from confluent_kafka import Consumer, KafkaException
        from confluent_kafka.admin import AdminClient

        # log_level 2: librdkafka's own log lines would damage the screen, which already shows problems.
        common: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self._servers,
            "log_level": 2,
            "client.id": "orders-watch",
        }
        admin = AdminClient(common)
        # This consumer never subscribes. It has the group's name only to request the group's offsets.
        asker = Consumer({**common, "group.id": self._group, "enable.auto.commit": False})
        while not self._stop.wait(POLL_INTERVAL_S):
            try:
                self._latest = self._look(admin, asker)
                self.problem = None
            except (KafkaException, TimeoutError) as error:
                self.problem = f"no answer from Kafka: {error}"
        asker.close()

    def _look(self, admin: Any, asker: Any) -> Snapshot:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        wanted = [TopicPartition(self._topic, p) for p in range(self._partitions)]
        committed = asker.committed(wanted, timeout=REQUEST_TIMEOUT_S)
        futures = admin.list_offsets({tp: OffsetSpec.latest() for tp in wanted}, request_timeout=REQUEST_TIMEOUT_S)
        return Snapshot(
            at=time.time(),
            owners=self._owners(admin) if self._describes_groups else None,
            committed={tp.partition: max(tp.offset, 0) for tp in committed},
            ends={tp.partition: future.result(REQUEST_TIMEOUT_S).offset for tp, future in futures.items()},
        )

    def _owners(self, admin: Any) -> dict[int, str]:
        from confluent_kafka import KafkaError, KafkaException

        future = admin.describe_consumer_groups([self._group], request_timeout=REQUEST_TIMEOUT_S)[self._group]
        try:
            members = future.result(REQUEST_TIMEOUT_S).members
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:  # no application has joined yet
                return {}
            raise
        return {tp.partition: m.client_id for m in members for tp in m.assignment.topic_partitions}


class EventLogs:
    """The event logs of all applications as one stream, in order of time."""

    # Two files cannot be read at the same instant, so an earlier event may still come from the other file.
    SETTLE_S = 0.5

    def __init__(self) -> None:
        self._read: dict[Path, int] = {}
        self._names: dict[Path, str] = {}
        self._waiting: list[tuple[float, str, dict[str, Any]]] = []

    def add(self, application: str, path: Path) -> None:
        """Follow this file, even if it does not exist yet."""
        self._names[path] = application
        self._read[path] = 0

    def new_events(self, now: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (application, event), each once."""
        for path, name in self._names.items():
            self._waiting += [(event["time"], name, event) for event in self._new_lines(path)]
        self._waiting.sort(key=lambda item: item[0])
        while self._waiting and self._waiting[0][0] <= now - self.SETTLE_S:
            _, name, event = self._waiting.pop(0)
            yield name, event

    def _new_lines(self, path: Path) -> Iterator[dict[str, Any]]:
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read[path])
            for line in file:
                if not line.endswith(b"\n"):  # not complete yet: read it next time
                    return
                self._read[path] += len(line)
                yield json.loads(line)


class LiveHandOver(NamedTuple):
    """Partitions that moved from one application to another: one released them, and the other started them."""

    partitions: tuple[int, ...]
    old: str
    new: str
    seconds: float


@dataclass(slots=True)
class Owners:
    """The owner of each partition as the applications report it, and the resulting hand-overs."""

    now: dict[int, str] = field(default_factory=dict)
    _left: dict[int, tuple[str, float]] = field(default_factory=dict)
    _moved: dict[tuple[str, str], list[tuple[int, float, float]]] = field(default_factory=dict)

    def apply(self, application: str, event: Mapping[str, Any]) -> None:
        """Process one event of one application's log."""
        if event["event"] == "started":
            for partition in map(number, event["positions"]):
                self.now[partition] = application
                if partition in self._left:
                    old, since = self._left.pop(partition)
                    if old != application:
                        moved = self._moved.setdefault((old, application), [])
                        moved.append((partition, event["time"] - since, event["time"]))
        elif event["event"] in ("released", "lost"):
            for partition in map(number, event["partitions"]):
                self._leave(application, partition, event["time"])
        elif event["event"] == "left":  # releases the rest, for which a batch was still running
            for partition in [p for p, owner in self.now.items() if owner == application]:
                self._leave(application, partition, event["time"])

    def _leave(self, application: str, partition: int, at: float) -> None:
        if self.now.get(partition) == application:
            del self.now[partition]
        self._left[partition] = (application, at)

    def hand_overs(self, now: float, settle_s: float = 1.0) -> list[LiveHandOver]:
        """Return each hand-over once, at least `settle_s` after its end, merged for each pair of applications."""
        ready = [pair for pair, moved in self._moved.items() if now - max(at for _, _, at in moved) >= settle_s]
        found = []
        for pair in ready:
            moved = sorted(self._moved.pop(pair))
            found.append(LiveHandOver(tuple(p for p, _, _ in moved), *pair, max(took for _, took, _ in moved)))
        return found


def number(topic_partition: str) -> int:
    """Return 3 for "orders-3"."""
    return int(topic_partition.rpartition("-")[2])
