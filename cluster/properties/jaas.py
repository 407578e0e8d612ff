"""JAAS configurations, as Java's clients read the property ``sasl.jaas.config``.

The grammar is that of Kafka's ``JaasConfig``: a class, a control flag, options, a semicolon.  Errors name only
places, and show no part of the text: after a wrong quotation mark, any part may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""
    (?P<space>[\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/)
    | "(?P<double>(?:\\.|[^"\\\r\n])*)"
    | '(?P<single>(?:\\.|[^'\\\r\n])*)'
    | (?P<word>(?:[^\W\d]|\$)[\w.$-]*)
    | (?P<sign>[=;])
    """,
    re.VERBOSE | re.DOTALL,
)
# Of java.io.StreamTokenizer: any other character after a backslash stands for itself.
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_FLAGS = ("required", "requisite", "sufficient", "optional")


class JaasError(ValueError):
    """A text is not a JAAS configuration.  The message names the place, and shows nothing of the text."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module and its options.

    Attributes
    ----------
    name : str
        The class.
    options : mapping of str to str
        The options.  Hidden from ``repr``, because they contain secrets.
    """

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Return the one login module of a configuration.

    Raises
    ------
    JaasError
        If Java's clients would not understand it, or it has several modules.
    """
    tokens = [*_tokens(text), ("end", "")]
    if tokens[0][0] != "text":
        raise JaasError("it does not begin with a class")
    name = tokens[0][1]
    if tokens[1][0] != "text" or tokens[1][1].lower() not in _FLAGS:
        raise JaasError("no control flag, such as required, follows the class")
    options: dict[str, str] = {}
    at = 2
    while tokens[at][0] == "text":
        kinds = [kind for kind, _ in tokens[at + 1 : at + 3]]
        if kinds != ["=", "text"]:
            raise JaasError(f"option {len(options) + 1} has no value, or a quotation mark in it has no backslash")
        options[tokens[at][1]] = tokens[at + 2][1]
        at += 3
    if tokens[at][0] != ";":
        raise JaasError("it does not end with a semicolon")
    if tokens[at + 1][0] != "end":
        raise JaasError("it names more than one login module")
    return LoginModule(name, options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise JaasError(
                f"character {at + 1} is not valid here; a value that is not a word must be in quotation marks, on one "
                "line"
            )
        at = found.end()
        kind = found.lastgroup
        if kind == "sign":
            yield found[0], found[0]
        elif kind == "word":
            yield "text", found[0]
        elif kind != "space":
            yield "text", _ESCAPE.sub(_meaning, found[kind or 0])


def _meaning(escape: re.Match[str]) -> str:
    text = escape[1]
    return chr(int(text, 8)) if text in _OCTAL_DIGITS or len(text) > 1 else _ESCAPED.get(text, text)


_OCTAL_DIGITS = frozenset("01234567")
