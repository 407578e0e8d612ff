"""A process that produces at a steady rate until its standard input ends.

``python -m benchmarks.steady_producer SERVERS TOPIC PARTITIONS RATE``
"""

from __future__ import annotations

import select
import sys
import time

from benchmarks.records import Shape

_BURSTS_PER_S = 200
"""How often it wakes up; above this rate several records go out at once."""


def main(servers: str, topic: str, partitions: int, rate: int) -> None:
    """Produce until standard input ends."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "acks": "1"})
    shape = Shape()
    values = shape.values()
    begin = time.monotonic()
    number = 0
    while True:
        wait_s = begin + (number + max(1, rate // _BURSTS_PER_S)) / rate - time.monotonic()
        if select.select([sys.stdin], [], [], max(0.0, wait_s))[0]:
            break
        due = int((time.monotonic() - begin) * rate)
        for n in range(number, due):
            producer.produce(topic, values[n % len(values)], shape.key(n), partition=n % partitions)
        number = max(number, due)
        producer.poll(0)
    producer.flush(10)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
