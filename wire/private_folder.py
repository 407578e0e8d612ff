"""The folders for files that several processes of one user share on one machine."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def private_folder(name: str) -> Path:
    """Return a folder that only this user may enter.  Create it if it does not exist.

    It is in the folder of this user's session (``XDG_RUNTIME_DIR``), where no other user can take its name.  Without
    one, as in containers, it is in the folder for temporary files.

    Raises
    ------
    OSError
        If it cannot be created, or belongs to another user.
    """
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if session and _is_ours(Path(session)):
        folder = Path(session) / f"kafka-group-{name}"
    else:
        folder = Path(tempfile.gettempdir()) / f"kafka-group-{name}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(folder):
        raise PermissionError(f"{folder} belongs to another user")
    return folder


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
