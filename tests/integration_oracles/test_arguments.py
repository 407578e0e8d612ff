"""The command lines of long runs."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from integration.arguments import new_folder


def test_a_new_folder_is_taken(tmp_path: Path) -> None:
    assert new_folder(str(tmp_path / "new")) == tmp_path / "new"
    assert new_folder(str(tmp_path)) == tmp_path


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """Regression: a soak used the checkpoints of an older one, and its applications never came up."""
    (tmp_path / "app0.checkpoint").mkdir()
    with pytest.raises(argparse.ArgumentTypeError, match="name a new one"):
        new_folder(str(tmp_path))
