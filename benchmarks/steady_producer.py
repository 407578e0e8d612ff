"""A process that produces at a steady rate until its standard input ends.

``python -m benchmarks.steady_producer SERVERS TOPIC PARTITIONS RATE VALUE_SIZE CODEC``
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.records import BASE_SHAPE, Shape

_BURSTS_PER_S = 200
"""Bursts per second.  Above this rate, a burst has several records."""


@contextmanager
def producing(
    servers: str,
    topic: str,
    partitions: int,
    rate: int,
    *,
    value_size: int = BASE_SHAPE.value_size,
    codec: str = "none",
) -> Iterator[None]:
    """Let a separate process produce during the block.  At its end, all records are in Kafka."""
    arguments = [servers, topic, *map(str, (partitions, rate, value_size)), codec]
    # The process ends at the end of its input, so it cannot outlive this process.
    with subprocess.Popen([sys.executable, "-m", __name__, *arguments], stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.communicate(timeout=30)


def main(servers: str, topic: str, partitions: int, rate: int, *, value_size: int, codec: str) -> None:
    """Produce until standard input ends."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "acks": "1", "compression.codec": codec})
    shape = Shape(value_size=value_size)
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
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), value_size=int(sys.argv[5]), codec=sys.argv[6])
