r"""Translates the patterns of Spark's ``LIKE`` and ``RLIKE`` into the syntax of RE2, which Arrow uses.

Spark's regular expressions are Java's.  Only the part that both understand is accepted, and what means something else
in RE2 is rewritten: ``.``, ``$`` and ``\s``.
"""

from __future__ import annotations

import re

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_BLANKS = r"\t\n\x0b\f\r "
_QUANTIFIER = re.compile(r"[*+?]|\{[0-9]{1,3}(,[0-9]{0,3})?\}")
_SAME = frozenset("dDwWtnrf\\.[](){}*+?^$|-/")
"""Escapes that mean the same in both."""


class PatternError(ValueError):
    """A pattern has a part that is not supported.  The text names the part."""


def of_like(pattern: str, escape: str) -> str:
    """Return the expression for a pattern of ``LIKE``.

    Raises
    ------
    PatternError
        If the escape character stands before anything but ``%``, ``_`` and itself, as in Spark.
    """
    parts, rest = [r"\A"], iter(pattern)
    for char in rest:
        if char == escape:
            escaped = next(rest, "")
            if not escaped or escaped not in ("%", "_", escape):
                raise PatternError(f"the escape character {escape!r} may only stand before %, _ and itself")
            parts.append(_quoted(escaped))
        else:
            parts.append({"%": "(?s:.*)", "_": "(?s:.)"}.get(char) or _quoted(char))
    return "".join([*parts, r"\z"])


def of_rlike(pattern: str) -> str:
    """Return the expression for a pattern of ``RLIKE``.

    Raises
    ------
    PatternError
        If the pattern has a part that Java and RE2 do not both know.
    """
    parts, at, quantified = [], 0, True
    ended, groups = False, [False]  # whether $ ends what is before, and an alternative of each open group
    while at < len(pattern):
        char = pattern[at]
        if ended and char not in "|)":  # Deliberate: the rewritten $ takes the end of the line with it
            raise PatternError(f"{pattern[at:]!r} stands behind a $, which must be at an end")
        if char == "(":
            groups.append(False)
        elif char == "|":
            groups[-1], ended = groups[-1] or ended, False
        elif char == ")":
            ended = (len(groups) > 1 and groups.pop()) or ended
        else:
            ended = char == "$"
        if found := _QUANTIFIER.match(pattern, at):
            if quantified:
                raise PatternError(f"the quantifier {found[0]!r} has nothing before it that it may repeat")
            at = found.end()
            lazy = pattern[at : at + 1] == "?"
            parts.append(found[0] + "?" * lazy)
            at += lazy
            quantified = True
            continue
        quantified = False
        if char == "\\":
            part, at = _escape(pattern, at, inside=False)
        elif char == "[":
            part, at = _class(pattern, at)
        elif char == "(":
            plain = pattern.startswith("(?:", at)
            if pattern.startswith("(?", at) and not plain:
                raise PatternError(f"{pattern[at : at + 3]!r} is not supported")
            part, at, quantified = "(?:", at + (3 if plain else 1), True
        elif char in "{}":
            raise PatternError(f"{char!r} is not supported here: write \\{char}")
        else:
            replaced = {".": f"[^{_LINE_ENDS}]", "$": rf"(?:\r\n|[{_LINE_ENDS}])?\z", "^": r"\A", "|": "|", ")": ")"}
            part, at = replaced.get(char) or _quoted(char), at + 1
            quantified = char in "^$|"
        parts.append(part)
    return "".join(parts)


def _escape(pattern: str, at: int, *, inside: bool) -> tuple[str, int]:
    char = pattern[at + 1 : at + 2]
    if char == "s":
        return _BLANKS if inside else f"[{_BLANKS}]", at + 2
    if char == "S" and not inside:
        return f"[^{_BLANKS}]", at + 2
    if not char or char not in _SAME:
        raise PatternError(f"the escape {pattern[at : at + 2]!r} is not supported")
    return ("/" if char == "/" else f"\\{char}"), at + 2


def _class(pattern: str, at: int) -> tuple[str, int]:
    begin = at
    at += 1
    parts = ["["]
    if pattern[at : at + 1] == "^":
        parts.append("^")
        at += 1
    first = True
    while at < len(pattern) and (first or pattern[at] != "]"):
        char = pattern[at]
        if char == "\\":
            part, at = _escape(pattern, at, inside=True)
        elif char in "[]&^":
            raise PatternError(f"{char!r} inside [...] is not supported" + f": write \\{char}" * (char != "&"))
        else:
            part, at = ("-" if char == "-" else _quoted(char)), at + 1
        parts.append(part)
        first = False
    if at >= len(pattern):
        raise PatternError(f"{pattern[begin:]!r} has no ]")
    return "".join([*parts, "]"]), at + 1


def _quoted(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 else rf"\x{{{ord(char):x}}}"
