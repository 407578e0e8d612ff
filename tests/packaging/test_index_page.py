"""On a package index, the links of README work, and the project has URLs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from scripts.index_page import make_fit, project_urls, without_dead_links
from tests.packaging.packages import ROOT

REPOSITORY = "https://git.example/team/kafka-group"
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)]+)\)")


def test_each_link_of_the_readme_leads_to_a_file_of_the_repository() -> None:
    links = LINK.findall(without_dead_links(README, f"{REPOSITORY}/", "0.1.0"))
    assert len(links) == len(LINK.findall(README))
    ours = [link for link in links if link.startswith(REPOSITORY)]
    assert len(ours) >= 15
    for link in ours:
        path = re.sub(rf"^{REPOSITORY}/(?:blob|raw)/v0\.1\.0/|#.*$", "", link)
        assert (ROOT / path).is_file(), link
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_readme_has_a_picture_that_loads_from_elsewhere() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", without_dead_links(README, REPOSITORY, "0.1.0"))
    assert pictures
    assert all(picture.startswith(f"{REPOSITORY}/raw/v0.1.0/docs/pictures/") for picture in pictures)


def test_links_within_the_page_lead_to_the_repository() -> None:
    """An index gives headings no ids."""
    assert without_dead_links("see [x](#what-is)", REPOSITORY, "1.2.3") == (
        f"see [x]({REPOSITORY}/blob/v1.2.3/README.md#what-is)"
    )


def test_without_an_address_only_the_texts_of_links_remain() -> None:
    text = without_dead_links(README, "", "0.1.0")
    assert {link for link in LINK.findall(text) if not link.startswith("https://")} == set()
    assert "Options ·\n" in text
    assert "![" not in text


def test_the_project_has_the_urls_that_indexes_know(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    make_fit(tmp_path, REPOSITORY, "0.1.0")
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert urls == project_urls(REPOSITORY, "0.1.0")
    assert {"Homepage", "Documentation", "Changelog", "Issues", "Source"} == set(urls)
    assert urls["Changelog"] == f"{REPOSITORY}/blob/v0.1.0/CHANGELOG.md"
    assert "](docs/" not in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_no_host_is_named_in_the_repository() -> None:
    """The workflow takes the address from its own run, which makes it correct on every host."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "urls" not in project
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["build"]["env"] == {"REPOSITORY": "${{ github.server_url }}/${{ github.repository }}"}


def test_only_the_last_job_of_a_release_has_rights_and_it_waits_for_the_trials() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert jobs["publish"]["permissions"] == {"attestations": "write", "contents": "read", "id-token": "write"}
    assert {*jobs["publish"]["needs"]} == {name for name in jobs if name.startswith("try")}


def test_the_release_workflow_tries_the_oldest_and_the_newest_python_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    assert release["jobs"]["try"]["strategy"]["matrix"]["python"] == [versions[0], versions[-1]]
    assert tests["jobs"]["test"]["strategy"]["matrix"]["python"] == versions
