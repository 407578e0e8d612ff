"""What the doctor says."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Severity(IntEnum):
    """How bad it is; a note is nothing bad, and the group is well with it."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Finding(NamedTuple):
    """Something that is wrong, or that the cluster lacks.

    Attributes
    ----------
    severity : Severity
        How bad it is.
    code : str
        Names the rule; scripts go by it.
    thing : str
        What is at fault: the group, a member, a partition, a setting.
    evidence : str
        What was seen.
    remedy : str
        What to do.
    """

    severity: Severity
    code: str
    thing: str
    evidence: str
    remedy: str


def error(code: str, thing: object, evidence: str, remedy: str) -> Finding:
    """Return something that loses records, stops readers, or will."""
    return Finding(Severity.ERROR, code, str(thing), evidence, remedy)


def warning(code: str, thing: object, evidence: str, remedy: str) -> Finding:
    """Return something that costs time, or is a risk."""
    return Finding(Severity.WARNING, code, str(thing), evidence, remedy)


def note(code: str, thing: object, evidence: str, remedy: str) -> Finding:
    """Return something that the cluster lacks."""
    return Finding(Severity.NOTE, code, str(thing), evidence, remedy)
