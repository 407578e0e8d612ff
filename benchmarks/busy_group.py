"""A process with a busy group: members that share a topic, and producers that commit its offsets in transactions.

``python -m benchmarks.busy_group SETTINGS``, with the settings of :class:`BusyGroup` as a JSON object.

The process reads commands from standard input, answers each with a line, and ends at the end of its input:

* ``members N``: wait until the members own N partitions together;
* ``producers P ...``: make one producer for each of these partitions;
* ``go``: let each producer commit to its partition in a loop;
* ``pause``: stop the producers and wait until no transaction is open.  The answer contains the number of commits and
  the seconds since ``go``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

_TIMEOUT_S = 30.0


class Committer:
    """Commits increasing offsets of one partition at a steady rate, in transactions and in a separate thread.

    The transactions name no member.  A broker accepts this, and refuses only a wrong member (KIP-447).
    """

    def __init__(self, servers: str, partition: TopicPartition, per_second: float, metadata: object) -> None:
        self.committed = 0
        self.go = threading.Event()
        self.idle = threading.Event()
        self.idle.set()
        self._partition = partition
        self._pause_s = 1 / per_second
        self._metadata = metadata
        self._producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": f"busy-{partition.topic}-{partition.partition}"}
        )
        self._producer.init_transactions(_TIMEOUT_S)
        threading.Thread(target=self._run, name=f"committer-{partition.partition}", daemon=True).start()

    def _run(self) -> None:
        offset, due = 0, 0.0
        while True:
            # Clear ``idle`` before the check of ``go``.  After ``pause`` has cleared ``go``, it can rely on ``idle``.
            self.idle.clear()
            if self.go.is_set():
                offset += 1
                self._producer.begin_transaction()
                wanted = [TopicPartition(self._partition.topic, self._partition.partition, offset)]
                self._producer.send_offsets_to_transaction(wanted, self._metadata, _TIMEOUT_S)
                self._producer.commit_transaction(_TIMEOUT_S)
                self.committed += 1
            self.idle.set()
            due = max(due + self._pause_s, time.monotonic() - self._pause_s)
            time.sleep(max(0.0, due - time.monotonic()))


class BusyGroup:
    """The members and the producers.

    Parameters
    ----------
    servers, topic, group, protocol : str
        The cluster, the topic, the group and its protocol.
    members : int
        Number of members.
    per_second : float
        Commits per second of each producer.
    """

    def __init__(self, *, servers: str, topic: str, group: str, protocol: str, members: int, per_second: float) -> None:
        self._servers, self._topic, self._per_second = servers, topic, per_second
        properties = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol}
        if protocol == "classic":
            properties["partition.assignment.strategy"] = "cooperative-sticky"
        self._members = [Consumer(properties) for _ in range(members)]
        for member in self._members:
            member.subscribe([topic])
        # The metadata of a consumer that never joins contains no member id and no generation.
        self._metadata = Consumer({"bootstrap.servers": servers, "group.id": group}).consumer_group_metadata()
        self._committers: list[Committer] = []
        self._began = 0.0
        self._serving = threading.Lock()
        threading.Thread(target=self._serve, name="members", daemon=True).start()

    def _serve(self) -> None:
        while True:
            for member in self._members:
                with self._serving:
                    member.poll(0.02)

    def wait_for(self, count: int) -> None:
        """Wait until the members own ``count`` partitions together."""
        deadline = time.monotonic() + 2 * _TIMEOUT_S
        while True:
            with self._serving:
                owned = sum(len(member.assignment()) for member in self._members)
            if owned == count:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the members own {owned} partitions and not {count}")
            time.sleep(0.05)

    def make_producers(self, partitions: Sequence[int]) -> None:
        """Make a producer for each partition."""
        self._committers = [
            Committer(self._servers, TopicPartition(self._topic, n), self._per_second, self._metadata)
            for n in partitions
        ]

    def go(self) -> None:
        """Start the producers one after the other, spread over the interval between two commits."""
        self._began = time.monotonic()
        for committer in self._committers:
            committer.committed = 0
            committer.go.set()
            time.sleep(1 / self._per_second / len(self._committers))

    def pause(self) -> tuple[int, float]:
        """Wait until no transaction is open.  Return the number of commits and the seconds since ``go``."""
        for committer in self._committers:
            committer.go.clear()
        committed = sum(committer.committed for committer in self._committers), time.monotonic() - self._began
        for committer in self._committers:
            if not committer.idle.wait(_TIMEOUT_S):
                raise TimeoutError("a transaction does not end")
        return committed


def main(settings: str) -> None:
    """Run the commands from standard input."""
    busy = BusyGroup(**json.loads(settings))
    for line in sys.stdin:
        command, *numbers = line.split()
        answer = "done"
        match command:
            case "members":
                busy.wait_for(int(numbers[0]))
            case "producers":
                busy.make_producers([*map(int, numbers)])
            case "go":
                busy.go()
            case "pause":
                count, seconds = busy.pause()
                answer = f"{count} {seconds}"
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
