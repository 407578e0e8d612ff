"""What all integration tests share: a real cluster, topics, the brokers' log in failures, an image for containers,
JVMs that start soon, and the order in which several workers take files.

A missing broker is a failure and never a skip.  Container tests run whenever a container engine answers.
"""

import os
import shutil
import subprocess

import pytest

from integration.java_start import environment
from integration.order import long_ones_first
from integration.spark_fixtures import application, group, options, pipeline, postgres, protocol, spark, url
from pyspark_kafka_group.testing.container import DEFAULT_IMAGE, IMAGE_VARIABLE
from pyspark_kafka_group.testing.fixtures import kafka, pytest_runtest_makereport, topic
from tests.missing_tools import skip_without

__all__ = [
    "application",
    "container_image",
    "group",
    "kafka",
    "options",
    "pipeline",
    "postgres",
    "protocol",
    "pytest_runtest_makereport",
    "spark",
    "topic",
    "url",
]


def pytest_configure() -> None:
    """Let all JVMs start sooner, those of examples and of Spark's executors among them."""
    os.environ.update(environment())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the long files where several workers share them."""
    if hasattr(config, "workerinput"):
        places = long_ones_first(item.nodeid.partition("::")[0] for item in items)
        items.sort(key=lambda item: places[item.nodeid.partition("::")[0]])


# What scripts/build-kafka-image.sh builds where no image can be pulled.
LOCAL_IMAGE = DEFAULT_IMAGE.replace("apache/", "local/")


def docker(*arguments: str) -> bool:
    """Whether a docker command succeeds; without a client there is no engine either."""
    return (
        shutil.which("docker") is not None
        and not subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode
    )


@pytest.fixture(scope="session")
def container_image() -> str:
    """The image for container tests; skips them, visibly, where no engine answers."""
    if not docker("info"):
        skip_without("containers", "no container engine answers (scripts/container-engine.sh start provides one)")
    image = os.environ.get(IMAGE_VARIABLE)
    if image is None and docker("image", "inspect", LOCAL_IMAGE):
        image = LOCAL_IMAGE
        # Where that image is, none can be pulled: neither can the helper that testcontainers starts first.
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    return image or DEFAULT_IMAGE
