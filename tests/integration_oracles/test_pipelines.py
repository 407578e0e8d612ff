"""The harness of the integration tests reads an application's checkpoint and its events."""

from pathlib import Path

import pytest

from integration.pipelines import Application, read_events


@pytest.mark.parametrize(
    ("files", "logged"), [([], False), (["0"], True), ([".0.crc", ".0.tmp"], False), (["104", "105"], True)]
)
def test_a_batch_is_logged_although_spark_has_deleted_the_oldest_ones(
    tmp_path: Path, files: list[str], logged: bool
) -> None:
    application = Application(tmp_path, "app", {})
    offsets = tmp_path / "app.checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for file in files:
        (offsets / file).touch()
    assert application.has_logged_a_batch is logged


def test_events_are_read_as_they_come_and_half_a_line_not_yet(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    assert read_events(log) == []
    log.write_text('{"n": 1}\n{"n": 2}\n{"n"')
    assert [event["n"] for event in read_events(log)] == [1, 2]
    with log.open("a") as file:
        file.write(": 3}\n")
    assert [event["n"] for event in read_events(log)] == [1, 2, 3]
    log.write_text('{"n": 4}\n')
    assert [event["n"] for event in read_events(log)] == [4]
