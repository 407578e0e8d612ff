"""CI on the public host runs the three commands, and tries the oldest versions that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.packaging.packages import ROOT


def test_the_oldest_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    (oldest,) = matrix["include"]
    assert [f">={matrix['python'][0]}", f">={oldest['python']}"] == [project["requires-python"]] * 2
    floors = {text.replace(">=", "==") + ".0" for text in project["dependencies"]}
    # All tests run on Spark 4.2.  docs/compatibility.md lists the tests that run on 4.0 and 4.1.
    assert set(oldest["versions"].split()) <= floors | {"pyspark==4.2.0"}
    assert oldest["versions"]


def test_the_workflows_call_the_three_commands_and_nothing_else() -> None:
    called = set()
    for name in ("tests", "nightly"):
        workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))
        called |= {
            " ".join(step["run"].split()[:2]) if step["run"].startswith("make") else step["run"]
            for job in workflow["jobs"].values()
            for step in job["steps"]
            if "run" in step
        }
    assert called == {"make test", ".ci/run", "make proof"}


def test_each_night_all_parts_of_the_proof_run() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8"))
    (parts,) = re.findall(r"^PARTS \?= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert workflow["jobs"]["nightly"]["strategy"]["matrix"]["part"] == parts.split()
