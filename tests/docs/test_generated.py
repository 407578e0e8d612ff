"""The generated pages match the code."""

from __future__ import annotations

import pytest

from scripts import install_lines, render_docs
from tests.docs.blocks import PAGES


@pytest.mark.parametrize("name", render_docs.PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (render_docs.DOCS / name).read_text(encoding="utf-8")
    assert written == render_docs.PAGES[name](), "run: python scripts/render_docs.py"


def test_pages_install_the_package_as_the_switch_says() -> None:
    written = {page: page.read_text(encoding="utf-8") for page in PAGES}
    other = [page for page, text in written.items() if text != install_lines.rendered(text)]
    assert other == [], "run: python scripts/render_docs.py"
