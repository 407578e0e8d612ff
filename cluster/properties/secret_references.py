"""Java's files of properties, and references to values: ``${file:...}`` and ``${env:...}``.

These are the forms of Java's config providers.  The process that opens a connection reads the values, each time.  So
what Spark keeps and sends contains only the reference.  The source takes a value as it is, even if it contains what
looks like a reference.

Whoever writes options may put a reference into any property.  So each value is a secret, whatever its property.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from pyspark_kafka_group.cluster.properties.permissions import Kind, check_allowed
from pyspark_kafka_group.cluster.properties.redaction import keep_read
from pyspark_kafka_group.offsets.errors import OptionError

_REFERENCE = re.compile(r"\$\{([A-Za-z][\w-]*):([^}]*)\}")

_FORMS = "${file:/path}, ${file:/path:key} or ${env:NAME}"

# A command of the shell, which has similar forms, such as ${NAME:-default}.
_SHELL = "kafka.sasl.kerberos.kinit.cmd"


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def refers(value: str) -> bool:
    """Return whether there is a reference in ``value``."""
    return _REFERENCE.search(value) is not None


def with_words(value: str) -> str:
    """Return ``value`` with a word in place of each reference, to check the text around them."""
    return _REFERENCE.sub("x", value)


def check_references(properties: Mapping[str, str], *, decided: Collection[str], prefix: str = "kafka.") -> None:
    """Refuse references that this process may not or cannot follow; reads no file and no variable of the user.

    Parameters
    ----------
    properties : mapping of str to str
        The ``kafka.*`` options, without the prefix.
    decided : collection of str
        Properties that decide more than a connection, so that they may not be references.
    prefix : str
        The prefix of the options that have these properties.

    Raises
    ------
    OptionError
        If a reference cannot be followed.  The text names the property and the remedy.
    """
    for key, value in properties.items():
        for found in _REFERENCE.finditer(value):
            if key in decided:
                raise OptionError(
                    prefix + key,
                    f"{found[0]} is read only when a connection is opened, but this property decides more than that.",
                    "Write the value itself; it is not a secret.",
                )
            _target(prefix + key, *found.groups())


def resolved(properties: Mapping[str, str], *, prefix: str = "kafka.") -> dict[str, str]:
    """Return the properties with the values of their references, read now in this process.

    From now on, no text of this process shows these values, nor the properties that contain them.

    Parameters
    ----------
    properties : mapping of str to str
        The user's ``kafka.*`` properties, without the prefix.
    prefix : str
        The prefix of the options that have these properties.

    Raises
    ------
    OptionError
        If a file, a key in it, or a variable is missing here, or a reference has another form.
    """
    read: list[str] = []

    def value_of(option: str, found: re.Match[str]) -> str:
        read.append(_value(option, found))
        return read[-1]

    result = {key: _REFERENCE.sub(partial(value_of, prefix + key), value) for key, value in properties.items()}
    keep_read([*read, *(value for key, value in result.items() if value != properties[key])])
    return result


def _value(option: str, found: re.Match[str]) -> str:
    target = _target(option, found[1], found[2])
    if target is None:
        return found[0]
    if isinstance(target, str):
        value = os.environ.get(target)
        if value is None:
            raise _missing(option, found[0], f"this process has no variable {target!r}")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _missing(option, found[0], f"the variable {target!r} is not a text in UTF-8") from None
        return value
    path, name = target
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise _missing(option, found[0], f"{path} cannot be read here: {reason}") from None
    except UnicodeDecodeError:
        raise _missing(option, found[0], f"{path} is not a text in UTF-8") from None
    if name is None:
        return text.removesuffix("\n").removesuffix("\r")
    entries = parse(text)
    if name not in entries:
        raise _missing(option, found[0], f"{path} has no key {name!r}")
    return entries[name]


def _target(option: str, provider: str, rest: str) -> str | tuple[Path, str | None] | None:
    """Return a variable's name, or a file and the key in it; None for a text that only looks like a reference.

    Raises
    ------
    OptionError
        If the reference is not valid, or the owner of this process does not allow it.
    """
    if provider == "env" and re.fullmatch(r"[^\s:=]+", rest):
        check_allowed(option, Kind.VARIABLE, rest, f"it reads the variable {rest}")
        return rest
    if provider == "file":
        path, colon, name = rest.partition(":")  # as Java: the first colon ends the path
        if path.startswith("/") and ".." not in path.split("/") and (name or not colon):
            check_allowed(option, Kind.FILE, path, f"it reads the file {path}")
            return Path(path), name if colon else None
    if option == _SHELL and provider not in ("env", "file"):
        return None
    raise OptionError(
        option,
        "it has a ${...:...} that is not a valid reference.",
        f"Write {_FORMS}. A path is absolute and has no '..'. If the value itself has such characters, put it into a "
        f"file.",
    )


def _missing(option: str, reference: str, problem: str) -> OptionError:
    return OptionError(
        option,
        f"{reference} has no value: {problem}.",
        "The file or variable must exist on the driver and on each executor, where the connections are opened.",
    )


def parse(text: str) -> dict[str, str]:
    """Return the properties of a file, as Java's ``Properties.load`` reads them.  The last value of a name counts."""
    found = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[key] = value
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments, joined where a backslash ends a line."""
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

    found = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.DOTALL)
    # Java writes a character outside the BMP as two escapes, the halves of its UTF-16.
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
