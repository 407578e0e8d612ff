"""The generated pages match the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import install_lines, render_docs
from tests.docs.blocks import PAGES


@pytest.mark.parametrize("name", render_docs.PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (render_docs.DOCS / name).read_text(encoding="utf-8")
    assert written == render_docs.PAGES[name](), "run: python scripts/render_docs.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_installs_the_package_as_the_switch_says(page: Path) -> None:
    written = page.read_text(encoding="utf-8")
    assert written == install_lines.rendered(written), "run: python scripts/render_docs.py"
