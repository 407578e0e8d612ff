"""The package as pyproject.toml describes it: folders of the repository under one import name."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "pyspark_kafka_group"


def _folders() -> dict[str, str]:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    mapped = setuptools["package-dir"]
    found = {}
    for package in setuptools["packages"]:
        # As setuptools does: a package that is not mapped itself lies in the folder of the one above it.
        above = package
        below: list[str] = []
        while above not in mapped:
            above, _, name = above.rpartition(".")
            below.insert(0, name)
        found["/".join([mapped[above], *below])] = package
    return found


FOLDERS = _folders()
"""Each folder that a package is made of, and the dotted name of the package."""

TOP_FOLDERS = tuple(folder for folder in FOLDERS if "/" not in folder)
"""Those at the top of the repository."""


def modules() -> list[Path]:
    """Every module in these folders, whether or not the list of packages reaches it."""
    return [path for folder in TOP_FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def folder_of(path: Path) -> str:
    """The folder of a module, as a key of :data:`FOLDERS`."""
    return path.parent.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """The dotted name of a module."""
    package = FOLDERS[folder_of(path)]
    return package if path.stem == "__init__" else f"{package}.{path.stem}"
