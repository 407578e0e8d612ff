"""The commands that read event logs: output and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_kafka_group.tools import event_commands
from pyspark_kafka_group.tools.commands import kafka_group
from pyspark_kafka_group.tools.event_commands import as_script
from tests.tools.shell import refused, run

EVIL = "</script><img src=x onerror=alert(1)>@@rows@@"

LINES = [
    {"time": 1767225600.0, "member": "etl-1-aaaaaaaa", "event": "assigned", "partitions": ["orders-0", "orders-1"]},
    {"time": 1767225601.0, "member": "etl-1-aaaaaaaa", "event": "planned", "ranges": {"orders-0": [0, 1500]}},
    {"time": 1767225603.0, "member": "etl-1-aaaaaaaa", "event": "finished", "ranges": {"orders-0": [0, 1500]}},
    {"time": 1767225603.5, "member": "etl-1-aaaaaaaa", "event": "committed", "offsets": {"orders-0": 1500}},
    {"time": 1767225604.0, "member": "etl-1-aaaaaaaa", "event": "released", "partitions": ["orders-1"]},
]
OTHER = [{"time": 1767225602.0, "member": EVIL, "event": "assigned", "partitions": [f"{EVIL}-3"]}]


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    files = {"one.jsonl": LINES, "two.jsonl": OTHER}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [str(tmp_path / name) for name in files]


def test_events_of_several_files_are_shown_by_time(logs: list[str]) -> None:
    found = run("events", "--json", *logs)
    assert found.exit_code == 0, found.output
    assert [json.loads(line)["time"] for line in found.stdout.splitlines()] == sorted(
        line["time"]
        for line in LINES + OTHER  # type: ignore[type-var]  # each is a number
    )
    assert json.loads(found.stdout.splitlines()[0]) == LINES[0]


def test_people_are_shown_a_line_for_each_event(logs: list[str]) -> None:
    found = run("events", "--topics", "orders:0", "--event", "planned", "--event", "committed", *logs)
    assert found.stdout.splitlines() == [
        "2026-01-01T00:00:01.000Z  etl-1-aaaaaaaa  planned  ranges orders-0: [0, 1500)",
        "2026-01-01T00:00:03.500Z  etl-1-aaaaaaaa  committed  offsets orders-0: 1500",
    ]


def test_events_are_chosen_by_time_and_application(logs: list[str]) -> None:
    found = run("events", "--application", "etl-1", "--since", "2026-01-01T00:00:03", "--until", "1767225604", *logs)
    assert [line.split()[2] for line in found.stdout.splitlines()] == ["finished", "committed"]
    assert run("events", "--since", "yesterday", *logs).exit_code == 2


def test_bad_lines_are_named_and_left_out(logs: list[str]) -> None:
    with Path(logs[0]).open("ab") as file:
        file.write(b'{"time": 1}\nnonsense\n')
    for command in (["events"], ["timeline", "-o", "-"]):
        found = run(*command, *logs)
        assert found.exit_code == 1
        assert f"{logs[0]}:6 is left out: 'time', 'member' or 'event' is missing" in found.stderr
        assert f"{logs[0]}:7 is left out: it is not JSON" in found.stderr
        assert "etl-1-aaaaaaaa" in found.stdout


def test_a_file_of_another_kind_does_not_flood(tmp_path: Path) -> None:
    file = tmp_path / "other.log"
    file.write_text("INFO something\n" * 1000)
    found = run("events", str(file))
    assert (found.exit_code, found.stdout) == (1, "")
    assert len(found.stderr.splitlines()) == event_commands._NAMED + 1
    assert "980 more lines are left out" in found.stderr


def test_a_file_that_cannot_be_read_is_2(tmp_path: Path) -> None:
    for command in ("events", "timeline"):
        found = run(command, str(tmp_path / "none.jsonl"))
        assert found.exit_code == 2
        assert "none.jsonl: No such file or directory" in found.stderr


def data(text: str) -> dict[str, object]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    found: dict[str, object] = json.loads(match[1])
    return found


def test_a_timeline_is_one_file_that_loads_nothing_and_escapes_names(logs: list[str], tmp_path: Path) -> None:
    file = tmp_path / "orders.html"
    found = run("timeline", "-o", str(file), *logs)
    assert found.exit_code == 0, found.output
    assert "3 partitions, 2 applications" in found.stderr
    text = file.read_text(encoding="utf-8")
    assert text.count("<script") == 2, "nothing in a name begins or ends one"
    assert text.count("</script") == 2
    assert "<img" not in text
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|@import|url\(", text)
    shown = data(text)
    assert shown["members"] == ["etl-1-aaaaaaaa", EVIL]
    assert shown["partitions"] == [f"{EVIL}-3", "orders-0", "orders-1"]
    assert shown["spans"] == [
        [0, 1, 0, 4000, -1, "open"],
        [0, 2, 0, 4000, -1, "released"],
        [1, 0, 2000, 4000, -1, "open"],
    ]
    assert shown["batches"] == [[0, 1000, 3000, 1500, 1, 0]]
    assert "<td>1,500</td>" in text, "the table, for those without JavaScript"


def test_a_timeline_of_one_topic_begins_with_a_stretch_of_time(logs: list[str]) -> None:
    found = run("timeline", "-o", "-", "--topics", "orders:1", "--since", "1767225602", *logs)
    shown = data(found.stdout)
    assert (shown["partitions"], shown["view"]) == (["orders-1"], [2000, 4000])


def test_no_event_is_no_timeline_and_one_that_cannot_be_written_is_2(logs: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert run("timeline", "-o", str(tmp_path / "x.html"), str(tmp_path / "empty.jsonl")).exit_code == 1
    assert not (tmp_path / "x.html").exists()
    refused(run("timeline", "-o", str(tmp_path / "missing" / "x.html"), *logs), "--output")


def test_json_in_a_page_ends_no_script() -> None:
    text = as_script({"a": "</script><!--&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028"}


def test_a_character_that_the_locale_lacks_ends_no_command(tmp_path: Path) -> None:
    """Regression: ``events`` had a traceback, and ``reset --execute`` was "a bug", after it had set the offsets."""
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({**LINES[0], "member": "größe-日"}) + "\n", encoding="utf-8")
    found = CliRunner(charset="latin-1").invoke(kafka_group, ["events", str(log)])
    assert (found.exit_code, found.stdout.split()[1]) == (0, "größe-?")
    page = CliRunner(charset="latin-1").invoke(kafka_group, ["timeline", "-o", "-", str(log)])
    assert "größe-日" in page.stdout_bytes.decode("utf-8"), "the page says that it is UTF-8"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_2_and_no_traceback(logs: list[str]) -> None:
    """Regression: the exit code was 1, as for a line that is no event."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "pyspark_kafka_group.tools", "events", *logs]
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "kafka-group: the output cannot be written: No space left on device. Check where it goes.\n"
    assert (found.returncode, found.stderr) == (2, said)
