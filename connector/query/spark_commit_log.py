"""Spark's own commit log: which batch of a query is durably finished.

A checkpoint holds ``offsets/N``, written before batch N runs, and ``commits/N``, written when it is finished.  Both are
text with a version in the first line.  An offset log holds a line of metadata next, then one line per source: in
version 1 the source's offset as JSON, in version 2 (Spark 4.2 and newer, where it is asked for) the source's name and a
colon before it.  A source without an offset has ``-``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def last_finished(checkpoint: Path) -> list[Any]:
    """Return the end offsets, one per source that has one, of the newest batch that is durably finished.

    Empty if there is none, or if the log has a format that this version does not know.

    Raises
    ------
    OSError
        If the checkpoint cannot be read.
    """
    try:
        names = [path.name for path in (checkpoint / "commits").iterdir()]
    except FileNotFoundError:
        return []  # no batch has been finished yet
    # Next to the batches stand checksums and files that are being written.
    newest = max((int(name) for name in names if name.isdecimal()), default=None)
    if newest is None:
        return []
    try:
        return offsets_in((checkpoint / "offsets" / str(newest)).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []  # removed as too old meanwhile: newer ones are there


def offsets_in(text: str) -> list[Any]:
    """Return the end offsets that one file of an offset log holds, one per source that has one."""
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
