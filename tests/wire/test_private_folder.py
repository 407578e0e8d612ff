"""Only this user may enter a private folder, and no other user can take its name where the session has a folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from pyspark_kafka_group.wire.private_folder import private_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files.  The session has no folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path


def test_the_folder_of_the_session_comes_first(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = temporary / "session"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    assert private_folder("plans") == temporary / f"kafka-group-plans-{os.getuid()}", "it does not exist"
    session.mkdir()
    assert private_folder("plans") == session / "kafka-group-plans"
    assert private_folder("plans").stat().st_mode & 0o077 == 0


def test_a_folder_of_another_user_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary / "elsewhere").mkdir()
    (temporary / f"kafka-group-plans-{os.getuid()}").symlink_to("elsewhere")
    with pytest.raises(PermissionError, match="belongs to another user"):
        private_folder("plans")
    made = private_folder("queries")
    monkeypatch.setattr(os, "getuid", lambda: made.stat().st_uid + 1)
    (temporary / f"kafka-group-queries-{os.getuid()}").mkdir()
    with pytest.raises(PermissionError, match="belongs to another user"):
        private_folder("queries")
