"""Rooms import each other only as the table in docs/architecture.md allows, which is in one direction.

The tests read the syntax tree, so imports inside functions and under `TYPE_CHECKING` also count.
"""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.packaging.packages import FOLDERS, PACKAGE, ROOT, folder_of, modules

ROOM_OF = {package: folder for folder, package in FOLDERS.items()}


def table(text: str) -> dict[str, set[str]]:
    """Return the table of the page: the folder of each room, and the folders that it may import from."""
    found = {}
    for room, allowed in re.findall(r"^\| `([\w/]+)` \|[^|]*\|([^|]*)\|$", text, re.MULTILINE):
        names = re.findall(r"`([\w/]+)`", allowed)
        # The page names rooms of the connector without `connector/`.
        found[room] = {name if name in FOLDERS else f"connector/{name}" for name in names}
    return found


_, _, SECTION = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("\n## Rooms\n")
MAY_IMPORT = table(SECTION.partition("\n## ")[0])


def room_of(name: str) -> str | None:
    """Return the folder of the room that a dotted name belongs to; None for a name outside the package."""
    if name.partition(".")[0] != PACKAGE:
        return None
    while name not in ROOM_OF:
        name = name.rpartition(".")[0]
    return ROOM_OF[name]


def imported_names(source: str) -> list[str]:
    """Return the dotted names that `source` imports anywhere.  ruff allows no relative imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def imported_rooms(source: str) -> set[str]:
    """Return the rooms that `source` imports anywhere."""
    return {room for name in imported_names(source) if (room := room_of(name)) is not None}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pyspark_kafka_group.coordinator.event_log", {"coordinator"}),
        ("from pyspark_kafka_group import offsets, testing", {"offsets", "testing"}),
        ("from pyspark_kafka_group import DefaultSource", {"connector"}),
        ("from pyspark_kafka_group.reading import fetcher", {"connector/reading"}),
        ("from pyspark_kafka_group.coordinator import handover, member", {"coordinator", "coordinator/handover"}),
        ("def f():\n    from pyspark_kafka_group.coordinator.handover.state import State", {"coordinator/handover"}),
        ("if TYPE_CHECKING:\n    from pyspark_kafka_group.stream_reader import Reader", {"connector"}),
        ("import json, pyspark.sql", set()),
    ],
)
def test_every_way_to_import_a_room_is_seen(source: str, found: set[str]) -> None:
    assert imported_rooms(source) == found


def test_table_names_every_room_and_nothing_else() -> None:
    assert MAY_IMPORT.keys() == FOLDERS.keys()
    assert set().union(*MAY_IMPORT.values()) <= FOLDERS.keys()


def test_imports_point_down_only() -> None:
    TopologicalSorter(MAY_IMPORT).prepare()  # raises if there is a cycle


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_what_its_room_may(path: Path) -> None:
    room = folder_of(path)
    found = imported_rooms(path.read_text(encoding="utf-8")) - {room}
    assert found <= MAY_IMPORT[room], f"{path.relative_to(ROOT)} must not import {sorted(found - MAY_IMPORT[room])}"


@pytest.mark.parametrize("room", FOLDERS)
def test_every_arrow_of_the_table_is_used(room: str) -> None:
    sources = [path.read_text(encoding="utf-8") for path in modules() if folder_of(path) == room]
    used = set().union(*(imported_rooms(source) for source in sources))
    assert used >= MAY_IMPORT[room]
