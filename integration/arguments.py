"""Arguments that the command lines of long runs share."""

from __future__ import annotations

import argparse
from pathlib import Path


def new_folder(text: str) -> Path:
    """Return the folder if it is new or empty.  With old checkpoints in it, a run would resume on an old topic."""
    path = Path(text).absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise argparse.ArgumentTypeError(f"{text} is there already, and not an empty folder; name a new one")
    return path
