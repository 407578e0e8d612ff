"""A process with a busy group: members that share a topic, and producers that commit offsets for it in transactions.

``python -m benchmarks.busy_group SETTINGS``, which are those of :class:`BusyGroup` as a JSON object.

It obeys lines on standard input, answers each with a line, and ends when its input does:

* ``members N``: wait until its members own N partitions together;
* ``producers P ...``: make one producer for each of these partitions;
* ``go``: each commits for its partition again and again; ``pause``: until none has a transaction open.  The answer to
  ``pause`` is how many were committed in how many seconds.
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
    """Commits a next offset of one partition at a steady rate, in transactions, on a thread of its own.

    It names no member: a broker refuses a transaction only for a wrong member, not for none (KIP-447).
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
            # Busy before the look at ``go``, so that who has cleared that and sees idle can rely on it.
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
        Where they are, and which protocol the group has.
    members : int
        How many members.
    per_second : float
        How often each producer commits.
    """

    def __init__(self, *, servers: str, topic: str, group: str, protocol: str, members: int, per_second: float) -> None:
        self._servers, self._topic, self._per_second = servers, topic, per_second
        properties = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol}
        if protocol == "classic":
            properties["partition.assignment.strategy"] = "cooperative-sticky"
        self._members = [Consumer(properties) for _ in range(members)]
        for member in self._members:
            member.subscribe([topic])
        # Of a consumer that never joins: without a member id and a generation.
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
        """Return when the members own ``count`` partitions together."""
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
        """Let the producers begin, one after the other within the time between two commits of one."""
        self._began = time.monotonic()
        for committer in self._committers:
            committer.committed = 0
            committer.go.set()
            time.sleep(1 / self._per_second / len(self._committers))

    def pause(self) -> tuple[int, float]:
        """Return when no transaction is open: how many were committed, in how many seconds."""
        for committer in self._committers:
            committer.go.clear()
        committed = sum(committer.committed for committer in self._committers), time.monotonic() - self._began
        for committer in self._committers:
            if not committer.idle.wait(_TIMEOUT_S):
                raise TimeoutError("a transaction does not end")
        return committed


def main(settings: str) -> None:
    """Obey standard input."""
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
