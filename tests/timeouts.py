"""Says in the last line about a test that took too long where it waited.

pytest-timeout prints the stacks of all threads, which may be hundreds of lines, and ends with the time alone.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

_SHOWN = 3
"""How many calls are shown, from the innermost outwards.  The line of the test follows them."""


@pytest.hookimpl(wrapper=True, specname="pytest_runtest_makereport")
def pytest_timeout_names_the_calls(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the calls that a test was in to the reason that the summary shows."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if call.excinfo is not None and crash is not None and crash.message.startswith("Failed: Timeout ("):
        frames = reversed(call.excinfo.traceback.filter(call.excinfo))
        calls = [f"{Path(frame.path).name}:{frame.lineno + 1} {frame.name}" for frame in frames]
        here = [text for text in calls[_SHOWN:] if text.startswith(item.path.name)]
        waited = ", called by ".join([*calls[:_SHOWN], *here[-1:]])
        crash.message += f" It waited in {waited}."
        report.sections.append(("where it waited", waited))
    return report
