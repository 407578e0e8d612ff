"""Tools that a test needs and a machine may lack."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

MISSING = "CI_WITHOUT"
"""Environment variable: the tools that ``.ci/run`` could not provide, and has announced as missing."""


def skip_without(tool: str, reason: str) -> NoReturn:
    """Skip the test, because `tool` is missing.  In CI, fail it, unless ``.ci/run`` has announced the tool."""
    if os.environ.get("CI") and tool not in os.environ.get(MISSING, "").split():
        pytest.fail(f"{reason}; CI has to provide it, or to say that it cannot ({MISSING} in .ci/run)")
    pytest.skip(reason)
