"""What the command lines of long runs share."""

from __future__ import annotations

import argparse
from pathlib import Path


def new_folder(text: str) -> Path:
    """A folder that does not exist or is empty: with old checkpoints in it, a run would go on with an old topic."""
    path = Path(text).absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise argparse.ArgumentTypeError(f"{text} is there already, and not an empty folder; name a new one")
    return path
