"""Reads from Spark's commit log which batch of a query is durably finished.

Spark writes ``offsets/N`` of a checkpoint before batch N runs, and ``commits/N`` when the batch is finished.  Both are
text.  The first line is a version.  In ``offsets/N``, the second line is metadata, and each further line belongs to one
source.  In version 1 this line is the source's offset as JSON.  In version 2 (optional since Spark 4.2) the source's
name and a colon come before it.  A source without an offset has ``-``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def last_finished(checkpoint: Path) -> list[Any]:
    """Return the end offsets of the newest durably finished batch, one for each source that has one.

    The list is empty if no batch is finished, or if this version does not know the format of the log.

    Raises
    ------
    OSError
        If the checkpoint cannot be read.
    """
    try:
        names = [path.name for path in (checkpoint / "commits").iterdir()]
    except FileNotFoundError:
        return []  # no batch has been finished yet
    # The folder also contains checksums and unfinished files.
    newest = max((int(name) for name in names if name.isdecimal()), default=None)
    if newest is None:
        return []
    try:
        return offsets_in((checkpoint / "offsets" / str(newest)).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []  # Spark has just removed the file as too old: there are newer batches


def offsets_in(text: str) -> list[Any]:
    """Return the end offsets in one file of an offset log, one for each source that has one."""
    version, *lines = text.split("\n")
    sources = lines[1:]  # the first one is metadata
    if version == "v2":
        sources = [line.partition(":")[2] for line in sources]
    elif version != "v1":
        return []
    found = []
    for line in sources:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # "-", or the offset of a source that does not write JSON
    return found
