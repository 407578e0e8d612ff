"""A REST catalog for Iceberg tables, on loopback.  Its server is the one that Iceberg's own tests use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from integration.pipelines import wait_for
from pyspark_kafka_group.testing.jars import JarSet, resolve
from pyspark_kafka_group.testing.java import find_java
from pyspark_kafka_group.testing.ports import HOST, free_ports, is_free
from pyspark_kafka_group.testing.process import GuardedProcess

SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"

# 1.12 published no tests.  Hadoop comes from PySpark.
_SERVER = JarSet(
    name="iceberg-rest-1.11.0",
    label="the REST catalog of Iceberg 1.11.0",
    modules=(
        "org.apache.iceberg:iceberg-core:1.11.0",
        "org.apache.iceberg:iceberg-core:1.11.0:tests",
        "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.3",
        SQLITE,
    ),
    transitive=True,
)


@contextmanager
def rest_catalog(folder: Path) -> Iterator[None]:
    """Run a catalog whose tables are in ``folder``."""
    (port,) = free_ports(1)
    jars = [*map(str, resolve(_SERVER)), f"{Path(pyspark.__path__[0], 'jars')}/*"]
    program = Path(__file__).with_name("RestCatalog.java")
    command = [str(find_java()), "-cp", ":".join(jars), str(program), str(port), str(folder)]
    server = GuardedProcess(command, folder / "catalog.log")
    try:
        wait_for(lambda: server.exit_status() is not None or not is_free(port), "the catalog listens")
        if server.exit_status() is not None:
            raise RuntimeError(f"the catalog did not start: {(folder / 'catalog.log').read_text()[-2000:]}")
        _address_file(folder).write_text(f"http://{HOST}:{port}")
        yield
    finally:
        server.kill()


def address(folder: Path) -> str:
    """Return the address of the catalog that runs for a folder."""
    return _address_file(folder).read_text()


def _address_file(folder: Path) -> Path:
    return folder / "catalog.address"
