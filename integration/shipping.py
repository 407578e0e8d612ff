"""The package as users ship it to a cluster where it is not installed: a packed environment, or a zip of modules.

What it depends on is taken from this Python's packages, so nothing is downloaded.  This package itself is not found
there: it is linked there by a ``.pth`` file, which Python reads only in folders of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark_kafka_group

_PACKAGE = Path(pyspark_kafka_group.__file__).parent


def bare_environment(folder: Path) -> Path:
    """Make a virtual environment with everything but this package; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    (_packages(folder) / "dependencies.pth").write_text(sysconfig.get_path("platlib"))
    return folder / "bin" / "python"


def packed_environment(folder: Path) -> Path:
    """Make an environment with this package, and return it as an archive, laid out as ``venv-pack`` does."""
    home = folder / "packed"
    bare_environment(home)
    shutil.copytree(_PACKAGE, _packages(home) / _PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    archive = shutil.make_archive(str(folder / "environment"), "gztar", home)
    shutil.rmtree(home)
    return Path(archive)


def zipped_package(folder: Path) -> Path:
    """Return the modules of this package as a zip, for ``--py-files``: nothing can load the C library from there."""
    home = folder / "zipped"
    shutil.copytree(_PACKAGE, home / _PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    archive = shutil.make_archive(str(folder / _PACKAGE.name), "zip", home)
    shutil.rmtree(home)
    return Path(archive)


def _packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python*/site-packages")
    return found
