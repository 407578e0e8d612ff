"""The public names: the functions of the package, and the errors that the user's own process raises."""

from __future__ import annotations

import ast

import pyspark_kafka_group
from pyspark_kafka_group import errors
from pyspark_kafka_group.errors import KafkaGroupError
from tests.packaging.packages import folder_of, modules

# The folders with the code that a bookmark runs in the user's process.
ROOMS_OF_BOOKMARKS = {"connector/batch", "connector/options", "cluster", "cluster/properties"}
OF_STREAMS = {"MemberFencedError"}  # cluster/committer.py


def test_the_public_names_are_these() -> None:
    names = ["DefaultSource", "__version__", "bookmark", "read_arrow", "register", "run_until_signal", "stop"]
    assert pyspark_kafka_group.__all__ == names


def test_the_exported_errors_are_errors_of_this_project() -> None:
    assert sorted(errors.__all__) == errors.__all__
    assert all(issubclass(getattr(errors, name), KafkaGroupError) for name in errors.__all__)


def test_every_error_that_a_bookmark_may_raise_is_exported() -> None:
    trees = [ast.parse(path.read_text()) for path in modules() if folder_of(path) in ROOMS_OF_BOOKMARKS]
    raised = {
        alias.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "pyspark_kafka_group.offsets.errors"
        for alias in node.names
    }
    assert len(raised) > 8
    assert raised - OF_STREAMS <= {*errors.__all__}
