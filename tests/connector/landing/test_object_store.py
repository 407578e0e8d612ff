"""Landing into a stand-in for S3, which runs in a process of its own: deltalake waits for answers without yielding."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from deltalake import DeltaTable

from pyspark_kafka_group.landing import DeltaLanding
from pyspark_kafka_group.landing.errors import LandingError
from pyspark_kafka_group.landing.landing import Landing
from pyspark_kafka_group.testing.ports import free_ports
from tests.connector.landing.applications import ONE, ZERO, Application, Delta, Iceberg, judge, once


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Yield the address of a store with the bucket ``lake``."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        address = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3", endpoint_url=address, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                client.create_bucket(Bucket="lake")
                break
            except (EndpointConnectionError, ClientError):
                assert time.monotonic() < deadline, "the store does not answer"
                time.sleep(0.2)
        client.close()
        yield address
        server.terminate()


class DeltaInStore(Delta):
    """A Delta table in the store."""

    def __init__(self, folder: Path, store: str, secret: str = "b") -> None:
        super().__init__(folder)
        self.uri = f"s3://lake/{folder.name}"
        self.options = {
            "AWS_ENDPOINT_URL": store,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def landing(self, **more: Any) -> Landing:
        return DeltaLanding(self.uri, storage_options=self.options, **more)

    def table(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=self.options)


class IcebergInStore(Iceberg):
    """An Iceberg table in the store, of a catalog in SQLite."""

    def __init__(self, folder: Path, store: str) -> None:
        super().__init__(folder)
        self.catalog |= {
            "warehouse": f"s3://lake/{folder.parent.name}",
            "s3.endpoint": store,
            "s3.access-key-id": "a",
            "s3.secret-access-key": "b",
            "s3.region": "us-east-1",
        }


@pytest.mark.parametrize("kind", [DeltaInStore, IcebergInStore])
def test_records_are_landed_once(kind: Any, store: str, tmp_path: Path) -> None:
    """With a repeated batch that must be cut, and with files of a killed attempt."""
    at = kind(tmp_path / "table", store)
    assert Application(at).land({ZERO: (0, 20), ONE: (0, 9)}, tasks=2).files == 4
    assert Application(at).land({ZERO: (10, 35)}).records == 15
    Application(at).ready({ZERO: (35, 50)})
    assert Application(at).land({ZERO: (35, 40)}).orphans == 1
    assert judge(at) == once({ZERO: (0, 40), ONE: (0, 9)})


def test_a_store_that_is_gone(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    at = DeltaInStore(tmp_path / "gone", f"http://127.0.0.1:{port}")
    at.options |= {"max_retries": "0", "retry_timeout": "1s"}
    with pytest.raises(LandingError, match=r"DeltaLanding: s3://lake/gone could not be read.*Check its address, the"):
        Application(at)
