"""Files of properties, as Java's ``Properties.load`` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """Return the properties of a file, as Java's ``Properties.load`` reads them; the last of a name counts."""
    found = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[key] = value
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Return lines without comments, each with those that a backslash at its end takes in."""
    whole = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not whole and (not line or line[0] in "#!"):
            continue
        whole += line
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1]
            continue
        yield whole
        whole = ""
    if whole:
        yield whole


def _split(line: str) -> tuple[str, str]:
    match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    key, value = match.groups() if match else (line, "")
    return _unescaped(key), _unescaped(value)


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code, plain = match.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(plain, plain)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.DOTALL)
