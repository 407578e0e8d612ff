"""The layers import each other in one direction: connector -> coordinator -> offsets -> wire; nobody imports testing.

Inside of the coordinator nothing that does something is imported by the hand-over machine, which only decides.

Proved from the syntax tree, so imports inside functions and under `TYPE_CHECKING` count as well.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "pyspark_kafka_group"
LAYERS = ("connector", "coordinator", "offsets", "testing", "wire")
MAY_IMPORT = {
    "connector": {"connector", "coordinator", "offsets", "wire"},
    "coordinator": {"coordinator", "offsets"},
    "offsets": {"offsets", "wire"},
    "testing": {"connector", "coordinator", "offsets", "testing", "wire"},
    "wire": {"wire"},
}
INSIDE = {
    "coordinator/handover": {"coordinator.handover", "coordinator.events", "offsets"},
}
"""What the modules of a folder inside of a layer may import, and nothing else of the package."""

FILES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def package_of(path: Path) -> str:
    """Dotted package of a module."""
    layer, *below = path.relative_to(ROOT).parent.parts
    return ".".join([PACKAGE, *([] if layer == "connector" else [layer]), *below])


def layer_of(module: str) -> str | None:
    """Layer of a dotted name; None for a name outside the package."""
    first, *rest = module.split(".")
    if first != PACKAGE:
        return None
    return rest[0] if rest and rest[0] in LAYERS[1:] else "connector"


def imported_names(source: str, package: str) -> list[str]:
    """Dotted names that `source`, a module of the dotted `package`, imports anywhere."""
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
    return names


def imported_layers(source: str, package: str) -> set[str]:
    """Layers that `source`, a module of the dotted `package`, imports anywhere."""
    return {layer for name in imported_names(source, package) if (layer := layer_of(name)) is not None}


def imported_outside(source: str, package: str, allowed: set[str]) -> set[str]:
    """Names of the package that `source`, a module of the dotted `package`, imports and that are not `allowed`."""
    inside = tuple(f"{PACKAGE}.{name}." for name in allowed)
    names = {name for name in imported_names(source, package) if layer_of(name) is not None}
    return {name for name in names if not f"{name}.".startswith(inside)}


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


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from pyspark_kafka_group.coordinator.handover import batches", set()),
        ("from pyspark_kafka_group.coordinator.handover.state import State", set()),
        ("from pyspark_kafka_group.coordinator import events", set()),
        ("from pyspark_kafka_group.coordinator.events import Event", set()),
        ("import pyspark_kafka_group.offsets.types, json", set()),
        ("from . import state", set()),
        ("from .. import events", set()),
        ("from pyspark_kafka_group.coordinator import events, member", {"coordinator.member"}),
        ("from pyspark_kafka_group.coordinator import event_log", {"coordinator.event_log"}),
        ("from pyspark_kafka_group.coordinator.membership import X", {"coordinator.membership.X"}),
        ("def f():\n    from ..commits import X", {"coordinator.commits.X"}),
        ("import pyspark_kafka_group.coordinator.group_thread", {"coordinator.group_thread"}),
        ("from pyspark_kafka_group.wire import types", {"wire.types"}),
        ("from pyspark_kafka_group import planning", {"planning"}),
    ],
)
def test_every_import_that_the_hand_over_must_not_have_is_seen(source: str, found: set[str]) -> None:
    outside = imported_outside(source, f"{PACKAGE}.coordinator.handover", INSIDE["coordinator/handover"])
    assert outside == {f"{PACKAGE}.{name}" for name in found}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_the_layers_below_it(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    upwards = imported_layers(path.read_text(encoding="utf-8"), package_of(path)) - MAY_IMPORT[layer]
    assert not upwards, f"{path.relative_to(ROOT)} must not import {sorted(upwards)}"


@pytest.mark.parametrize("folder", INSIDE)
def test_folder_inside_of_a_layer_imports_only_what_it_may(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    for path in paths:
        outside = imported_outside(path.read_text(encoding="utf-8"), package_of(path), INSIDE[folder])
        assert not outside, f"{path.relative_to(ROOT)} must not import {sorted(outside)}"
