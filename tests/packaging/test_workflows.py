"""CI on the public host tries the oldest versions that pyproject.toml allows."""

from __future__ import annotations

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
