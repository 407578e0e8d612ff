"""A schema, as the registry has it or as the user has written it."""

from __future__ import annotations

from dataclasses import dataclass


class UnknownSchemaError(Exception):
    """The registry has no such schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A schema.  Sent to executors, so that they need not ask for it again.

    Attributes
    ----------
    id : int or None
        Its id in the registry; None if it is the user's own.
    kind : str
        ``AVRO``, ``PROTOBUF`` or ``JSON``.
    text : str
        The schema.  For Protobuf it is the descriptor of the file, in base64.
    references : tuple of (str, str)
        Names and texts of the schemas that it refers to, each after those that it refers to itself.
    """

    id: int | None
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
