"""Faults in reading records and turning them into columns."""

from __future__ import annotations

from tests.faults.fault import Fault

_BATCHES = "connector/columns/_record_batches.c"
_TEST_BATCHES = "tests/connector/columns/test_record_batches.py::"

FAULTS = [
    Fault(
        "two aborted transactions of one producer before one marker stay open",
        _BATCHES,
        "        if (open_of(batches, next->producer) != NULL) continue; /* one marker ends both */\n",
        "",
        _TEST_BATCHES + "test_one_marker_ends_all_open_aborted_transactions_of_its_producer",
    ),
    Fault(
        "a commit marker ends an aborted transaction",
        _BATCHES,
        "    if (int16_at(marker.key + 2) != 0) return;\n",
        "",
        _TEST_BATCHES + "test_only_the_marker_of_an_abort_ends_an_aborted_transaction",
    ),
    Fault(
        "the end of a corrupt batch at offset 0 is unknown",
        "connector/columns/record_batches.py",
        "if offset < 0 or end <= offset",
        "if offset <= 0 or end <= offset",
        "tests/connector/columns/test_record_batches.py",
    ),
]
