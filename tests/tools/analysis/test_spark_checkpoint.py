"""The offsets in a checkpoint of Spark's own Kafka source, and checkpoints that are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.spark_checkpoint import SparkCheckpoint, chosen_source, read_checkpoint
from tests.tools.analysis.spark_checkpoints import KAFKA, METADATA, write_checkpoint

TP = TopicPartition("orders", 0)
OTHER = '{"returns":{"0":3,"11":4}}'


def offsets_of(checkpoint: SparkCheckpoint, source: str | None = None) -> dict[str, int]:
    return {str(tp): offset for tp, offset in chosen_source(checkpoint, source).items()}


@pytest.mark.parametrize(("version", "line"), [(1, KAFKA), (2, f"0:{KAFKA}"), (2, f"orders:{KAFKA}")])
def test_both_versions_of_the_offset_log_are_read(tmp_path: Path, version: int, line: str) -> None:
    assert offsets_of(read_checkpoint(str(write_checkpoint(tmp_path, line, version=version)))) == {"orders-0": 7}


def test_the_last_batch_counts_that_is_finished(tmp_path: Path) -> None:
    """Batches are compared as numbers: 10 comes after 9."""
    found = read_checkpoint(str(write_checkpoint(tmp_path, KAFKA, finished=(9, 10), begun=(9, 10, 11))))
    assert (found.finished, found.unfinished) == (10, 11)
    assert offsets_of(found) == {"orders-0": 7}
    shutil.copy(tmp_path / "commits" / "10", tmp_path / "commits" / "11")
    assert read_checkpoint(str(tmp_path)).unfinished is None


@pytest.mark.parametrize("begun", [(), (0,)])
def test_a_query_without_a_finished_batch_begins_where_its_source_has_stored(
    tmp_path: Path, begun: tuple[int, ...]
) -> None:
    """With ``startingOffsets=latest``, the reader must not skip the records since the stored start."""
    starts = {
        "0": KAFKA,
        "3": "[" * 200_000,
        "1": '{"path":"file:///x","timestamp":1,"batchId":0}',
        "2": "1795578131305",
    }
    found = read_checkpoint(str(write_checkpoint(tmp_path, "-", finished=(), begun=begun, starts=starts)))
    assert (found.finished, found.unfinished) == (None, 0 if begun else None)
    assert offsets_of(found) == {"orders-0": 7}


def test_a_batch_of_continuous_processing_has_no_metadata(tmp_path: Path) -> None:
    """Regression: its file counted as damaged."""
    folder = write_checkpoint(tmp_path, KAFKA)
    (folder / "offsets" / "0").write_text(f"v1\n\n{KAFKA}", encoding="utf-8")
    assert offsets_of(read_checkpoint(str(folder))) == {"orders-0": 7}


def test_a_start_that_is_cut_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "-", finished=(), starts={"0": KAFKA[:-2], "1": '{"path":"a"}\n{"path":"b"}'})
    with pytest.raises(ConfigurationError, match=r"/sources/0/0: it is cut or damaged\. Copy it again\."):
        read_checkpoint(str(folder))
    (folder / "sources" / "0" / "0").write_text(f"\0v1\n{KAFKA}", encoding="utf-8")
    assert offsets_of(read_checkpoint(str(folder))) == {"orders-0": 7}


def test_of_several_sources_one_is_chosen(tmp_path: Path) -> None:
    """Sources other than Kafka's do not count."""
    rate, files, ours = "4", '{"logOffset":3}', '{"version": 2, "query": "q", "topics": {}}'
    found = read_checkpoint(str(write_checkpoint(tmp_path, rate, KAFKA, files, OTHER, ours, "-")))
    assert offsets_of(found, "1") == {"orders-0": 7}
    assert offsets_of(found, "3") == {"returns-0": 3, "returns-11": 4}
    with pytest.raises(ConfigurationError, match=r"several Kafka sources: 1 \(orders\), 3 \(returns\)\. .* --source"):
        chosen_source(found, None)
    with pytest.raises(ConfigurationError, match=r"no Kafka source '0'\. It has 1 \(orders\), 3 \(returns\)\."):
        chosen_source(found, "0")


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_a_folder_may_be_a_uri(tmp_path: Path, form: str) -> None:
    folder = write_checkpoint(tmp_path / "a b", KAFKA)
    location = form.format(folder if form == "{}" else str(folder).replace(" ", "%20"))
    assert offsets_of(read_checkpoint(location)) == {"orders-0": 7}


@pytest.mark.parametrize("location", ["hdfs://nn/cp", "s3a://bucket/cp", "dbfs:/cp", "file://elsewhere/cp"])
def test_a_folder_of_another_file_system_is_refused_with_the_way_on(location: str) -> None:
    with pytest.raises(ConfigurationError, match=r"not on this machine\. Copy its folders offsets, commits"):
        read_checkpoint(location)


def unknown_version(folder: Path) -> None:
    (folder / "offsets" / "0").write_text("v3\n{}\n{}", encoding="utf-8")


def no_text(folder: Path) -> None:
    (folder / "offsets" / "0").write_bytes(b"\xff\xfe")


def no_offsets(folder: Path) -> None:
    shutil.rmtree(folder / "offsets")


def no_commits(folder: Path) -> None:
    shutil.rmtree(folder / "commits")


def commits_are_empty(folder: Path) -> None:
    (folder / "commits" / "0").unlink()
    (folder / "offsets" / "0").rename(folder / "offsets" / "5")


def is_empty(folder: Path) -> None:
    (folder / "offsets" / "0").write_text("", encoding="utf-8")


def is_cut(folder: Path) -> None:
    """Cut the offset of the second source.  Regression: it looked like that of another source than Kafka's."""
    (folder / "offsets" / "0").write_text(f"v1\n{METADATA}\n{KAFKA}\n{OTHER[:-5]}", encoding="utf-8")


def is_cut_in_its_metadata(folder: Path) -> None:
    (folder / "offsets" / "0").write_text(f"v1\n{METADATA[:-5]}", encoding="utf-8")


def is_cut_after_its_metadata(folder: Path) -> None:
    (folder / "offsets" / "0").write_text(f"v1\n{METADATA}", encoding="utf-8")


def is_cut_between_two_lines(folder: Path) -> None:
    (folder / "offsets" / "0").write_text(f"v1\n{METADATA}\n{KAFKA}\n", encoding="utf-8")


def is_cut_in_version_2(folder: Path) -> None:
    (folder / "offsets" / "0").write_text(f"v2\n{METADATA}\norders:{KAFKA[:-5]}", encoding="utf-8")


def a_batch_without_offsets(folder: Path) -> None:
    (folder / "offsets" / "0").unlink()


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (shutil.rmtree, r"No such file or directory .*Name the checkpoint of a query"),
        (no_offsets, r"No such file or directory .*/offsets"),
        (no_commits, r"No such file or directory .*/commits"),
        (commits_are_empty, r"the folder commits is empty\. Copy its files"),
        (a_batch_without_offsets, r"/offsets/0: it is missing, although batch 0 is finished"),
        (unknown_version, r"/offsets/0: its format is unknown here\. Use a newer version"),
        (no_text, r"not UTF-8"),
        *(
            (break_it, r"/offsets/0: it is cut or damaged\. Copy it again\.")
            for break_it in (
                *(is_empty, is_cut, is_cut_in_its_metadata, is_cut_after_its_metadata),
                *(is_cut_between_two_lines, is_cut_in_version_2),
            )
        ),
    ],
)
def test_a_folder_that_is_no_whole_checkpoint_is_refused(tmp_path: Path, break_it: Any, said: str) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", KAFKA)
    break_it(folder)
    with pytest.raises(ConfigurationError, match=said):
        read_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        ("-", "no offsets of Spark's own Kafka source"),
        ('{"version": 2, "query": "q", "topics": {}}', "no offsets of Spark's own Kafka source"),
        ('{"orders":{"0":-1}}', "no offsets of Spark's own Kafka source"),
        ('{"orders":{"zero":1}}', "no offsets of Spark's own Kafka source"),
        # Regression: these ended with errors of Python.
        *(
            (offset, "no offsets of Spark's own Kafka source")
            for offset in (
                *('{"orders":{"2147483648":1}}', f'{{"orders":{{"{"1" * 5000}":1}}}}'),
                *('{"orders":{"0":9223372036854775808}}', '{"or\\ud800ders":{"0":1}}', "[" * 200_000),
            )
        ),
        ("{}", "has not found any partition yet"),
    ],
)
def test_a_query_without_offsets_of_kafka_is_refused(tmp_path: Path, offset: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        chosen_source(read_checkpoint(str(write_checkpoint(tmp_path, offset))), None)
