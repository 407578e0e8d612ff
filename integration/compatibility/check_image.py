"""The container image of docs/platforms.md is built and runs a program, until ``docker stop``.  See `rows`.

It needs a container engine and root.  The base image is pulled; where this is impossible, debootstrap makes one like
it.  All packages come from a folder of wheels, because this version is not in the package index.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cluster import committed, members, produce
from integration.conftest import docker
from integration.pipelines import wait_for
from pyspark_kafka_group.testing import LocalKafka
from tests.docs.blocks import run_by

BASE, OWN_BASE, IMAGE, CONTAINER = "debian:bookworm-slim", "local/debian:bookworm", "local/orders-etl:1", "orders-etl"
WHEEL = Path(__file__).parents[2] / "build" / "compatibility" / "wheel"

PROGRAM = """
import pyspark_kafka_group
from pyspark.sql import SparkSession
from pyspark_kafka_group.columns.chunk_reader import CHUNKS

assert CHUNKS.library is not None, CHUNKS.problem
spark = SparkSession.builder.master("local[2]").getOrCreate()
pyspark_kafka_group.register(spark)
orders = (
    spark.readStream.format("kafka-group")
    .option("kafka.bootstrap.servers", "SERVERS")
    .option("kafka.group.id", "orders-etl")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .load()
)
query = orders.writeStream.format("console").option("checkpointLocation", "/tmp/checkpoint").start()
print("left cleanly:", pyspark_kafka_group.run_until_signal(query))
"""


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


@pytest.fixture(scope="module")
def base() -> str:
    """Return the base image of the page, or one like it."""
    if docker("image", "inspect", BASE) or docker("pull", "--quiet", BASE):
        return BASE
    if not docker("image", "inspect", OWN_BASE):
        with tempfile.TemporaryDirectory() as folder:
            run("debootstrap", "--variant=minbase", "bookworm", folder)
            tree = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
            subprocess.run(["docker", "import", "-", OWN_BASE], stdin=tree.stdout, check=True)
            assert tree.wait() == 0
    return OWN_BASE


@pytest.fixture
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as made:
        yield made


@pytest.fixture
def image(base: str, kafka: LocalKafka, tmp_path: Path) -> str:
    """Build the image of the page.  Only its base and the origin of its packages may differ."""
    [text] = run_by("integration/compatibility/check_image.py")
    assert f"FROM {BASE}\n" in text
    text = text.replace(
        f"FROM {BASE}\n", f"FROM {base}\nCOPY wheels /wheels\nENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels\n"
    )
    [wheel] = WHEEL.glob("*.whl")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", tmp_path / "wheels", f"{wheel}[spark]")
    (tmp_path / "etl.py").write_text(PROGRAM.replace("SERVERS", kafka.bootstrap_servers))
    (tmp_path / "Dockerfile").write_text(text)
    run("docker", "build", "--network", "host", "--tag", IMAGE, tmp_path)
    return IMAGE


@pytest.fixture
def container(image: str, kafka: LocalKafka) -> Iterator[str]:
    """Start the image on the network of this machine, so that it reaches the broker on the loopback interface."""
    kafka.create_topic("orders", partitions=2)
    produce(kafka.bootstrap_servers, "orders", {0: 60, 1: 40})
    run("docker", "run", "-d", "--network=host", "--env=SPARK_LOCAL_IP=127.0.0.1", "--name", CONTAINER, image)
    yield CONTAINER
    run("docker", "rm", "--force", CONTAINER)


def test_the_image_of_the_page_reads_and_leaves_its_group_when_it_is_stopped(container: str, kafka: LocalKafka) -> None:
    servers = kafka.bootstrap_servers
    wait_for(lambda: committed(servers, "orders-etl", "orders", [0, 1]) == {0: 60, 1: 40}, "all is committed")
    produce(servers, "orders", {0: 5}, start=60)
    wait_for(lambda: committed(servers, "orders-etl", "orders", [0]) == {0: 65}, "the new records are committed")
    run("docker", "stop", "--time", "150", container)
    shown = subprocess.run(["docker", "logs", container], capture_output=True, text=True, check=True)
    assert "left cleanly: True" in shown.stdout, shown.stdout + shown.stderr
    assert members(servers, "orders-etl") == {}
