"""Spark's own commit log: which batch of a query is durably finished, and where its sources were then.

A checkpoint holds ``offsets/N``, written before batch N runs, and ``commits/N``, written when it is finished.  Both are
text with a version in the first line.  An offset log holds a line of metadata next, then one line per source.  In
version 1 this is the source's offset as JSON.  In version 2 (an option since Spark 4.2) the source's name and a colon
come before it.  A source without an offset has ``-``.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any


def batches_in(log: Path) -> list[int]:
    """Return the numbers of the batches in a log, ``offsets`` or ``commits``, in ascending order.

    Raises
    ------
    OSError
        If the log does not exist, or cannot be read.
    """
    # Next to the batches stand checksums and files that are being written.
    return sorted(int(path.name) for path in log.iterdir() if path.name.isdecimal())


def last_finished(checkpoint: Path) -> list[Any]:
    """Return the end offsets, one per source that has one, of the newest batch that is durably finished.

    Empty if there is none, or if the log has a format that this version does not know.

    Raises
    ------
    OSError
        If the checkpoint cannot be read.
    """
    try:
        finished = batches_in(checkpoint / "commits")
    except FileNotFoundError:
        return []  # no batch has been finished yet
    if not finished:
        return []
    try:
        return offsets_in((checkpoint / "offsets" / str(finished[-1])).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []  # removed as too old meanwhile: newer ones are there


# Spark keeps about 100 batches.  A few show the trigger, and cost as many small reads once in a run.
_GAPS = 5


def shortest_gap_s(checkpoint: Path) -> float | None:
    """Return the shortest time between the starts of two consecutive batches, of the newest ones, in seconds.

    With fixed triggers, this is their interval, or a multiple of it.  None if the log does not show it.

    Raises
    ------
    OSError, ValueError
        If the offset log cannot be read.
    """
    log = checkpoint / "offsets"
    if not log.is_dir():
        return None  # the first run
    newest = batches_in(log)[-_GAPS - 1 :]
    begins = [_begin_ms((log / str(number)).read_text(encoding="utf-8")) for number in newest]
    known = [(one, next_) for one, next_ in pairwise(begins) if one is not None and next_ is not None]
    return min(((next_ - one) / 1000 for one, next_ in known), default=None)


def _begin_ms(text: str) -> int | None:
    """Return when the batch of an offset log's file began, in milliseconds since 1970; None if it does not say."""
    _, metadata, *_ = [*text.split("\n"), ""]
    known = _offset(metadata)
    begin = known.get("batchTimestampMs") if isinstance(known, dict) else None
    return begin if isinstance(begin, int) else None


def offsets_in(text: str) -> list[Any]:
    """Return the end offsets that one file of an offset log holds, one per source that has one."""
    return [offset for offset in sources_in(text).values() if offset is not None]


def sources_in(text: str) -> dict[str, Any]:
    """Return the end offset of each source in one file of an offset log, by the source's name.

    The name of a source in version 1 is its place: 0, 1, ...  An offset is None if the source has not written
    any, or does not write JSON.  Empty if the log has a format that this version does not know.
    """
    version, *lines = text.split("\n")
    sources = lines[1:]  # the first one is metadata
    if version == "v2":
        named = [line.partition(":")[::2] for line in sources]
    elif version == "v1":
        named = [(str(place), line) for place, line in enumerate(sources)]
    else:
        named = []
    return {name: _offset(line) for name, line in named}


def _offset(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
