"""No record takes more memory than docs/formats.md says, however small it is on the wire."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pyspark_kafka_group.columns.native_library import READER_OVERRIDE
from pyspark_kafka_group.formats.decoder import TOO_LARGE
from tests.connector.formats.large_records import KINDS
from tests.packaging.packages import ROOT

WITHOUT_C = [(kind, "off") for kind in KINDS if "json" not in kind]


@pytest.mark.parametrize(("kind", "override"), [*((kind, "") for kind in KINDS), *WITHOUT_C])
def test_a_record_takes_limited_memory(kind: str, override: str) -> None:
    """Regression: a valid JSON record of 8 KB on the wire took 5.3 GB, one of Protobuf of 210 bytes 600 MB."""
    rows = KINDS[kind][2]

    done = subprocess.run(
        [sys.executable, "-m", "tests.connector.formats.large_records", kind],
        cwd=ROOT,
        env={**os.environ, READER_OVERRIDE: override},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-500:]
    assert json.loads(done.stdout) == [rows, TOO_LARGE if rows == 1 else None]
