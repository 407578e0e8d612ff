"""The wheel: one top-level import name, every module of the folders, the C library, the type marker, nothing else."""

from __future__ import annotations

import email
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from pyspark_kafka_group import __version__
from pyspark_kafka_group.columns.native_library import READER_OVERRIDE
from tests.missing_tools import skip_without
from tests.packaging.packages import FOLDERS, PACKAGE, ROOT, TOP_FOLDERS, folder_of, modules

LIBRARY = f"{PACKAGE}/columns/_native.abi3.so"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return built(copied(tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources with a new folder in `coordinator`."""
    copy = copied(tmp_path_factory.mktemp("grown"))
    new = copy / "coordinator" / "brand_new"
    new.mkdir()
    (new / "__init__.py").touch()
    (new / "module.py").write_text("print('imported')\n")
    return copy


@pytest.fixture(scope="module")
def wheel_without_compiler(grown: Path) -> zipfile.ZipFile:
    return built(grown, CC="/no/compiler/here")


def copied(folder: Path) -> Path:
    """Copy the sources, because setuptools would put old files from build/lib beside them into the wheel."""
    copy = folder / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    unwanted = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    for name in ("src", *TOP_FOLDERS, "tests", "integration", "examples"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=unwanted)
    return copy


def built(source: Path, **environment: str) -> zipfile.ZipFile:
    """Build a wheel of the sources."""
    # No isolation: it would download setuptools, which the dev extra already installs.
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    env = {**os.environ, **environment}
    run = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (path,) = (source / "dist").glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_wheel_has_one_top_level_import_name(wheel: zipfile.ZipFile) -> None:
    names = {name.partition("/")[0] for name in wheel.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {PACKAGE}
    assert len(names) == 2


def test_wheel_holds_every_module_of_the_folders_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    sources = {f"{FOLDERS[folder_of(path)].replace('.', '/')}/{path.name}" for path in modules()}
    packaged = {name for name in wheel.namelist() if name.startswith(f"{PACKAGE}/")}
    assert packaged - {LIBRARY} == sources | {f"{PACKAGE}/py.typed", f"{PACKAGE}/tools/timeline.html"}


def test_wheel_has_the_accelerated_reader_for_every_python_from_3_11_on(wheel: zipfile.ZipFile) -> None:
    if shutil.which("cc") is None:
        skip_without("compiler", "no C compiler: the accelerated reader cannot be built")
    assert LIBRARY in wheel.namelist()
    assert "-cp311-abi3-" in str(wheel.filename)


def test_without_a_compiler_the_wheel_is_built_all_the_same(wheel_without_compiler: zipfile.ZipFile) -> None:
    assert LIBRARY not in wheel_without_compiler.namelist()
    assert f"{PACKAGE}/reading/direct_client.py" in wheel_without_compiler.namelist()


def test_a_new_module_in_a_new_folder_needs_no_other_change(
    grown: Path, wheel_without_compiler: zipfile.ZipFile
) -> None:
    # An editable install adds `src` to the path: `test_spark_finds_what_is_installed_here`.
    for path in (wheel_without_compiler.filename, grown / "src"):
        command = [sys.executable, "-c", f"import {PACKAGE}.coordinator.brand_new.module"]
        env = {**os.environ, "PYTHONPATH": str(path)}
        run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert (run.stdout, run.stderr) == ("imported\n", "")


def test_spark_finds_what_is_installed_here() -> None:
    assert PACKAGE in {module.name for module in pkgutil.iter_modules()}


def test_metadata_names_the_distribution_its_python_and_its_licence(metadata: Message) -> None:
    assert metadata["Name"] == "pyspark-kafka-group"
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_run_time_needs_only_confluent_kafka_and_pyarrow(metadata: Message) -> None:
    required = [value for value in metadata.get_all("Requires-Dist", []) if "extra ==" not in value]
    names = {re.split(r"[^\w-]", value)[0] for value in required}
    assert names == {"confluent-kafka", "pyarrow"}, "no PySpark: a cluster has its own"


def test_the_wheel_alone_offers_the_source_that_spark_looks_for(wheel: zipfile.ZipFile) -> None:
    show = f"import {PACKAGE} as p; print(p.__file__); print(p.DefaultSource.name())"
    env = {**os.environ, "PYTHONPATH": str(wheel.filename)}
    run = subprocess.run([sys.executable, "-c", show], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert run.stderr == ""
    where, name = run.stdout.splitlines()
    assert where.startswith(str(wheel.filename))
    assert name == "kafka-group"


def test_out_of_a_zip_file_it_reads_all_the_same_and_warns_once_with_the_remedy(wheel: zipfile.ZipFile) -> None:
    read = (
        f"from {PACKAGE}.reading.client_cache import open_client as open\n"
        "for _ in range(2): open({'bootstrap.servers': '127.0.0.1:1', 'group.id': 'etl'}).close()"
    )
    env = {**os.environ, "PYTHONPATH": str(wheel.filename), READER_OVERRIDE: ""}
    run = subprocess.run([sys.executable, "-c", read], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    (warning,) = [line for line in run.stderr.splitlines() if "slower" in line]
    assert "the package is imported from a zip file" in warning
    assert warning.endswith("Install it for the Python of the executors.")
