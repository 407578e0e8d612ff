"""CI runs a failed integration test once more, tells it, and fails for old entries of the list."""

from __future__ import annotations

import datetime
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.packaging.packages import ROOT

TODAY = datetime.date(2026, 11, 28)
TEST = "integration/test_hand_over.py::test_x[consumer]"


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Return the program, with a project that has one test and an empty list."""
    spec = importlib.util.spec_from_file_location("flaky", ROOT / ".ci" / "flaky.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    (tmp_path / "integration").mkdir()
    (tmp_path / "integration" / "test_hand_over.py").write_text("def test_x(protocol): ...\n")
    (tmp_path / "flaky.toml").write_text("")
    monkeypatch.setattr(found, "ROOT", tmp_path)
    monkeypatch.setattr(found, "LIST", tmp_path / "flaky.toml")
    return found


def entry(flaky: ModuleType, *, test: str = TEST, since: str = "2026-11-27", cause: str = "a slow broker") -> list[str]:
    flaky.LIST.write_text(f'[[flaky]]\ntest = "{test}"\nsince = {since}\ncause = "{cause}"\n')
    return list(flaky.entries(TODAY)[1])


def test_a_complete_entry_is_fine_for_a_month(flaky: ModuleType) -> None:
    assert entry(flaky) == entry(flaky, since="2026-10-28") == []
    [problem] = entry(flaky, since="2026-10-27")
    assert "longer than 31 days. Mend it: a slow broker" in problem


@pytest.mark.parametrize("given", [{"cause": ""}, {"since": '"yesterday"'}], ids=["no cause", "no date"])
def test_an_incomplete_entry_is_a_problem(flaky: ModuleType, given: dict[str, str]) -> None:
    [problem] = entry(flaky, **given)
    assert "give `test`, `since` (a date) and `cause`" in problem


@pytest.mark.parametrize("test", ["integration/test_gone.py::test_x", "integration/test_hand_over.py::test_y"])
def test_an_entry_without_its_test_is_a_problem(flaky: ModuleType, test: str) -> None:
    [problem] = entry(flaky, test=test)
    assert "there is no such test" in problem


def test_only_integration_tests_run_once_more_and_not_too_many_that_are_not_listed(flaky: ModuleType) -> None:
    many = [f"integration/test_hand_over.py::test_x[{n}]" for n in range(16)]
    assert flaky.may_run_again(many[:10], set()) == ""
    assert "at most 15" in flaky.may_run_again(many, set())
    assert flaky.may_run_again(many, {many[0]}) == ""
    assert "only integration tests" in flaky.may_run_again([TEST, "tests/test_y.py::test_y"], set())
    assert "something else" in flaky.may_run_again([], set())


def test_a_flaky_test_that_is_not_listed_is_told_with_the_entry_to_add(flaky: ModuleType) -> None:
    assert flaky.told([TEST], {TEST}, TODAY) == [f"FLAKY, listed: {TEST}"]
    lines = "\n".join(flaky.told([TEST], set(), TODAY))
    assert lines.startswith(f"FLAKY, NOT LISTED: {TEST}\n")
    flaky.LIST.write_text(lines[lines.index("[[") :])
    assert flaky.entries(TODAY) == ({TEST}, [])
