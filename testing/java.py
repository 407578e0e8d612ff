"""Finds a Java that can run Kafka, or says what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from pyspark_kafka_group.testing.errors import KafkaTestingError

# What Kafka 4 brokers and Spark 4 both ask for.
MINIMUM_VERSION = 17

_REMEDY = (
    f"install Java {MINIMUM_VERSION} or newer (Debian, Ubuntu: openjdk-17-jre-headless; Fedora: "
    "java-21-openjdk-headless; macOS: brew install openjdk@21)"
)
_VERSION = re.compile(r'version "(\d+)')


class JavaError(KafkaTestingError):
    """There is no Java, or one too old for Kafka."""


def find_java() -> Path:
    """Return the ``java`` to run: that of ``JAVA_HOME`` if set, as Spark chooses it, else the first on the path.

    Raises
    ------
    JavaError
        If there is none, or it is older than `MINIMUM_VERSION`.  The text says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = shutil.which("java", path=str(Path(home, "bin")))
        if java is None:
            raise JavaError(f"JAVA_HOME={home} holds no bin/java: correct or unset it, or {_REMEDY}")
    else:
        java = shutil.which("java")
        if java is None:
            raise JavaError(f"Kafka needs Java, and there is no java on the path: {_REMEDY}")
    # macOS has a java that only says that there is no Java: it exits with an error.
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace", check=False)
    found = _VERSION.search(answer.stderr)
    if answer.returncode != 0 or found is None:
        raise JavaError(f"{java} does not run ({answer.stderr.strip() or 'no output'}): {_REMEDY}")
    if int(found[1]) < MINIMUM_VERSION:
        raise JavaError(f"{java} is Java {found[1]}, too old for Kafka: {_REMEDY}, or set JAVA_HOME to one")
    return Path(java)
