"""Search for secrets in the traces of a run: in all its files, and in the command lines of processes."""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

_LONGEST_SHOWN = 60

# The search reads this much of the searched part again, because a secret may lie across its end.  No secret is longer,
# in any form.
_END = 512


class Leaks:
    """A search for secrets as plain text, in base64, in hexadecimal, and as a part of a URL.

    Parameters
    ----------
    secrets : mapping of str to str
        The secrets by name.  Results contain only the names.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._forms = [(name, form) for name, secret in secrets.items() for form in {*_forms(secret)}]
        self._looked_into: dict[Path, _Seen] = {}

    def in_bytes(self, content: bytes, where: str) -> list[str]:
        """Return each finding: the place, the name of the secret, and the text before it, without the secret."""
        found = []
        for name, form in self._forms:
            at = content.find(form)
            if at >= 0:
                before = content[max(0, at - _LONGEST_SHOWN) : at].decode("utf-8", "replace")
                found.append(f"{where}: {name} after {before!r}")
        return found

    def in_folder(self, folder: Path) -> list[str]:
        """Search all files below ``folder``, including the content of compressed files."""
        return [leak for where, content in contents(folder) for leak in self.in_bytes(content, where)]

    def in_what_is_new(self, folder: Path) -> list[str]:
        """Search the files below ``folder`` that are new or have changed since the last call, without unpacking them.

        If a file has only grown, like a log, skip the part that an earlier call has searched.
        """
        found = []
        for file in _files(folder):
            try:
                state = file.stat()
                seen = self._looked_into.get(file, _Seen())
                if seen.state == (state.st_ino, state.st_size, state.st_mtime_ns):
                    continue
                with file.open("rb") as opened:
                    opened.seek(seen.size - len(seen.end))
                    content = opened.read()
                    if not content.startswith(seen.end):
                        opened.seek(0)
                        content, seen = opened.read(), _Seen()
            except OSError:  # it was deleted meanwhile
                continue
            found += self.in_bytes(content, str(file.relative_to(folder)))
            self._looked_into[file] = _Seen(
                (state.st_ino, state.st_size, state.st_mtime_ns),
                seen.size - len(seen.end) + len(content),
                content[-_END:],
            )
        return found

    def in_command_lines(self) -> list[str]:
        """Search the command lines of all processes."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                content = file.read_bytes()
            except OSError:
                continue
            found += self.in_bytes(content, f"command line of {content[:20]!r}")
        return found


class _Seen(NamedTuple):
    """The state of a file when it was searched: inode, size and time of change, the searched size, and its end."""

    state: tuple[int, int, int] = (0, 0, 0)
    size: int = 0
    end: bytes = b""


def _files(folder: Path) -> Iterator[Path]:
    for file in (Path(parent, name) for parent, _, names in os.walk(folder) for name in sorted(names)):
        with contextlib.suppress(OSError):
            if not file.is_symlink() and file.is_file():
                yield file


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each file.  For a compressed file, also yield the unpacked content."""
    for file in _files(folder):
        try:
            content = file.read_bytes()
        except OSError:  # it was deleted meanwhile
            continue
        where = str(file.relative_to(folder))
        yield where, content
        if content[:2] == b"\x1f\x8b":
            yield f"{where} (unpacked)", gzip.decompress(content)
        elif zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                yield from ((f"{where}/{name}", archive.read(name)) for name in archive.namelist())


def _forms(secret: str) -> Iterable[bytes]:
    plain = secret.encode()
    yield plain
    yield quote(secret, safe="").encode()
    yield plain.hex().encode()
    yield plain.decode().encode("utf-16-le")
    for shift in range(3):  # base64 of a text that contains the secret at any position
        encoded = base64.b64encode(b"\0" * shift + plain)
        yield encoded[4 if shift else 0 : len(plain) // 3 * 4]
