"""Pack the package like users who ship it to a cluster without it: as an environment, or as a zip of modules.

The dependencies come from this Python's packages, so nothing is downloaded.  A ``.pth`` file links this package there.
Python reads such files only in its own folders, so the new environment does not find this package.
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
    """Make a virtual environment with everything except this package, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    (_packages(folder) / "dependencies.pth").write_text(sysconfig.get_path("platlib"))
    return folder / "bin" / "python"


def packed_environment(folder: Path) -> Path:
    """Make an environment with this package, and return it as an archive in the layout of ``venv-pack``."""
    home = folder / "packed"
    bare_environment(home)
    shutil.copytree(_PACKAGE, _packages(home) / _PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    archive = shutil.make_archive(str(folder / "environment"), "gztar", home)
    shutil.rmtree(home)
    return Path(archive)


def zipped_package(folder: Path) -> Path:
    """Return the modules of this package as a zip for ``--py-files``.  Python cannot load the C library from a zip."""
    home = folder / "zipped"
    shutil.copytree(_PACKAGE, home / _PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    archive = shutil.make_archive(str(folder / _PACKAGE.name), "zip", home)
    shutil.rmtree(home)
    return Path(archive)


def _packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python*/site-packages")
    return found
