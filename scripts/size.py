"""Prints the size of the core, and how many places answer each question: the table of `tests/packaging/test_size.py`.

Some rows are counted from the syntax trees of all modules.  The others are lists of places, below, that people have
found by reading.  If you add or remove such a place, correct its list.

    .venv/bin/python scripts/size.py            the table
    .venv/bin/python scripts/size.py --names    and the names behind the numbers
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the modules of the tests

from tests.packaging.packages import ROOT, folder_of, module_name, modules

_CORE = ("connector", "coordinator", "offsets", "cluster", "wire")
_LEAVES = ("connector/formats", "connector/metrics", "connector/landing")

_MOST_LINES_OF_A_FUNCTION = 60
_MOST_LINES_OF_A_FILE = 500
_MAY_BE_LONGER = {"offsets/errors.py", "cluster/properties/kafka_properties.py"}
"""A catalogue of errors and a table of properties."""

BATCH = (
    "connector/stream_reader_42.py KafkaGroupStreamReader.latestOffset",
    "connector/stream_reader.py StreamReader._called",
    "connector/query/query.py Query.latest_offset",
    "connector/query/second_source.py SourceCheck.asked",
    "offsets/batch_offset.py OffsetTexts.read",
    "connector/query/batch_tracker.py BatchTracker.called",
    "coordinator/membership.py Membership.finish",
    "coordinator/group_thread.py Mailbox.call",
    "coordinator/group_thread.py GroupThread.feed",
    "coordinator/handover/step.py step",
    "coordinator/handover/batches.py finish",
    "coordinator/commits.py Commits.send",
    "cluster/daemon_executor.py DaemonExecutor.post",
    "cluster/committer.py TransactionalCommitter.commit",
    "connector/query/stream_planner.py StreamPlanner.next_batch",
    "connector/query/available_now.py AvailableNow.next_batch",
    "connector/query/log_watch.py LogWatch.list_ends",
    "cluster/log_ends.py LogEnds.ends",
    "connector/query/stream_planner.py BatchDelay.delays",
    "connector/query/planning.py cut_ranges",
    "connector/query/log_watch.py LogInspection.inspect",
    "coordinator/membership.py Membership.plan",
    "coordinator/handover/batches.py plan",
    "coordinator/activity.py Activity.planning",
    "connector/query/query.py Query.running_ranges",
    "offsets/task_ranges.py pack",
)
"""A batch that Spark asks for, plans and commits."""

CROSSINGS = (
    "coordinator/membership.py Membership.finish",
    "coordinator/membership.py Membership.plan",
    "coordinator/commits.py Commits.send",
    "coordinator/commits.py Commits.answered",
)
"""Where one batch goes from one thread to another."""

IN_THE_GROUP = ("coordinator/member.py Member.standing",)
"""Fields that answer "am I in the group"."""

LEADERS = ("wire/leaders.py Leaders",)
"""Places that read from the brokers' answers who leads, and remember it."""

LOOPS = ("cluster/patience.py patiently",)
"""Loops that ask again until a deadline."""


class Row(NamedTuple):
    """A row of the table.

    Attributes
    ----------
    what : str
        What is counted.
    number : int
        How many there are.
    names : collection of str
        Which ones.
    """

    what: str
    number: int
    names: Collection[str] = ()


def rows() -> list[Row]:
    """Return the table."""
    folders = {path.parent for path in modules() if _is_core(path)}
    core = [path for folder in folders for path in folder.iterdir() if path.suffix in {".py", ".c", ".h"}]
    packages = {module_name(path) for path in modules() if path.stem == "__init__"}
    once = sorted(name for name, users in _importers().items() if len(users) == 1 and name not in packages)
    twice = sorted(name for name, count in Counter(_classes()).items() if count > 1)
    functions, files = list(_long_functions()), list(_long_files())
    circles = list(_circles())
    return [
        Row("code lines of the core", sum(map(code_lines, core))),
        Row("modules on the way of one batch", len({place.partition(" ")[0] for place in BATCH}), BATCH),
        Row("crossings between threads on that way", len(CROSSINGS), CROSSINGS),
        Row('fields that answer "am I in the group"', len(IN_THE_GROUP), IN_THE_GROUP),
        Row("places that find a leader", len(LEADERS), LEADERS),
        Row('hand-written loops "ask again"', len(LOOPS), LOOPS),
        Row("callables handed to the parts of the group thread", len(_callables()), _callables()),
        Row("modules with one importer", len(once), once),
        Row("class names used twice", len(twice), twice),
        Row("functions over 60 lines", len(functions), functions),
        Row("files over 500 lines", len(files), files),
        Row("circles of imports", len(circles), circles),
    ]


def code_lines(path: Path) -> int:
    """Return the lines of a module without docstrings, comments and blank lines; of a C file, without blank lines."""
    if path.suffix != ".py":
        return sum(1 for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    lines: set[int] = set()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in skipped and token.type != tokenize.ENCODING:
                lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _is_core(path: Path) -> bool:
    folder = folder_of(path)
    return folder.partition("/")[0] in _CORE and folder not in _LEAVES


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def exists(place: str) -> bool:
    """Return whether a place of the lists is in the code."""
    path, _, name = place.partition(" ")
    return (ROOT / path).exists() and name in _names(ROOT / path)


@cache
def _names(path: Path) -> frozenset[str]:
    """Return the functions, classes, methods and fields of a module, methods and fields with their class."""
    found = set()
    for node in _tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef):
                    found.add(f"{node.name}.{inner.name}")
                elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                    found.add(f"{node.name}.{inner.attr}")
                elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                    found.add(f"{node.name}.{inner.target.id}")
    return frozenset(found)


@cache
def _importers() -> Mapping[str, set[str]]:
    """Return the modules that import each module, anywhere in their text."""
    known = {module_name(path) for path in modules()}
    found: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                imported = name if name in known else name.rpartition(".")[0]
                if imported in known and imported != module_name(path):
                    found[imported].add(module_name(path))
    return found


def _circles() -> Iterator[str]:
    """Yield one circle of imports, if there is any, without imports only for types."""
    graph: dict[str, set[str]] = defaultdict(set)
    for imported, users in _importers().items():
        for user in users:
            graph[user].add(imported)
    packages = {module_name(path) for path in modules() if path.stem == "__init__"}
    try:
        TopologicalSorter({name: used - packages for name, used in graph.items() if name not in packages}).prepare()
    except CycleError as problem:
        yield " -> ".join(reversed(problem.args[1]))


def _classes() -> Iterator[str]:
    for path in modules():
        yield from (node.name for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef))


def _long_functions() -> Iterator[str]:
    for path in modules():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
                if lines > _MOST_LINES_OF_A_FUNCTION:
                    yield f"{path.relative_to(ROOT)} {node.name}: {lines}"


def _docstring_lines(node: ast.FunctionDef) -> int:
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1 if ast.get_docstring(node) is not None else 0


def _long_files() -> Iterator[str]:
    for path in modules():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > _MOST_LINES_OF_A_FILE and str(path.relative_to(ROOT)) not in _MAY_BE_LONGER:
            yield f"{path.relative_to(ROOT)}: {lines}"


def _callables() -> list[str]:
    """Return the functions that the group thread hands to its parts when it creates them."""
    path = ROOT / "coordinator" / "group_thread.py"
    functions = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef)]
    methods = {f"self.{function.name}" for function in functions if not function.decorator_list}
    return [
        text
        for function in functions
        if function.name == "__init__"
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and "Thread" not in ast.unparse(call.func)
        for given in (*call.args, *(keyword.value for keyword in call.keywords))
        if (text := ast.unparse(given)) in methods or (isinstance(given, ast.Lambda) and "post(lambda" not in text)
    ]


def main() -> None:
    """Print the table."""
    named = "--names" in sys.argv
    for row in rows():
        print(f"{row.number:7,}  {row.what}")
        for name in row.names if named else ():
            print(f"         {name}")


if __name__ == "__main__":
    main()
