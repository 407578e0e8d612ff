"""Kafka's own command-line tools, from the brokers' jars.

Operators use them, so the tests compare our tools with them.
"""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache

from pyspark_kafka_group.testing.jars import JarSet, kafka_jars, resolve
from pyspark_kafka_group.testing.java import find_java
from pyspark_kafka_group.testing.pinned_jars import KAFKA_VERSION

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"

_TOOLS = f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}"
_SHA256 = "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c"


@lru_cache(maxsize=1)
def _class_path() -> str:
    tools = JarSet(
        name=f"kafka-tools-{KAFKA_VERSION}", label="Kafka's tools", modules=(_TOOLS,), sha256={_TOOLS: _SHA256}
    )
    return os.pathsep.join(map(str, [*kafka_jars(), *resolve(tools)]))


def run_tool(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's tools, and return what it prints."""
    command = [str(find_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", _class_path(), main_class, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def describe(bootstrap: str, group: str) -> list[dict[str, str]]:
    """Return the rows of ``kafka-consumer-groups --describe --verbose``, one for each partition, by column head."""
    arguments = ("--bootstrap-server", bootstrap, "--describe", "--verbose", "--offsets", "--group", group)
    lines = [line.split() for line in run_tool(CONSUMER_GROUPS, *arguments).splitlines() if line.strip()]
    (head,) = [at for at, line in enumerate(lines) if line[:2] == ["GROUP", "TOPIC"]]
    return [dict(zip(lines[head], line, strict=True)) for line in lines[head + 1 :]]
