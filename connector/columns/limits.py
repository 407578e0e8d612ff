"""How large one Arrow record batch may be."""

from __future__ import annotations

MAX_BATCH_RECORDS = 8192
"""Below about 1000 Spark's cost per batch shows; above some ten thousand the messages fall out of the processor's
cache."""

MAX_BATCH_BYTES = 32 * 1024 * 1024
"""Unless a single record is larger.  It bounds the copy that Arrow makes; the messages copied from are bounded by
``queued.max.messages.kbytes``.  Far below 2 GB, where an Arrow binary column ends."""
