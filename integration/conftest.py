"""Fixtures and settings that all integration tests share.

They provide a real cluster, topics, and an image for containers.  Failures show the brokers' log.  JVMs start quickly,
and several workers take the long files first.

A missing broker is a failure, never a skip.  Container tests run whenever a container engine answers.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from integration.java_start import environment
from integration.order import long_ones_first
from integration.permissions import PERMISSIONS
from integration.spark_fixtures import application, group, options, pipeline, postgres, protocol, spark, url
from pyspark_kafka_group.cluster.properties.permissions import VARIABLE
from pyspark_kafka_group.testing.container import DEFAULT_IMAGE, IMAGE_VARIABLE
from pyspark_kafka_group.testing.fixtures import kafka, pytest_runtest_makereport, topic
from tests.missing_tools import skip_without
from tests.timeouts import pytest_timeout_names_the_calls

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
    "pytest_timeout_names_the_calls",
    "spark",
    "topic",
    "url",
]


def pytest_configure() -> None:
    """Make all JVMs start sooner, and allow logins with tokens, also in examples and in Spark's executors."""
    os.environ.update(environment())
    # Deliberate: for all tests.  A session's processes get the environment that its JVM began with.
    os.environ[VARIABLE] = ",".join([*PERMISSIONS, f"file:{Path(tempfile.gettempdir()).resolve()}"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the long files if several workers share the tests."""
    if hasattr(config, "workerinput"):
        places = long_ones_first(item.nodeid.partition("::")[0] for item in items)
        items.sort(key=lambda item: places[item.nodeid.partition("::")[0]])


# scripts/build-kafka-image.sh builds this image on a machine that cannot pull one.
LOCAL_IMAGE = DEFAULT_IMAGE.replace("apache/", "local/")


def docker(*arguments: str) -> bool:
    """Return whether a docker command succeeds.  Without a docker client, assume that there is no engine."""
    return (
        shutil.which("docker") is not None
        and not subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode
    )


@pytest.fixture(scope="session")
def container_image() -> str:
    """Return the image for container tests.  If no engine answers, skip them and name the reason."""
    if not docker("info"):
        skip_without("containers", "no container engine answers (scripts/container-engine.sh start provides one)")
    image = os.environ.get(IMAGE_VARIABLE)
    if image is None and docker("image", "inspect", LOCAL_IMAGE):
        image = LOCAL_IMAGE
        # A machine with this image cannot pull any, including the helper that testcontainers starts first.
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    return image or DEFAULT_IMAGE
