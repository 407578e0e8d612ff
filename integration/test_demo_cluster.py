"""A short `make demo-cluster`: it creates its cluster, its audit passes, and it leaves no process behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil

DEMO = Path(__file__).parents[1] / "examples" / "orders" / "demo.py"


def test_a_worker_is_killed_and_every_record_is_there_once(tmp_path: Path) -> None:
    arguments = ["--cluster", "--plain", "--seconds=4", "--rate=100", "--partitions=6"]
    run = subprocess.run(
        [sys.executable, str(DEMO), *arguments],
        env={**os.environ, "COLUMNS": "80", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "PASSED: lost=0 duplicated=0" in run.stdout
    assert re.search(r"kill -9: worker-1 and its executors \([1-3]\)", run.stdout), "the worker had work"
    delivered = re.search(r"delivered +([\d,]+)", run.stdout)
    assert delivered
    assert int(delivered.group(1).replace(",", "")) > 400
    assert re.search(r"replayed +0 ", run.stdout)
    *_, report = run.stdout.partition("Audit of")
    assert max(map(len, report.splitlines())) <= 80
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
    assert not left
    assert not [name for name in os.listdir(tmp_path) if name.startswith("orders-demo-")]
