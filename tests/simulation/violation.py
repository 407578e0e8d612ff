"""The exception that a simulated run raises if an invariant does not hold."""

from __future__ import annotations


class Violation(Exception):  # noqa: N818  # the finding of a judge, not an error of a program
    """A violated invariant.  ``kind`` names the invariant, and the text says where it broke."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
