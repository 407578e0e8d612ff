"""The interface of decoders, which convert the bytes of a column to values, and their shared code.

An executor creates one for each column of a task.  Nothing here depends on Kafka.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_group.columns.limits import MAX_DECODED_BYTES
from pyspark_kafka_group.formats.budget import Budget, cost_of

if TYPE_CHECKING:
    import pyarrow as pa


class MalformedValueError(Exception):
    """A value does not fit its format.  The text contains the reason, but nothing of the value except a schema id."""


TOO_LARGE = f"it would take more than {MAX_DECODED_BYTES >> 20} MB when it is decoded"
"""Why a record is malformed that is too large alone."""


class Decoded(NamedTuple):
    """A decoded column.

    Attributes
    ----------
    column : pyarrow.Array
        A row for each value.  It is null if the value is null or malformed.
    malformed : dict of int to str
        The reasons, by row.
    """

    column: pa.Array
    malformed: dict[int, str]


class Decoder(ABC):
    """Decodes a column.

    Parameters
    ----------
    arrow_type : pyarrow.DataType
        The type of the column.
    """

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._type = arrow_type

    @abstractmethod
    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; a null stays null.

        Raises
        ------
        TooLargeError
            If the column would take too much memory.
        KafkaGroupError
            If the cause is not a record, for example if a registry does not answer.
        """


class ObjectDecoder(Decoder):
    """Decodes a column to Python objects, which Arrow converts to columns.

    Attributes
    ----------
    budget : Budget
        The budget of the current values.
    """

    def __init__(self, arrow_type: pa.DataType) -> None:
        super().__init__(arrow_type)
        self.budget = Budget()
        self._cost = cost_of(arrow_type)

    @abstractmethod
    def one(self, value: bytes) -> Any:
        """Return the decoded value for `pyarrow.array`; raise :class:`MalformedValueError`."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; a null stays null."""
        return self.decode_rows(values, values.to_pylist())

    def decode_rows(self, values: pa.BinaryArray, rows: list[bytes | None]) -> Decoded:
        """Decode some rows of these values."""
        self.budget.begin(values.nbytes)
        self.budget.spend_bytes(len(rows) * self._cost)
        return decode_each(rows, self.one, self._type)


def decode_each(values: list[bytes | None], one: Callable[[bytes], Any], arrow_type: pa.DataType) -> Decoded:
    """Decode values one by one.  A value that does not fit into the column is malformed."""
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
    # Rare: one of them does not fit, and Arrow does not report which.
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
