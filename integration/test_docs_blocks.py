"""The programs and commands on the pages run unchanged, with one Spark session and one broker.

The test replaces only the addresses, the group and the output paths of a block.  A page may use a few names without
defining them (``provided``).  If a program waits for the end of its query, the query reads all records instead.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration.cluster import committed, delete, reset
from integration.pipelines import TOO_BUSY
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.schema_registry import SchemaRegistryServer
from pyspark_kafka_group.tools.commands import kafka_group
from tests.docs.blocks import BLOCKS, Block, commands_of

PROGRAMS = {page: list(blocks) for page, blocks in groupby((b for b in BLOCKS if b.is_program), lambda b: b.page)}

# The commands that query a cluster and end.  Other tests cover the rest.
COMMANDS = [
    pytest.param(arguments, id=f"{block.name} {arguments[0]}")
    for block in BLOCKS
    if block.language in ("", "sh") and block.fragment is None
    for program, *arguments in commands_of(block)
    if program == "kafka-group"
    if arguments[0] in ("coordinator", "describe", "doctor", "history", "reset", "rewinds", "watch")
    if "--count" in arguments or not ({"watch", "--poll"} & set(arguments))
]
GROUP = "orders-etl"
TOPICS = ("orders", "invoices", "shouted", "payments")
PAYMENT = {"type": "record", "name": "Payment", "fields": [{"name": "id", "type": "long"}]}
REGISTRY = "http://localhost:8081"
TABLES = (
    "orders (number BIGINT, item TEXT, price DOUBLE PRECISION)",
    "prices (sku TEXT PRIMARY KEY, price DOUBLE PRECISION)",
)
RECORDS = 10
ATTEMPTS = 3

T = TypeVar("T")


@pytest.fixture(scope="module", autouse=True)
def _orders(kafka: Kafka) -> Iterator[None]:
    """Create the topics that the pages name, and delete them at the end."""
    for name in TOPICS:
        kafka.create_topic(name, partitions=2)
    more_orders(kafka)
    yield
    for name in TOPICS:
        delete(kafka.bootstrap_servers, name)


def more_orders(kafka: Kafka) -> None:
    """Produce a few orders as JSON."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(RECORDS):
        order = {"order": n, "item": "tea", "price": 6.9, "id": n, "amount": 2000.5}
        producer.produce("orders", partition=n % 2, key=str(n), value=json.dumps(order))
    assert producer.flush(30) == 0


def payments(kafka: Kafka, registry: SchemaRegistryServer) -> None:
    """Produce a few payments as Avro, with a schema in the registry."""
    schema = registry.register("payments-value", json.dumps(PAYMENT))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(RECORDS):
        producer.produce("payments", partition=n % 2, value=struct.pack(">bIB", 0, schema, 2 * n))  # Confluent's format
    assert producer.flush(30) == 0


@pytest.fixture
def provided(spark: SparkSession, kafka: Kafka, group: str, tmp_path: Path) -> dict[str, Callable[[], Any]]:
    """Return a function for each name that pages use without defining it.  The function returns its value."""
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.group.id": group,
        "subscribe": "orders",
        "startingOffsets": "earliest",
    }
    typed = {**options, "valueFormat": "json", "valueSchema": "id BIGINT, amount DOUBLE"}

    def stream() -> Any:
        return spark.readStream.format("kafka-group").options(**options).load()

    def query() -> StreamingQuery:
        writer = stream().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "query"))
        started: StreamingQuery = writer.start()
        started.processAllAvailable()
        return started

    return {
        "spark": lambda: spark,
        "servers": lambda: kafka.bootstrap_servers,
        "options": lambda: typed,
        "topic": lambda: "shouted",
        "folder": lambda: str(tmp_path / "folder"),
        "checkpoint": lambda: str(tmp_path / "sink"),
        "stream": stream,
        "query": query,
    }


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_programs_of_a_page_run(
    page: str,
    spark: SparkSession,
    kafka: Kafka,
    group: str,
    provided: dict[str, Callable[[], Any]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = PROGRAMS[page]
    places = {
        rf"\b{GROUP}\b": group,
        r"\b(?:localhost|kafka):9092\b": kafka.bootstrap_servers,
        r"\bstart_http_server\(9109\)": "start_http_server(0)",
    }
    if any("postgresql://" in block.text for block in blocks):
        from integration.postgres import execute

        url = request.getfixturevalue("url")
        places[r"postgresql://[^\"]*"] = url.replace("\\", r"\\")
        for table in TABLES:
            execute(url, f"CREATE TABLE {table}")

    def read(query: StreamingQuery, *_: Any) -> None:
        more_orders(kafka)  # a query may start at the end of the log
        query.processAllAvailable()

    monkeypatch.setattr(StreamingQuery, "awaitTermination", read)
    monkeypatch.setenv("POD_NAME", "orders-etl-0")
    monkeypatch.setattr(sys, "argv", ["first.py", "one"])
    names: dict[str, Any] = {name: though_busy(provided[name]) for name in free_names(blocks) & provided.keys()}
    servers = ExitStack()
    request.addfinalizer(servers.close)
    if any(REGISTRY in block.text for block in blocks):
        registry = servers.enter_context(SchemaRegistryServer())
        payments(kafka, registry)
        places[REGISTRY] = registry.url
    for block in blocks:
        text = block.text
        if block.is_whole:  # its own group, so that it reads everything
            places[rf"\b{GROUP}\b"] = f"{group}-{block.line}"
            text = re.sub(r'("kafka.group.id"[,:] )"[^"]+"', rf'\1"{group}-{block.line}"', text)
        # Each block writes into its own folder.
        at = tmp_path / str(block.line)
        for pattern, instead in {
            **places,
            r'("(?:path|checkpointLocation)", f?")(?:s3a://)?': rf"\g<1>{at}/",
            r"\borders\.db\b": f"{at}-orders.db",
            r'\.start\("(\w+)"\)': rf'.start("{at}/\g<1>")',
        }.items():
            text = re.sub(pattern, instead, text)
        if block.language == "sql":
            for statement in text.split(";\n"):
                if statement.strip():
                    spark.sql(statement).collect()
        else:
            though_busy(partial(run, spark, text, block.name, names, reads=block.is_whole))
        if block.is_whole and "kafka.group.id" in block.text and "readStream" in block.text:
            [topic] = re.findall(r'"subscribe", "(\w+)"', text)
            read_so_far = committed(kafka.bootstrap_servers, f"{group}-{block.line}", topic, range(2))
            assert sum(read_so_far.values()) >= RECORDS, block.name
    for found in spark.catalog.listTables():
        if found.isTemporary:
            spark.catalog.dropTempView(found.name)
        else:
            spark.sql(f"DROP TABLE {found.name}")


def though_busy(attempt: Callable[[], T]) -> T:
    """Return the result of an attempt.  Retry it if the machine was too busy for Spark's Python workers."""
    for _ in range(ATTEMPTS - 1):
        try:
            return attempt()
        except StreamingQueryException as problem:
            if TOO_BUSY not in str(problem):
                raise
    return attempt()


def run(spark: SparkSession, text: str, name: str, names: dict[str, Any], *, reads: bool) -> None:
    """Run a program until its queries have read everything.  Then send SIGTERM if the program waits for it."""
    handler = signal.getsignal(signal.SIGTERM)
    ended = threading.Event()

    def terminate() -> None:
        while not ended.wait(0.5):
            progress = [one for query in spark.streams.active for one in query.recentProgress]
            if progress and sum(one["numInputRows"] for one in progress) >= (RECORDS if reads else 0):
                os.kill(os.getpid(), signal.SIGTERM)
                return

    terminating = threading.Thread(target=terminate, name="terminate")
    if re.search("SIGTERM|run_until_signal", text):
        terminating.start()
    try:
        exec(compile(text, name, "exec"), names)
        for query in spark.streams.active:
            query.awaitTermination()
    finally:
        ended.set()
        if terminating.ident:
            terminating.join()
        signal.signal(signal.SIGTERM, handler)
        for query in spark.streams.active:
            query.stop()
        for value in names.values():
            if type(value).__name__.endswith("Exporter"):
                value.close()


def free_names(blocks: list[Block]) -> set[str]:
    """Return the names that the programs of a page use without defining them there or earlier."""
    free: set[str] = set()
    made: set[str] = set()
    for block in blocks:
        if block.language == "python":
            names = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Name)]
            made |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
            free |= {name.id for name in names} - made
    return free


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_command_of_a_page_runs(arguments: list[str], kafka: Kafka, group: str) -> None:
    reset(kafka.bootstrap_servers, group, "orders", {0: 2, 1: 3})
    here = {"localhost:9092": kafka.bootstrap_servers, GROUP: group}
    found = CliRunner().invoke(kafka_group, [here.get(word, word) for word in arguments])
    assert found.exit_code in (0, 1), found.output


def test_every_page_with_programs_is_here() -> None:
    """A mistake in the collection of programs and commands must not make all tests pass."""
    assert len(PROGRAMS) >= 8
    assert len(COMMANDS) >= 10
