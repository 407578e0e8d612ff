"""The list of small faults is true: `make faults` takes half an hour, and this shows at once that code has changed."""

from __future__ import annotations

from tests.faults.__main__ import FAULTS
from tests.faults.fault import ROOT


def test_the_text_of_each_fault_is_in_its_file_once() -> None:
    wrong = [fault.name for fault in FAULTS if (ROOT / fault.path).read_text("utf-8").count(fault.old) != 1]
    assert not wrong, f"correct these faults, or take them out of tests/faults: {wrong}"


def test_the_tests_of_each_fault_exist() -> None:
    files = {test.partition("::")[0] for fault in FAULTS for test in fault.tests.split()}
    assert not {file for file in files if not (ROOT / file).exists()}
