"""The reports of the sources, from a query's progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_kafka_group import metrics
from pyspark_kafka_group.control.server import ControlSocket
from pyspark_kafka_group.metrics.reports import PartitionReport, SourceReport, sources_of
from tests.connector.metrics.progresses import KAFKA, OTHER, RATE, REPORT, SECONDARY, progress, source


def sources(shown: Any) -> tuple[SourceReport, ...]:
    return sources_of(shown, lambda report: report)


def test_a_source_is_shown_with_its_topics_and_partitions() -> None:
    (found,) = sources(progress(source(REPORT)))
    assert (found.query, found.run_id, found.text("group")) == ("orders-etl", "run-1", "etl")
    assert found.report == REPORT
    assert [(p.topic, p.number) for p in found.partitions] == [*(("orders", n) for n in (2, 3, 10)), ("other", 0)]
    assert found.partitions[1] == PartitionReport("orders", 3, 20, 30, 15, 5, 0, is_draining=True, is_held_back=False)
    assert (found.partitions[1].committed, found.partitions[1].behind) == (10, 10)
    assert (found.partitions[3].committed, found.partitions[3].behind) == (None, None)
    assert found.topics == {"orders": list(found.partitions[:3]), "other": [found.partitions[3]]}
    assert (found.rate("inputRowsPerSecond"), found.rate("processedRowsPerSecond")) == (10.0, 25.5)
    assert (found.number("generation"), found.number("events", "planned"), found.number("lag")) == (4, 6, None)


def test_a_committed_offset_may_be_after_the_log_end() -> None:
    """Regression: the metric was the log end, because the lag is never negative.

    The log ends before the first open transaction, and with ``availableNow`` where it ended at the start of the run.
    """
    changes = {"logEnd": {"orders": {"2": 5}}, "lag": {"orders": {"2": 0}}, "ahead": {"orders": {"2": 2}}}
    (found,) = sources(progress(source({**REPORT, **changes})))
    assert (found.partitions[0].committed, found.partitions[0].log_end, found.partitions[0].behind) == (7, 5, 0)


@pytest.mark.parametrize(
    "given",
    [
        progress(source(REPORT)),
        json.dumps(progress(source(REPORT, as_text=False))),
        SimpleNamespace(json=json.dumps(progress(source(REPORT)))),
    ],
    ids=["dict", "text", "object"],
)
def test_a_progress_may_come_in_each_of_its_forms(given: Any) -> None:
    assert metrics.from_progress(given) == metrics.from_progress(progress(source(REPORT)))


def test_every_source_of_the_group_is_shown_and_no_other() -> None:
    shown = progress(KAFKA, source(REPORT), RATE, SECONDARY, source(OTHER), name=None)
    found = metrics.from_progress(shown)
    assert [(one["group"], one["totalLag"]) for one in found] == [("etl", 77), ("audit", 77)]
    assert [one.query for one in sources(shown)] == ["id-1", "id-1"]


def test_a_query_without_a_group_has_a_report() -> None:
    """Regression: no exporter had a metric of a query with ``assign`` that keeps its offsets in the checkpoint only."""
    (found,) = sources(progress(source({**REPORT, "group": None})))
    assert (found.text("group"), found.number("totalLag")) == ("", 77)


@pytest.mark.parametrize("given", [None, {}, progress(), progress(KAFKA, RATE, SECONDARY), '{"sources": null}'])
def test_a_query_of_other_sources_has_none(given: Any) -> None:
    assert metrics.from_progress(given) == ()


def test_what_an_older_version_did_not_tell_is_empty() -> None:
    old = {key: REPORT[key] for key in ("group", "clientId", "memberId", "assigned", "draining", "logEnd", "lag")}
    (found,) = sources(progress(source(old)))
    values = {metric.name: [*metric.read(found, 1000.0)] for metric in metrics.METRICS}
    assert values["group-lag"] == [(("orders",), 77)]
    for unknown in ("last-commit-seconds-ago", "generation", "ownership-epoch", "records-consumed-total"):
        assert values[unknown] == []
    assert values["commit-total"] == [((), 0)]
    assert {value for _, value in values["time-total"]} == {0}


@pytest.mark.parametrize(
    "changes",
    [
        {"logEnd": {"orders": {"x": 1, "2": "nine"}, "other": 5}},
        {"lag": None, "events": [], "timeMs": {"waiting": "NaN"}, "generation": "4", "committedAt": True},
        {"logEnd": 7, "moved": {"assigned": None}, "ownershipEpoch": None},
    ],
)
def test_what_has_another_form_is_passed_over(changes: dict[str, Any]) -> None:
    (found,) = sources(progress(source({**REPORT, **changes})))
    assert found.text("group") == "etl"
    for metric in metrics.METRICS:
        assert all(isinstance(value, int | float) for _, value in metric.read(found, 1000.0))


@pytest.mark.parametrize("given", [7, object(), "[]"])
def test_what_is_no_progress_is_an_error(given: Any) -> None:
    with pytest.raises(TypeError, match="is not a progress"):
        metrics.from_progress(given)


QUERY = "0c6f9ad4-6a5e-4a61-8e25-3a2e8b4d3f10"


@pytest.fixture
def reporting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: Callable[..., ControlSocket]
) -> tuple[dict[str, Any], ControlSocket]:
    """Return the report of a source process, and its socket."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    report = dict(REPORT)
    control = listening(report=lambda: report, query_id=QUERY)
    report["control"] = control.address
    return report, control


def test_a_running_query_is_asked_for_what_its_progress_cannot_tell(
    reporting: tuple[dict[str, Any], ControlSocket],
) -> None:
    """Spark's progress contains the lag before the batch.  On an idle topic this lag would stay for ever."""
    report, control = reporting
    shown = progress(source(report), source(OTHER))
    query = cast(StreamingQuery, SimpleNamespace(lastProgress=shown))
    report["lag"] = {"orders": {"2": 0, "3": 0, "10": 0}}
    assert [one["lag"] for one in metrics.current(query)] == [report["lag"], OTHER["lag"]]
    assert [one["lag"] for one in metrics.from_progress(shown)] == [REPORT["lag"], OTHER["lag"]]
    control.close()
    assert [one["lag"] for one in metrics.current(query)] == [REPORT["lag"], OTHER["lag"]], "it does not answer"
    assert metrics.current(cast(StreamingQuery, SimpleNamespace(lastProgress=None))) == ()


def test_a_source_that_reads_the_batches_of_another_one_does_not_count_if_it_comes_first(
    reporting: tuple[dict[str, Any], ControlSocket],
) -> None:
    """Regression: the lag was doubled.  With five sources or more, Spark lists them in any order."""
    end = json.dumps({"version": 2, "query": QUERY, "topics": {}})
    shown = progress({**SECONDARY, "endOffset": end}, {**source(reporting[0]), "endOffset": end})
    (found,) = metrics.current(cast(StreamingQuery, SimpleNamespace(lastProgress=shown)))
    assert found["totalLag"] == 77


def test_a_progress_without_a_report_names_the_query_to_ask(
    reporting: tuple[dict[str, Any], ControlSocket],
) -> None:
    """A progress has no report after a restart.

    With Spark 4.0 and 4.1 it never has one: there ``latestOffset`` is the end of the batch.
    """
    end = json.dumps({"version": 2, "query": QUERY, "topics": {}})
    older = {**source(None), "endOffset": end, "latestOffset": end}
    shown = progress(older, {**SECONDARY, "endOffset": end})
    query = cast(StreamingQuery, SimpleNamespace(lastProgress=shown))
    (found,) = metrics.current(query)
    assert found["totalLag"] == 77
    assert metrics.from_progress(shown) == ()
    reporting[1].close()
    assert metrics.current(query) == (), "it does not answer"
