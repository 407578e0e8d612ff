"""No record batch makes the C code of the accelerated reader read, write or free memory that it must not touch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.missing_tools import skip_without

ROOT = Path(__file__).parents[2]


def has_sanitizers(tmp_path: Path) -> bool:
    source = tmp_path / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    command = ["cc", "-fsanitize=address,undefined", "-o", str(tmp_path / "empty"), str(source)]
    return shutil.which("cc") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_random_records_under_the_address_and_undefined_behaviour_sanitizers(tmp_path: Path) -> None:
    if not has_sanitizers(tmp_path):
        skip_without("sanitizers", "no C compiler with sanitizers here")
    command = ["bash", str(ROOT / "scripts/sanitize-native.sh"), "3000"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
