"""What the harness of the integration tests reads from an application's checkpoint."""

from pathlib import Path

import pytest

from integration.pipelines import Application


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
