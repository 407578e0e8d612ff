"""Rooms import each other only as the table in docs/architecture.md allows, which is in one direction.

The tests read the syntax tree, so imports inside functions and under `TYPE_CHECKING` also count.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
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
cluster.properties.client_config cluster.properties.clients cluster.properties.durations
cluster.properties.java_security cluster.properties.kafka_properties cluster.properties.permissions
cluster.properties.redaction cluster.properties.secret_references
columns.limits columns.native_library columns.record_batches columns.rounding columns.schema
control.client control.messages
offsets.commit_metadata offsets.errors offsets.notes offsets.read_range
offsets.spark_commit_log offsets.types offsets.wait_notice
options.format_settings options.option options.parsers options.table
reading.client_cache reading.reader_config
session.connect session.listener session.running_batch source stream_reader
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


def rooms_of(names: Iterable[str]) -> set[str]:
    """Return the rooms that these names belong to."""
    return {room for name in names if (room := room_of(name)) is not None}


def short(name: str) -> str:
    """Return a dotted name without the name of the package."""
    return name.removeprefix(f"{PACKAGE}.") if name != PACKAGE else "__init__"


@pytest.fixture(scope="module")
def imports() -> dict[Path, list[str]]:
    """Return the dotted names that each module imports anywhere."""
    return {path: imported_names(path.read_text(encoding="utf-8")) for path in modules()}


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
    assert rooms_of(imported_names(source)) == found


def test_table_names_every_room_and_nothing_else() -> None:
    assert MAY_IMPORT.keys() == FOLDERS.keys()
    assert set().union(*MAY_IMPORT.values()) <= FOLDERS.keys()


def test_imports_point_down_only() -> None:
    TopologicalSorter(MAY_IMPORT).prepare()  # raises if there is a cycle


def test_modules_import_what_their_rooms_may(imports: dict[Path, list[str]]) -> None:
    found = {path: rooms_of(names) - {folder_of(path)} - MAY_IMPORT[folder_of(path)] for path, names in imports.items()}
    assert {path: rooms for path, rooms in found.items() if rooms} == {}


def test_every_arrow_of_the_table_is_used(imports: dict[Path, list[str]]) -> None:
    used: dict[str, set[str]] = defaultdict(set)
    for path, names in imports.items():
        used[folder_of(path)] |= rooms_of(names)
    assert {room: allowed - used[room] for room, allowed in MAY_IMPORT.items() if allowed - used[room]} == {}


def test_core_and_leaves_have_a_wall_between_them(imports: dict[Path, list[str]]) -> None:
    known = {module_name(path) for path in imports if path.stem != "__init__"}
    leaves = {short(module_name(path)) for path in imports if folder_of(path) in LEAVES}
    for_leaves = {*FOR_LEAVES.split()}
    used: set[str] = set()
    wrong = {}
    for path, names in imports.items():
        found = {short(whole) for n in names if (whole := n if n in known else n.rpartition(".")[0]) in known}
        if folder_of(path) in LEAVES:
            used |= found
            wrong[path] = found - leaves - for_leaves
        elif short(module_name(path)) not in ENTRANCES:
            wrong[path] = found & leaves
    assert {path: names for path, names in wrong.items() if names} == {}, "FOR_LEAVES or ENTRANCES does not allow it"
    assert for_leaves <= used, "every opening of the wall is used"
    assert {short(module_name(path)) for path in imports} >= ENTRANCES
