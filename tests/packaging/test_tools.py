"""In CI a test is skipped only if its missing tool was announced."""

from __future__ import annotations

import pytest

from tests.missing_tools import MISSING, skip_without


def test_outside_of_ci_a_missing_tool_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no compiler"):
        skip_without("compiler", "no compiler")


def test_in_ci_a_missing_tool_fails_unless_it_was_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.delenv(MISSING, raising=False)
    with pytest.raises(pytest.fail.Exception, match="CI has to provide it"):
        skip_without("compiler", "no compiler")
    monkeypatch.setenv(MISSING, " containers sanitizers")
    with pytest.raises(pytest.fail.Exception, match="CI has to provide it"):
        skip_without("compiler", "no compiler")
    monkeypatch.setenv(MISSING, " containers compiler")
    with pytest.raises(pytest.skip.Exception, match="no compiler"):
        skip_without("compiler", "no compiler")
