"""The layers import each other in one direction: connector -> coordinator -> offsets; nobody imports testing.

Proved from the syntax tree, so imports inside functions and under `TYPE_CHECKING` count as well.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "pyspark_kafka_group"
LAYERS = ("connector", "coordinator", "offsets", "testing")
MAY_IMPORT = {
    "connector": {"connector", "coordinator", "offsets"},
    "coordinator": {"coordinator", "offsets"},
    "offsets": {"offsets"},
    "testing": {"connector", "coordinator", "offsets", "testing"},
}
FILES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def layer_of(module: str) -> str | None:
    """Layer of a dotted name; None for a name outside the package."""
    first, *rest = module.split(".")
    if first != PACKAGE:
        return None
    return rest[0] if rest and rest[0] in LAYERS[1:] else "connector"


def imported_layers(source: str, package: str) -> set[str]:
    """Layers that `source`, a module of the dotted `package`, imports anywhere."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            names += [f"{base}.{alias.name}" for alias in node.names]
    return {layer for name in names if (layer := layer_of(name)) is not None}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pyspark_kafka_group.coordinator.events", {"coordinator"}),
        ("from pyspark_kafka_group import offsets, testing", {"offsets", "testing"}),
        ("from pyspark_kafka_group import DefaultSource", {"connector"}),
        ("def f():\n    from ..coordinator import events", {"coordinator"}),
        ("if TYPE_CHECKING:\n    from pyspark_kafka_group.stream import Reader", {"connector"}),
        ("from . import types", {"offsets"}),
        ("from .. import options", {"connector"}),
        ("import json, pyspark.sql", set()),
    ],
)
def test_every_way_to_import_a_layer_is_seen(source: str, found: set[str]) -> None:
    assert imported_layers(source, f"{PACKAGE}.offsets") == found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_the_layers_below_it(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    package = PACKAGE if layer == "connector" else f"{PACKAGE}.{layer}"
    upwards = imported_layers(path.read_text(encoding="utf-8"), package) - MAY_IMPORT[layer]
    assert not upwards, f"{path.relative_to(ROOT)} must not import {sorted(upwards)}"
