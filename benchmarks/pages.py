"""The figures of ``benchmarks/README.md``, rendered from the results in ``benchmarks/results`` and never typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import goals, plots
from benchmarks.results import Result
from benchmarks.views import VIEWS, tables

_ROOT = Path(__file__).resolve().parent.parent
PAGE = _ROOT / "benchmarks" / "README.md"
KEPT = _ROOT / "benchmarks" / "results"

_SECTION = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
MACHINE = "machine"
"""The name of the section that describes the machines of the benchmarks."""

GOALS = "goals"
"""The name of the section with the goals."""

NOT_MEASURED = "Not measured yet."


def kept() -> dict[str, Result]:
    """Return the kept results by benchmark."""
    return {file.stem: Result.load(file) for file in sorted(KEPT.glob("*.json"))}


def rendered(page: str, results: Mapping[str, Result]) -> str:
    """Return the text of a page with new content in all sections of figures.

    Parameters
    ----------
    page : str
        Markdown with sections ``<!-- figures: NAME -->`` ... ``<!-- end of figures -->``.
    results : mapping of str to Result
        The results by benchmark.
    """

    def section(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        text = _TEXTS[name](results) if name in _TEXTS else figures(name, results)
        return f"{begin}\n{text}\n\n{end}"

    return _SECTION.sub(section, page)


def figures(name: str, results: Mapping[str, Result]) -> str:
    """Return the tables of a benchmark in Markdown."""
    if name not in VIEWS:
        raise ValueError(f"{PAGE.name} asks for figures of {name!r}: there is no such benchmark")
    result = results.get(name)
    if result is None:
        return NOT_MEASURED
    repeated = max((len(v) for c in result.cells for s in c.arms.values() for v in s.values()), default=0)
    told = f"Measured {result.taken}; medians of up to {repeated} repetitions, smallest and largest in parentheses."
    notes = [f"Note: {note}." for note in result.notes]
    picture = [f"![{name}]({_picture(name)})"] if (KEPT / f"{name}.svg").exists() else []
    return "\n\n".join([told, *notes, *(table.markdown() for table in tables(result)), *picture])


def machines(results: Mapping[str, Result]) -> str:
    """Return the machines of the benchmarks: one line, or one for each machine if they differ."""
    by_machine: dict[str, list[str]] = {}
    for name, result in results.items():
        said = ", ".join(f"{value}" if key == "cpu" else f"{key} {value}" for key, value in result.machine.items())
        by_machine.setdefault(said, []).append(name)
    if len(by_machine) == 1:
        return f"{next(iter(by_machine))}."
    return "\n".join(f"- {', '.join(names)}: {said}." for said, names in by_machine.items()) or NOT_MEASURED


def publish(new: Sequence[Path]) -> None:
    """Keep new results, draw them, and write the page.

    Raises
    ------
    ValueError
        If a result comes from a run with ``--quick``.
    """
    found = [Result.load(file) for file in new]
    for result in found:
        if result.quick:
            raise ValueError(f"{result.benchmark}: a run with --quick only tries the harness; its figures mean nothing")
    for result in found:
        print(f"kept {result.save(KEPT).name}; plot: {plots.draw(result, KEPT)}")
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), kept()), encoding="utf-8")
    print(f"written: {PAGE.name}")


def _goals(results: Mapping[str, Result]) -> str:
    return goals.table(results).markdown()


_TEXTS: Mapping[str, Callable[[Mapping[str, Result]], str]] = {MACHINE: machines, GOALS: _goals}


def _picture(name: str) -> str:
    return f"results/{name}.svg"
