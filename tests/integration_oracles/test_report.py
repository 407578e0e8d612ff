"""The report shows figures and violations of a run, as JSON and as a table."""

from __future__ import annotations

import json

import pytest

from integration.burrow import Ends
from integration.oracles import Committed, Member
from integration.report import WIDTH, Recording, judge, table
from integration.sink import Delivery
from integration.soak.supervisor import Ending, last_error

TP = "t-0"


def recording(*, until: int = 10, planned_only: bool = False, **more: list[Committed]) -> Recording:
    return Recording(
        produced={("t", 0): 10},
        ends_of_logs={("t", 0): 10},
        members=[
            Member(
                "a",
                [
                    {"time": 0.0, "event": "started", "positions": {TP: 0}},
                    {"time": 1.0, "event": "planned", "ranges": {TP: [0, 10]}},
                    {"time": 3.0, "event": "finished", "ranges": {TP: [0, 10]}},
                    {"time": 4.0, "event": "committed", "offsets": {TP: 10}},
                ],
                [Delivery("a", 2.0, 0, "t", 0, 0, until)],
            )
        ],
        samples=more.get("samples", [Committed(5.0, TP, 10)]),
        ends=[Ends(float(t), {TP: 10}) for t in range(10)],
        commits=more.get("commits", [Committed(4.0, TP, 10)]),
        planned_only=planned_only,
    )


def test_a_run_that_is_right_has_no_violation() -> None:
    report = judge(recording())
    assert report["violations"] == []
    assert (report["produced"], report["delivered"], report["lost"]) == (10, 10, 0)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (recording(until=9), "of delivery: lost: t-0 [9, 10)"),
        (recording(samples=[Committed(5.0, TP, 10), Committed(6.0, TP, 4)]), "of sampled offsets"),
        (recording(commits=[Committed(4.0, TP, 10), Committed(5.0, TP, 4)]), "of commits: committed offset went back"),
        (recording(commits=[Committed(1.0, TP, 10)]), "of commits before their rows"),
    ],
)
def test_what_each_oracle_finds_is_a_violation(broken: Recording, words: str) -> None:
    assert any(words in violation for violation in judge(broken)["violations"])


def test_a_lake_table_has_each_record_once_without_any_excuse() -> None:
    run = recording()
    run.lake = [Delivery("the table", 0.0, 0, "t", 0, 0, 10)]
    assert judge(run)["violations"] == []
    assert judge(run)["in_lake"] == 10
    run.lake = [Delivery("the table", 0.0, 0, "t", 0, 0, 9), Delivery("the table", 0.0, 0, "t", 0, 3, 5)]
    problems = judge(run)["violations"]
    assert any("of the lake table: lost: t-0 [9, 10)" in problem for problem in problems)
    assert any("of the lake table: twice and not declared: t-0 [3, 5)" in problem for problem in problems)


def test_what_a_soak_may_declare_is_a_violation_of_planned_rebalances() -> None:
    for planned_only in (False, True):
        run = recording(planned_only=planned_only)
        told = [*run.members[0].events, {"time": 5.0, "event": "expired", "ranges": {}}]
        run.members = [Member("a", told, run.members[0].deliveries)]
        assert bool(judge(run)["violations"]) is planned_only


def test_the_report_is_json_and_the_table_is_narrow() -> None:
    report = judge(recording(until=9))
    report["run"] = {"seed": 1, "faults": [{"kind": "kill driver " * 20}], "endings": []}
    assert json.loads(json.dumps(report)) == report
    lines = table(report).splitlines()
    assert max(map(len, lines)) == WIDTH
    assert any("lost: t-0 [9, 10)" in line for line in lines)


def test_an_ending_is_told_by_its_error() -> None:
    log = "INFO fine\nTraceback\npkg.errors.QueryError: Query 12ab34cd-0000-0000-0000-000000000000 broke at 17\nbye"
    text = last_error(log)
    assert text.startswith("pkg.errors.QueryError")
    assert Ending(0.0, "app0", 1, [], text).kind == "pkg.errors.QueryError: Query ID broke at N"
    assert last_error("nothing that looks like an error") == "nothing that looks like an error"
