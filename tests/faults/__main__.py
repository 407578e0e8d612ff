"""Put faults into a copy of the project, one at a time, and tell which of them no fast test notices.

The exit status is 1 if a fault is unnoticed, or cannot be judged: its text has changed, or its tests fail without it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.columns import FAULTS as COLUMNS
from tests.faults.fault import BrokenFaultError, Copy
from tests.faults.formats import FAULTS as FORMATS
from tests.faults.guards import FAULTS as GUARDS
from tests.faults.hand_over import FAULTS as HAND_OVER
from tests.faults.landing import FAULTS as LANDING
from tests.faults.where import FAULTS as WHERE
from tests.faults.writing import FAULTS as WRITING

FAULTS = [*COLUMNS, *FORMATS, *GUARDS, *HAND_OVER, *LANDING, *WHERE, *WRITING]


def main() -> int:
    """Run the faults, and print a line for each of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose name or file contains this text")
    parser.add_argument("--list", action="store_true", help="only print the names of the faults")
    given = parser.parse_args()
    faults = [fault for fault in FAULTS if given.only in f"{fault.path}: {fault.name}"]
    if given.list:
        print(*(f"{fault.path}: {fault.name}" for fault in faults), sep="\n")
        return 0
    begun = time.monotonic()
    results = {"noticed": 0, "UNNOTICED": 0, "ERROR": 0}
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        if failed := copy.test(sorted({test for fault in faults for test in fault.tests.split()})):
            print(f"The tests fail without a fault: {failed}")
            return 1
        for fault in faults:
            try:
                with copy.with_fault(fault):
                    failed = copy.test(fault.tests.split())
                result, reason = ("noticed", "") if failed else ("UNNOTICED", "")
            except BrokenFaultError as problem:
                result, reason = "ERROR", f": {problem}"
            results[result] += 1
            print(f"{result:9}  {fault.path}: {fault.name}{reason}", flush=True)
    counts = ", ".join(f"{count} {result.lower()}" for result, count in results.items())
    print(f"{len(faults)} faults: {counts}. {time.monotonic() - begun:.0f} s.")
    return int(results["noticed"] != len(faults))


if __name__ == "__main__":
    sys.exit(main())
