"""The generated pages match the code."""

from __future__ import annotations

import pytest

from scripts import render_docs


@pytest.mark.parametrize("name", render_docs.PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (render_docs.DOCS / name).read_text(encoding="utf-8")
    assert written == render_docs.PAGES[name](), "run: python scripts/render_docs.py"
