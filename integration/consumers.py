"""Members of a group that are plain consumers.  They poll and commit only when the test calls a method."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from integration.pipelines import wait_for


@dataclass
class Group:
    """The members by their client ids.

    ``extra`` are properties of all members.
    """

    bootstrap: str
    name: str
    protocol: str = "classic"
    members: dict[str, Consumer] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)

    def join(self, topic: str, *client_ids: str, beside: Group | None = None, **properties: str) -> Consumer:
        """Join, and wait until all members have partitions, including the members of ``beside``.

        Names of properties have ``_`` for a dot.  Return the newest member.
        """
        for client_id in client_ids:
            self.members[client_id] = Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": self.name,
                    "client.id": client_id,
                    "group.protocol": self.protocol,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    **self.extra,
                    **{name.replace("_", "."): value for name, value in properties.items()},
                }
            )
            self.members[client_id].subscribe([topic])
        everybody = [*self.members.values(), *(beside.members.values() if beside else ())]

        def settled() -> bool:
            for consumer in everybody:
                consumer.poll(0.05)
            return all(consumer.assignment() for consumer in everybody)

        wait_for(settled, "all members have partitions", timeout_s=30)
        return self.members[client_ids[-1]]

    def commit(self, topic: str, offsets: dict[int, int]) -> None:
        """Let each member commit the offsets of its own partitions."""
        for consumer in self.members.values():
            mine = {tp.partition for tp in consumer.assignment()}
            parts = [TopicPartition(topic, p, offset) for p, offset in offsets.items() if p in mine]
            if parts:
                consumer.commit(offsets=parts, asynchronous=False)

    def owner(self, partition: int) -> str:
        """Return the client id of a partition's owner."""
        return next(name for name, c in self.members.items() if partition in {tp.partition for tp in c.assignment()})

    def leave(self) -> None:
        """Close all members."""
        while self.members:
            self.members.popitem()[1].close()
