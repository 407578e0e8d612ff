"""Sample a group's offsets during a run, like tools do, and read every single commit afterwards."""

from __future__ import annotations

import struct
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from integration.burrow import Ends
from integration.oracles import Committed
from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.types import TopicPartition as Partition

_REQUEST_TIMEOUT_S = 5.0
_READ_PATIENCE_S = 60.0
_REPEATED = 3


class GroupMonitor:
    """A monitor that requests the group's committed offsets and the log ends about once a second, in the background.

    Attributes
    ----------
    committed : list of Committed
        One entry for each partition and sample.
    ends : list of Ends
        The log ends, one entry for each sample.
    failures : int
        The number of samples that the brokers did not answer.  Failures are common while a broker is down.
    vanished : list of str
        The requests and answers about offsets that existed before and then were missing.
    """

    def __init__(self, bootstrap: str, group: str, partitions: list[tuple[str, int]], *, every_s: float = 1.0) -> None:
        self.committed: list[Committed] = []
        self.ends: list[Ends] = []
        self.failures = 0
        self.vanished: list[str] = []
        self._group = group
        self._partitions = [TopicPartition(topic, number) for topic, number in partitions]
        self._every_s = every_s
        self._seen: set[str] = set()
        self._requests = connect({"bootstrap.servers": bootstrap}, client_id="group-monitor")
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        # Deliberate: not AdminClient.list_consumer_group_offsets.  It ends the process with a segmentation fault if the
        # coordinator is not there yet (confluent-kafka 2.16.1).  Without read_committed, the broker answers at once,
        # also while a transaction is open.  Its answer contains the offsets committed before the transaction.
        self._asking = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted", "log_level": 0}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group-monitor", daemon=True)

    def __enter__(self) -> GroupMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(3 * _REQUEST_TIMEOUT_S)
        self._asking.close()
        self._requests.close()

    @property
    def lag(self) -> int | None:
        """The group's lag according to the newest samples; None before the first sample."""
        if not self.ends or not self.committed:
            return None
        newest = {sample.tp: sample.offset or 0 for sample in self.committed[-len(self._partitions) :]}
        return sum(max(0, end - newest.get(tp, 0)) for tp, end in self.ends[-1].ends.items())

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            for sample in (self._sample_ends, self._sample_committed):
                try:
                    sample()
                except KafkaException:
                    self.failures += 1

    def _sample_ends(self) -> None:
        asked = time.time()
        answers = self._admin.list_offsets(
            {tp: OffsetSpec.latest() for tp in self._partitions}, request_timeout=_REQUEST_TIMEOUT_S
        )
        try:
            ends = {f"{tp.topic}-{tp.partition}": future.result().offset for tp, future in answers.items()}
        except KafkaException:
            # After a restart of the broker, the client sends the old leader epoch until it gets new metadata.
            self._admin.list_topics(timeout=_REQUEST_TIMEOUT_S)
            raise
        self.ends.append(Ends(asked, ends))

    def _sample_committed(self) -> None:
        found = self._asking.committed(self._partitions, timeout=_REQUEST_TIMEOUT_S)
        now = time.time()
        sample = [
            Committed(now, f"{tp.topic}-{tp.partition}", tp.offset if tp.offset >= 0 else None)
            for tp in found
            if tp.error is None
        ]
        self.committed += sample
        missing = [one.tp for one in sample if one.offset is None and one.tp in self._seen]
        if missing:
            self.vanished.append(f"{now:.3f}: librdkafka has no offsets of {missing}")
            self._ask_again()
        self._seen |= {one.tp for one in sample if one.offset is not None}

    def _ask_again(self) -> None:
        """Record the answers to another client, several times.

        They show whether the broker's answer or the first client was wrong.
        """
        assert self._requests is not None
        partitions = [Partition(tp.topic, tp.partition) for tp in self._partitions]
        for _ in range(_REPEATED):
            begun = time.time()
            try:
                answers = self._requests.committed(self._group, partitions, require_stable=False, timeout_s=2.0)
                told = f"{ {f'{t}-{p}': c.offset for (t, p), c in answers.found.items()} }, {answers.failed}"
            except (TryAgainError, KafkaGroupError) as problem:
                told = str(problem)
            self.vanished.append(f"{begun:.3f} to {time.time():.3f}: a request of our own says {told}")


def read_commits(bootstrap: str, group: str, topics: set[str]) -> list[Committed]:
    """Read every commit of a group from Kafka's own log of commits, in the order in which Kafka accepted them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{group}-reader-of-commits",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        count = len(consumer.list_topics("__consumer_offsets", timeout=10).topics["__consumer_offsets"].partitions)
        consumer.assign([TopicPartition("__consumer_offsets", n, 0) for n in range(count)])
        commits: list[Committed] = []
        ended: set[int] = set()
        deadline = time.monotonic() + _READ_PATIENCE_S
        while len(ended) < count:
            assert time.monotonic() < deadline, "the log of commits cannot be read to its end"
            for message in consumer.consume(1000, timeout=0.5):
                error: Any = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition() or 0)
                elif (key := _commit_key(message.key())) is not None and key[0] == group and key[1] in topics:
                    value = message.value()
                    # In every version, the value begins with its version in two bytes, followed by the offset.
                    offset = None if value is None else struct.unpack_from(">q", value, 2)[0]
                    commits.append(Committed(message.timestamp()[1] / 1000, f"{key[1]}-{key[2]}", offset))
        return commits
    finally:
        consumer.close()


def _commit_key(key: bytes | None) -> tuple[str, str, int] | None:
    """Return the group, topic and partition of a commit's key; None for other records of that log."""
    if key is None or struct.unpack_from(">h", key)[0] > 1:
        return None
    (length,) = struct.unpack_from(">h", key, 2)
    group, rest = key[4 : 4 + length].decode(), key[4 + length :]
    (length,) = struct.unpack_from(">h", rest)
    return group, rest[2 : 2 + length].decode(), struct.unpack_from(">i", rest, 2 + length)[0]
