"""Limits for the size of one Arrow record batch, as read and as decoded."""

from __future__ import annotations

MAX_BATCH_RECORDS = 8192
"""Below about 1000, Spark's cost per batch is noticeable.  Above about 10,000, the messages no longer fit into the
processor's cache."""

MAX_BATCH_BYTES = 32 * 1024 * 1024
"""A single larger record gets its own batch.  This limits the copy in Arrow; ``queued.max.messages.kbytes`` limits the
copied messages.  Far below 2 GB, the limit of an Arrow binary column."""

HEADER_BYTES = 8
"""The size of a header besides its key and its value: Arrow stores an offset of each.  A header may have neither, and a
record may have millions of headers."""

MAX_DECODED_BYTES = 128 * 1024 * 1024
"""The maximum size of a decoded column, in addition to twice the bytes that it is decoded from.

A batch that would become larger is split.  A single record that would become larger is malformed.  One byte of Avro may
be an element of an array, and the element takes room in each part of its column.  Without a limit, 8 MB became 1 GB.
"""


class TooLargeError(Exception):
    """A decoded column, or decompressed data, would exceed its limit."""
