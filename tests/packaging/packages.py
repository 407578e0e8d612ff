"""The package as src/ shows it: folders of the repository under one import name."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "pyspark_kafka_group"


def _folders() -> dict[str, str]:
    found = {}
    source = ROOT / "src"
    for folder, inner, files in os.walk(source / PACKAGE, followlinks=True):
        inner.sort()
        if any(name.endswith(".py") for name in files):
            real = Path(folder).resolve().relative_to(ROOT.resolve())
            found[real.as_posix()] = ".".join(Path(folder).relative_to(source).parts)
    return found


FOLDERS = _folders()
"""The folders of the package, and the dotted name of each."""

TOP_FOLDERS = tuple(folder for folder in FOLDERS if "/" not in folder)
"""The folders at the top of the repository."""


def modules() -> list[Path]:
    """Return every module in these folders."""
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py"))]


def folder_of(path: Path) -> str:
    """Return the folder of a module, as a key of :data:`FOLDERS`."""
    return path.parent.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """Return the dotted name of a module."""
    package = FOLDERS[folder_of(path)]
    return package if path.stem == "__init__" else f"{package}.{path.stem}"
