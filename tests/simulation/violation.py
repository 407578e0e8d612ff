"""What a simulated run raises when an invariant does not hold."""

from __future__ import annotations


class Violation(Exception):  # noqa: N818  # not an error of a program: the finding of a judge
    """``kind`` names the invariant; the text says where it broke."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
