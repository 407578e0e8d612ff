"""How large one Arrow record batch may be, as it is read and once it is decoded."""

from __future__ import annotations

MAX_BATCH_RECORDS = 8192
"""Below about 1000 Spark's cost per batch shows; above some ten thousand the messages fall out of the processor's
cache."""

MAX_BATCH_BYTES = 32 * 1024 * 1024
"""Unless a single record is larger.  It bounds the copy that Arrow makes; the messages copied from are bounded by
``queued.max.messages.kbytes``.  Far below 2 GB, where an Arrow binary column ends."""

HEADER_BYTES = 8
"""What a header counts besides its key and its value: Arrow keeps an offset of each.  A header may have neither, and a
record may have millions of them."""

MAX_DECODED_BYTES = 128 * 1024 * 1024
"""What a decoded column may take, besides twice the bytes that it is decoded from.

A batch that would take more is split.  A record that would take more alone is malformed.  A byte of Avro may be an
element of an array, and the element takes room in each part of its column: without a limit, 8 MB became 1 GB.
"""


class TooLargeError(Exception):
    """A decoded column, or decompressed data, would take more than it may."""
