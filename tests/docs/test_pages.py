"""Every page can be found, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def links(page: Path) -> list[str]:
    """The files that a page links to, as it names them."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    return [link for link in found if not link.startswith("http")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


def test_readme_lists_every_page_of_docs() -> None:
    listed = {(ROOT / link).resolve() for link in links(README)}
    assert [page.name for page in PAGES if page not in listed | {README}] == []
