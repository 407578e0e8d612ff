"""What CI knows about tests that fail and then pass: ``.ci/flaky.toml`` lists them, each with its date and cause.

``check`` fails if an entry is incomplete, names no test, or is older than a month: by then the cause must be gone.
``again FILE`` reads pytest's cache of failed tests.  It prints those that may run once more, and fails if that is not
allowed.  ``tell TEST...`` prints what to do about tests that have passed then.
"""

from __future__ import annotations

import datetime
import json
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / ".ci" / "flaky.toml"
MOST_DAYS = 31

MOST_UNLISTED = 15
"""If more tests fail that are not listed, chance is not the cause."""


def entries(today: datetime.date) -> tuple[set[str], list[str]]:
    """Return the listed tests, and what is wrong with the list."""
    tests, problems = set(), []
    for entry in tomllib.loads(LIST.read_text(encoding="utf-8")).get("flaky", []):
        test, since, cause = (entry.get(key) for key in ("test", "since", "cause"))
        if not isinstance(test, str) or not isinstance(since, datetime.date) or not cause:
            problems.append(f"{entry}: give `test`, `since` (a date) and `cause`")
            continue
        tests.add(test)
        file, _, name = test.partition("::")
        path = ROOT / file
        if not path.is_file() or f"def {name.partition('[')[0]}(" not in path.read_text(encoding="utf-8"):
            problems.append(f"{test}: there is no such test, so remove the entry")
        if (today - since).days > MOST_DAYS:
            problems.append(f"{test}: listed since {since}, longer than {MOST_DAYS} days. Mend it: {cause}")
    return tests, problems


def may_run_again(failed: list[str], listed: set[str]) -> str:
    """Return why these tests may not run once more; empty if they may."""
    fast = [test for test in failed if not test.startswith("integration/")]
    if not failed:
        return "no test has failed, so something else has"
    if fast:
        return f"only integration tests may run once more, and this is none: {', '.join(fast)}"
    unlisted = [test for test in failed if test not in listed]
    if len(unlisted) > MOST_UNLISTED:
        return f"{len(unlisted)} tests failed that {LIST.name} does not list; at most {MOST_UNLISTED} run once more"
    return ""


def told(tests: list[str], listed: set[str], today: datetime.date) -> list[str]:
    """Return the lines about tests that have failed and then passed."""
    lines = []
    for test in tests:
        lines.append(f"FLAKY, {'listed' if test in listed else 'NOT LISTED'}: {test}")
        if test not in listed:
            lines.append("  Find the cause. If you cannot mend it now, add this to .ci/flaky.toml:")
            lines.append(f'  [[flaky]]\n  test = "{test}"\n  since = {today}\n  cause = "..."')
    return lines


def main(command: str, *given: str) -> int:
    """Run a command, and return the exit status."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    listed, problems = entries(today)
    if command == "check":
        print(*problems, sep="\n", end="\n" if problems else "")
        return bool(problems)
    if command == "again":
        failed = sorted(json.loads(Path(given[0]).read_text(encoding="utf-8")))
        print(*failed, sep="\n")
        if refused := may_run_again(failed, listed):
            print(f"No second run: {refused}.", file=sys.stderr)
        return bool(refused)
    print(*told([*given], listed, today), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
