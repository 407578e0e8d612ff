"""Produce a steady stream of order events, keyed by customer.

Each customer's events are numbered 0, 1, 2, ... so that the audit can check their order. The producer writes the
offsets that Kafka has acknowledged to a small JSON file, twice a second and at the end. The audit counts these records
as "produced".
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

CATALOGUE = [
    ("tea-assam-250", 6.90),
    ("tea-sencha-100", 9.50),
    ("mug-blue", 12.00),
    ("mug-white", 11.00),
    ("kettle-1l", 49.00),
    ("filter-paper-100", 4.20),
    ("grinder-hand", 79.00),
    ("beans-ethiopia-500", 14.80),
    ("beans-brazil-1000", 21.30),
    ("scale-kitchen", 24.90),
]
CURRENCIES = ["EUR"] * 6 + ["CHF"] * 2 + ["GBP", "USD"]
NEXT_STATUS = {"placed": "paid", "paid": "packed", "packed": "shipped", "shipped": "delivered"}
CUSTOMERS = 5_000
OPEN_ORDERS = 2_000


class Shop:
    """An endless stream of plausible order events. The same seed gives the same orders."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._open: list[dict[str, Any]] = []
        self._orders = 0
        self._sequences: dict[str, int] = defaultdict(int)

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (key, event) without end."""
        while True:
            place = len(self._open) < OPEN_ORDERS or self._random.random() < 0.2
            order = self._place() if place else self._advance()
            customer = order["customer_id"]
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            yield customer, {**order, "sequence": self._sequences[customer], "occurred_at": now}
            self._sequences[customer] += 1

    def _place(self) -> dict[str, Any]:
        self._orders += 1
        items = [
            {"sku": sku, "quantity": self._random.randint(1, 3), "unit_price": price}
            for sku, price in self._random.sample(CATALOGUE, self._random.randint(1, 4))
        ]
        order = {
            "order_id": f"o-{self._orders:08d}",
            "customer_id": f"c-{self._random.randrange(CUSTOMERS):05d}",
            "status": "placed",
            "currency": self._random.choice(CURRENCIES),
            "items": items,
        }
        self._open.append(order)
        return order

    def _advance(self) -> dict[str, Any]:
        at = self._random.randrange(len(self._open))
        order = self._open[at]
        order["status"] = "cancelled" if self._random.random() < 0.03 else NEXT_STATUS[order["status"]]
        if order["status"] in ("cancelled", "delivered"):
            self._open[at] = self._open[-1]
            self._open.pop()
        return order


class Receipts:
    """The offsets that Kafka has acknowledged, for each partition."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._acknowledged: dict[int, dict[str, int]] = {}
        self._failed: list[str] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Record one delivery report."""
        if error is not None:
            self._failed.append(str(error))
            return
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        seen = self._acknowledged.setdefault(partition, {"start": offset, "stop": offset, "count": 0})
        seen["start"] = min(seen["start"], offset)
        seen["stop"] = max(seen["stop"], offset + 1)
        seen["count"] += 1

    def write(self) -> None:
        """Replace the file in one step, so that a reader never sees half of it."""
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps({"partitions": self._acknowledged, "failed": self._failed[:10]}), "utf-8")
        os.replace(beside, self._path)


def main() -> None:
    """Produce at the requested rate until SIGTERM, then wait for all acknowledgements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=int, default=2_000, help="events per second")
    parser.add_argument("--receipts", type=Path, required=True, help="where to say what was acknowledged")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    from confluent_kafka import Producer

    stop = False

    def on_signal(*_: object) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, on_signal)
    receipts = Receipts(args.receipts)
    producer = Producer(
        {
            "bootstrap.servers": args.bootstrap_servers,
            "client.id": "orders-producer",
            "enable.idempotence": True,  # a retry neither repeats nor reorders
            "linger.ms": 20,
            "compression.type": "lz4",
        }
    )
    events = Shop(args.seed).events()
    started = written = time.monotonic()
    sent = 0
    while not stop:
        now = time.monotonic()
        for _ in range(int((now - started) * args.rate) - sent):
            key, event = next(events)
            value = json.dumps(event)
            while not stop:
                try:
                    producer.produce(args.topic, key=key, value=value, on_delivery=receipts)
                except BufferError:  # Kafka is slow or not reachable: wait for space in the buffer
                    producer.poll(0.5)
                else:
                    break
            sent += 1
        producer.poll(0.02)
        if now - written >= 0.5:
            receipts.write()
            written = now
    left = producer.flush(30)
    receipts.write()
    if left:
        raise SystemExit(f"{left} events got no answer from Kafka within 30 s")


if __name__ == "__main__":
    main()
