"""What turns the bytes of a column into its values: the interface of the formats, and what they share.

An executor makes one for each column of a task.  Nothing here knows Kafka.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_group.formats.budget import Budget

if TYPE_CHECKING:
    import pyarrow as pa


class MalformedValueError(Exception):
    """A value is not what its format says.  The text says why, and never shows what is in the value."""


class Decoded(NamedTuple):
    """A decoded column.

    Attributes
    ----------
    column : pyarrow.Array
        A row for each value.  It is null if the value is null or malformed.
    malformed : dict of int to str
        What is wrong, by row.
    """

    column: pa.Array
    malformed: dict[int, str]


class Decoder(ABC):
    """Decodes a column.

    Parameters
    ----------
    arrow_type : pyarrow.DataType
        What the column has to be.
    """

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._type = arrow_type

    @abstractmethod
    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; a null stays null.

        Raises
        ------
        TooLargeError
            The column would take too much memory.
        KafkaGroupError
            For what is no fault of a record, as a registry that does not answer.
        """


class ObjectDecoder(Decoder):
    """Decodes a column with an object for each value, which Arrow makes into columns.

    Attributes
    ----------
    budget : Budget
        Of the values that are being decoded.
    """

    def __init__(self, arrow_type: pa.DataType) -> None:
        super().__init__(arrow_type)
        self.budget = Budget()

    @abstractmethod
    def one(self, value: bytes) -> Any:
        """Return what is in a value, as `pyarrow.array` takes it; raise :class:`MalformedValueError`."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; a null stays null."""
        self.budget.begin(values)
        return decode_each(values.to_pylist(), self.one, self._type)


def decode_each(values: list[bytes | None], one: Callable[[bytes], Any], arrow_type: pa.DataType) -> Decoded:
    """Decode values one after the other.  A value that Arrow cannot hold is malformed."""
    import pyarrow as pa

    malformed: dict[int, str] = {}
    objects: list[Any] = []
    for row, value in enumerate(values):
        try:
            objects.append(None if value is None else one(value))
        except MalformedValueError as problem:
            objects.append(None)
            malformed[row] = str(problem)
    try:
        return Decoded(pa.array(objects, arrow_type), malformed)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
        pass
    # Rare: one of them does not fit, and Arrow does not say which.
    for row, found in enumerate(objects):
        try:
            pa.array([found], arrow_type)
        except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError) as problem:
            objects[row] = None
            malformed[row] = f"it does not fit into the column ({type(problem).__name__})"
    return Decoded(pa.array(objects, arrow_type), malformed)


class TextDecoder(Decoder):
    """Decodes ``string``, which is UTF-8."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; a null stays null."""
        import pyarrow as pa

        try:
            return Decoded(values.cast(pa.string()), {})
        except pa.ArrowInvalid:
            return decode_each(values.to_pylist(), _text, self._type)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as problem:
        raise MalformedValueError(f"it is not UTF-8 at byte {problem.start}") from None
