"""Loads the C library of this package through ctypes.

Each `.c` file is a :class:`NativePart`.  It shares structures with Python, declared with equal fields on both sides.
Before Python calls anything else, it compares the sizes of these structures with those of the library.  A library that
was built from other sources would write beyond the memory that Python has allocated.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

READER_OVERRIDE = "KAFKA_GROUP_ACCELERATOR"
"""An environment variable for comparisons.  With ``off`` the package does not use its C code."""

POINTER, TEXT = ctypes.c_void_p, ctypes.c_char_p

Int32 = Annotated[int, ctypes.c_int32]
Int64 = Annotated[int, ctypes.c_int64]
Pointer = Annotated[int | None, POINTER]

Signatures = Mapping[str, tuple[type | None, tuple[type, ...]]]
"""Result and arguments of each function."""

_REMEDY = (
    "Install a wheel for this platform, or put a C compiler on the PATH and install again, "
    "with `pip install --force-reinstall --no-deps --no-cache-dir`"
)
"""Deliberate: without pip's cache, which contains the wheel that was built without a compiler."""

_Structure = TypeVar("_Structure", bound=type[ctypes.Structure])


def reader_override() -> str:
    """Return the value of :data:`READER_OVERRIDE`; empty if it is not set."""
    return os.environ.get(READER_OVERRIDE, "").strip().lower()


def structure(declared: _Structure) -> _Structure:
    """Set the fields of a structure from its annotations: other structures, or types of ctypes in `Annotated`."""
    scope = vars(sys.modules[declared.__module__])
    declared._fields_ = [(name, _field_type(text, scope)) for name, text in declared.__annotations__.items()]
    return declared


def _field_type(annotation: str, scope: Mapping[str, Any]) -> Any:
    # Deliberate: not `get_type_hints`, which takes a few milliseconds at the start of each worker.
    hint = scope[annotation] if annotation in scope else eval(annotation, dict(scope))
    return hint.__metadata__[0] if hasattr(hint, "__metadata__") else hint


def declare(library: ctypes.CDLL, signatures: Signatures) -> ctypes.CDLL:
    """Return a library with these functions declared; raise AttributeError if one is missing."""
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class NativePart:
    """One `.c` file of the library.

    Parameters
    ----------
    sizes : str
        The function that returns the sizes with which the file was built.
    expected : tuple
        The expected structures, of which only the size counts, and numbers.
    functions : Signatures
        The functions that Python calls.
    init : str
        A function to call first; empty if there is none.
    """

    def __init__(self, sizes: str, expected: tuple[Any, ...], functions: Signatures, init: str = "") -> None:
        self._sizes = sizes
        self.expected = tuple(one if isinstance(one, int) else ctypes.sizeof(one) for one in expected)
        self._functions = functions
        self._init = init

    @property
    def library(self) -> ctypes.CDLL | None:
        """The library with the declared functions of this file; None if it cannot be used."""
        return self._found if isinstance(self._found, ctypes.CDLL) else None

    @property
    def problem(self) -> str:
        """Why the library cannot be used, and the remedy; empty if it can."""
        return self._found if isinstance(self._found, str) else ""

    @cached_property
    def _found(self) -> ctypes.CDLL | str:
        return self.of(_library())

    def of(self, library: ctypes.CDLL | str) -> ctypes.CDLL | str:
        """Return a library with the functions of this file declared, or why it cannot be used."""
        if isinstance(library, str):
            return library
        if reason := self.mismatch(library):
            return f"its C library cannot be used: {reason}. {_REMEDY}"
        declare(library, self._functions)
        if self._init:
            getattr(library, self._init)()
        return library

    def mismatch(self, library: ctypes.CDLL) -> str:
        """Return why this Python code cannot use a library; empty if it can."""
        if sys.byteorder != "little":
            return "it needs a little-endian processor"
        numbers = (ctypes.c_int64 * len(self.expected))()
        try:
            declare(library, {self._sizes: (ctypes.c_int32, (POINTER, ctypes.c_int32))})
        except AttributeError:
            return "it is of another version"
        count = getattr(library, self._sizes)(numbers, len(self.expected))
        return "" if count == len(numbers) and tuple(numbers) == self.expected else "it is of another version"


@cache
def _library() -> ctypes.CDLL | str:
    """Load the C library, or return why there is none."""
    spec = find_spec("pyspark_kafka_group.columns._native")
    if spec is not None and spec.origin is not None:
        try:
            return ctypes.CDLL(spec.origin)
        except OSError as problem:
            return f"its C library cannot be loaded ({problem}). {_REMEDY}"
    if not Path(__file__).exists():
        return (
            "the package is imported from a zip file, from which no C library can be loaded. "
            "Install it for the Python of the executors"
        )
    return f"its C library is missing, because it was installed without a C compiler. {_REMEDY}"
