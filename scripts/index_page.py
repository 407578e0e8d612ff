"""Makes an unpacked sdist fit for a package index: its README has no dead links, and it has the URLs of the project.

Relative links work in a clone, in a fork and on the site.  They would be dead on a package index, which shows only the
README.  An index also gives headings no ids, so a link within the page leads to the repository.  If the address of the
repository is unknown, only the texts of these links remain.
"""

from __future__ import annotations

import re
from pathlib import Path

_LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?P<target>[^)\s]+)\)")


def make_fit(source: Path, repository: str, version: str) -> None:
    """Rewrite README.md and pyproject.toml of an unpacked sdist.

    Parameters
    ----------
    source : Path
        The folder of the sdist.
    repository : str
        The address of the repository, on a host whose paths are those of GitHub.  Empty if unknown.
    version : str
        The version of the package.  Links lead to the files of its tag.
    """
    readme, project = source / "README.md", source / "pyproject.toml"
    readme.write_text(without_dead_links(readme.read_text(encoding="utf-8"), repository, version), encoding="utf-8")
    if not repository:
        return
    urls = "".join(f'{name} = "{url}"\n' for name, url in project_urls(repository, version).items())
    text = project.read_text(encoding="utf-8")
    project.write_text(f"{text.rstrip()}\n\n[project.urls]\n{urls}", encoding="utf-8")


def project_urls(repository: str, version: str) -> dict[str, str]:
    """Return the URLs of the project, by the labels that package indexes know."""
    repository = repository.rstrip("/")
    files = f"{repository}/blob/v{version}"
    return {
        "Homepage": repository,
        "Documentation": f"{files}/docs/index.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Source": repository,
    }


def without_dead_links(readme: str, repository: str, version: str) -> str:
    """Return the README with absolute links, or with the texts of its relative links."""
    repository = repository.rstrip("/")

    def absolute(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target:
            return link[0]
        if not repository:
            return "" if link["picture"] else link["text"][1:-1]
        if target.startswith("#"):
            target = f"README.md{target}"
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}{link['text']}({repository}/{kind}/v{version}/{target})"

    return _LINK.sub(absolute, readme)
