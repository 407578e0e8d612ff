"""The notes that this project keeps in the metadata of committed offsets, as JSON with a version.

The kind of a note shows in one key: ``q`` of a commit, ``m`` of skip markers, ``reset`` and ``bookmark``.  Other
programs write other metadata, or none.

A note of a newer version is refused.  It must not look like the metadata of another program, which means something
else: a reset, or a batch that has skipped nothing.  So a version rises only if older versions would read the notes
wrongly.  Otherwise a note gets another key, which they ignore: during an upgrade, two versions share a group.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pyspark_kafka_group.offsets.errors import OffsetFormatError

Kind = Literal["q", "m", "reset", "bookmark"]

VERSION = 1
_KINDS = frozenset(("q", "m", "reset", "bookmark"))


def document_of(metadata: str | None, kind: Kind) -> dict[str, Any] | None:
    """Return the JSON object of a note of one kind; None for other notes and the metadata of other programs.

    Raises
    ------
    OffsetFormatError
        If a newer version of this project has written the note.
    """
    if not metadata:
        return None
    try:
        document = json.loads(metadata)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or _KINDS.isdisjoint(document):
        return None
    version = document.get("v")
    if type(version) is int and version > VERSION:
        raise OffsetFormatError(
            f"its format version is {version}, not {VERSION}.",
            "A newer version of pyspark-kafka-group wrote it. Use that version here, too.",
            what="The metadata of a committed offset",
        )
    return document if kind in document and version == VERSION else None
