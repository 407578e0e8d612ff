"""The public C interface of the librdkafka that confluent-kafka has loaded, through ctypes.

Nothing here depends on how confluent-kafka lays out its Python objects.  All calls release the GIL.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

POINTER = ctypes.c_void_p
TEXT = ctypes.c_char_p

Signatures = Mapping[str, tuple[type | None, tuple[type, ...]]]
"""Result and arguments of each function."""


def load(signatures: Signatures) -> ctypes.CDLL:
    """Return librdkafka with these functions declared.

    Raises
    ------
    AttributeError
        This installation of confluent-kafka does not offer one of the functions.
    """
    from confluent_kafka import cimpl

    # Looking a symbol up in the extension module also searches the libraries it is linked to, so this finds
    # the very librdkafka that confluent-kafka uses, wherever a wheel or a distribution has put it.
    library = ctypes.CDLL(cimpl.__file__)
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def address(library: ctypes.CDLL, name: str) -> int:
    """Return where a function is, for C code that calls it."""
    return ctypes.cast(getattr(library, name), POINTER).value or 0
