"""The lines of README.md and docs/ that install the package: from a clone, or from a package index.

Change ``PUBLISHED`` when the first version is on an index, and run ``scripts/render_docs.py``.  A test compares.
"""

from __future__ import annotations

import re

PUBLISHED = False

_SOURCE = "pyspark-kafka-group" if PUBLISHED else "."
_WHERE = "" if PUBLISHED else "In a clone of this repository"
_BLOCK = f"""
{_WHERE or "In a new folder"} (pip downloads 500 MB):

<!-- fragment: run by integration/test_readme.py -->
```sh
python3 -m venv try && . try/bin/activate
pip install '{_SOURCE}[cli,spark]'
cd try
```

"""


def rendered(page: str) -> str:
    """Return the text of a page with new lines to install the package."""
    page = re.sub(r"(?<=<!-- install -->\n).*?(?=<!-- end of install -->)", lambda _: _BLOCK, page, flags=re.DOTALL)
    lines = re.compile(r"^((?!\|).*pip install ')(?:\.|pyspark-kafka-group)(?=\[)", re.MULTILINE)
    return lines.sub(rf"\g<1>{_SOURCE}", page)
