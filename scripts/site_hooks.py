"""Hooks of mkdocs, for the parts of the pages of docs/ that Markdown does not cover.

The pages stay as they are in the repository, where links are relative to the file.  On the site the pages of docs/ are
at the top.  Files outside docs/ to which they link are in the folder ``project``.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

_LINK = re.compile(r"(?<=\]\()[^)#\s:]+(?=[)#])")
_RAW = re.compile(r"^\s*(?:\d+\.|[-*|]) \S.*", re.MULTILINE)
_LOADED = re.compile(r"""<(?:script|img|link rel="stylesheet")[^>]* (?:src|href)="(?:https?:)?//""")

_BOOST = {
    **dict.fromkeys(("quick-start.md", "symptoms.md", "options.md", "recipes.md", "sinks.md", "operating.md"), 4.0),
    **dict.fromkeys(("architecture.md", "api.md", "how-we-test.md", "project/benchmarks/README.md"), 0.2),
}
"""How much a page counts in the search, beside 1."""

_log = logging.getLogger("mkdocs.hooks.site")
_markdown: dict[str, str] = {}
_sections: list[Any] = []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ to which the pages link, and the files to which those link."""
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in (page, *_linked(page)):
            if _uri(target) not in files.src_uris:
                files.append(File.generated(config, _uri(target), abs_src_path=str(target)))
                if target.suffix == ".md" and target not in pages:
                    pages.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links to the places of files on the site, and insert the docstrings that comments name."""
    source = Path(str(page.file.abs_src_path))
    folder = posixpath.dirname(page.file.src_uri) or "."

    def on_site(link: re.Match[str]) -> str:
        target = (source.parent / link[0]).resolve()
        return posixpath.relpath(_uri(target), folder) if target.is_file() else link[0]

    if page.file.src_uri in _BOOST:
        page.meta["search"] = {"boost": _BOOST[page.file.src_uri]}
    markdown = _indented(_LINK.sub(on_site, markdown))
    _markdown[page.file.src_uri] = markdown
    return re.sub(r"^<!-- (::: \S+) -->$", r"\1", markdown, flags=re.MULTILINE)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Replace Sphinx's roles in docstrings by names.  Warn about a list or table that became text."""
    if found := _RAW.search(re.sub(r"<pre.*?</pre>", "", html, flags=re.DOTALL)):
        _log.warning("%s: write an empty line before this list or table: %s", page.file.src_uri, found[0])
    return re.sub(r":(?:class|data|func|meth|mod):(<code[^>]*>)~?", r"\1", html)


def on_post_page(output: str, page: Page, **_: Any) -> None:
    """Warn about anything that a reader's browser would load from another host."""
    if found := _LOADED.search(output):
        _log.warning("%s loads something from another host: %s", page.file.src_uri, found[0])


def on_nav(nav: Navigation, **_: Any) -> None:
    """Remember the navigation for llms.txt."""
    _sections[:] = nav.items


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, a list of the pages, and the pages as Markdown."""
    site = Path(config.site_dir)
    text = f"# {config.site_name}\n\n> {config.site_description}\n"
    for section in _sections:
        text += f"\n## {section.title}\n\n"
        for page in section.children:
            text += f"- [{page.title}]({page.file.src_uri})\n"
    (site / "llms.txt").write_text(text, encoding="utf-8")
    for uri, markdown in _markdown.items():
        (site / uri).write_text(markdown, encoding="utf-8")


def _indented(markdown: str) -> str:
    """Indent the content of list items by four spaces, as the site's Markdown requires."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    for index in range(0, len(parts), 2):
        nested = re.sub(r"^  (?=- )", "    ", parts[index], flags=re.MULTILINE)
        parts[index] = re.sub(r"^ {3}(?! - )", "    ", nested, flags=re.MULTILINE)
    return "".join(parts)


def _linked(page: Path) -> Iterator[Path]:
    """Yield the files that a page links to."""
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve()
        if target.is_file():
            yield target


def _uri(path: Path) -> str:
    """Return the URI of a file of the repository on the site."""
    inside = path.relative_to(ROOT).as_posix()
    return inside.removeprefix("docs/") if inside.startswith("docs/") else f"project/{inside}"
