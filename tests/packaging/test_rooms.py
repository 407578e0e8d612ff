"""Rooms import each other only as the table in docs/architecture.md allows, which is in one direction.

The tests read the syntax tree, so imports inside functions and under `TYPE_CHECKING` also count.
"""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.packaging.packages import FOLDERS, PACKAGE, ROOT, folder_of, module_name, modules

LEAVES = FOLDERS.keys() & {
    "connector/formats",
    "connector/landing",
    "connector/metrics",
    "connector/views",
    "connector/where",
    "stores",
    "testing",
    "tools",
    "tools/analysis",
    "tools/doctor",
}
"""The rooms that only somebody needs: the core works without them.  All others are the core."""

ENTRANCES = {
    "__init__",
    "arrow_reads",
    "batch.bookmark",
    "batch_reader",
    "errors",
    "read_task",
    "source",
    "stream_reader",
    "stream_reader_40",
}
"""The modules of the core that may import leaves: they put together what a user has asked for."""

FOR_LEAVES = """
cluster.cluster cluster.cluster_answers cluster.committer cluster.error_remedies cluster.group_description
cluster.patience cluster.request_errors
cluster.properties.client_config cluster.properties.client_login cluster.properties.durations
cluster.properties.java_security cluster.properties.kafka_properties cluster.properties.permissions
cluster.properties.redaction cluster.properties.secret_references
columns.limits columns.native_library columns.record_batches columns.schema
control.client control.messages
offsets.commit_metadata offsets.errors offsets.notes offsets.read_range
offsets.spark_commit_log offsets.types offsets.wait_notice
options.format_settings options.option options.parsers options.property_checks options.table
reading.client_cache reading.reader_config
session.connect session.running_batch source stream_reader
wire.deadline wire.describe_requests wire.error_codes wire.fields wire.private_folder wire.topic_requests wire.types
worker.jvm_connection
"""
"""The modules of the core that leaves may import.  Before you add one, look for what serves among these."""

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


def short(name: str) -> str:
    """Return a dotted name without the name of the package."""
    return name.removeprefix(f"{PACKAGE}.") if name != PACKAGE else "__init__"


def imported_modules(path: Path) -> set[str]:
    """Return the modules of the package that a module imports anywhere, without the name of the package."""
    known = {module_name(path) for path in modules() if path.stem != "__init__"}
    names = imported_names(path.read_text(encoding="utf-8"))
    return {short(name if name in known else name.rpartition(".")[0]) for name in names} & {short(n) for n in known}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_core_and_leaves_have_a_wall_between_them(path: Path) -> None:
    leaves = {short(module_name(path)) for path in modules() if folder_of(path) in LEAVES}
    if folder_of(path) in LEAVES:
        found = imported_modules(path) - leaves - set(FOR_LEAVES.split())
        assert not found, f"leaves import from the core only what FOR_LEAVES names, not {sorted(found)}"
    elif short(module_name(path)) not in ENTRANCES:
        assert not imported_modules(path) & leaves, "the core imports leaves only in its ENTRANCES"


def test_every_opening_of_the_wall_is_used() -> None:
    used = {name for path in modules() if folder_of(path) in LEAVES for name in imported_modules(path)}
    assert set(FOR_LEAVES.split()) <= used
    assert {short(module_name(path)) for path in modules()} >= ENTRANCES
