"""The format ``json``: Arrow's reader for values that it reads like `json_values`, and `json_values` for the rest.

Arrow's reader parses many documents at once and creates no Python objects.  But each line is one document for it, and
one bad document makes it refuse all.  So:

1. Values that look like one object in one line are joined by line breaks.
2. If the reader refuses them, it gets them in four parts.
3. `json_values` decodes the rest one by one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import types as t

from pyspark_kafka_group.columns.limits import TooLargeError
from pyspark_kafka_group.formats.budget import Budget, cost_of, largest_element, most_bytes, width_of
from pyspark_kafka_group.formats.decoder import Decoded, Decoder, decode_each
from pyspark_kafka_group.formats.json_values import DATE, converter, document
from pyspark_kafka_group.formats.schema_lookup import ID_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

_FEW = 64
"""Up to this number of values, decode them one by one instead of trying parts again."""

_ZONED = rf"^{DATE}[T ]\d\d:\d\d:\d\d(\.\d{{1,6}})?(Z|[+-]\d\d:\d\d)$"
_LOCAL = rf"^{DATE}[T ]\d\d:\d\d:\d\d(\.\d{{1,6}})?$"
_WORDS = re.compile(rb"Inf\s*[,}\]]"), re.compile(rb"-NaN\s*[,}\]]")
"""Numbers that only Arrow's reader accepts.  Texts that look like them are decoded more slowly."""

_EXPONENT = re.compile(rb'[:,\[\s"][-+]?(?:[0-9.]{30,}+[eE][-+]?[0-9]++|[0-9.]++[eE][-+]?[0-9]{2,}+)\s*+[",}\]]')
"""Numbers with which Arrow's reader of decimals reads beyond a table, up to a crash (apache/arrow#50964)."""

_TEXTS = {t.DateType: rf"^{DATE}$", t.TimestampType: _ZONED, t.TimestampNTZType: _LOCAL}
"""The texts that Arrow reads like `json_values`."""

_SAME = (t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.StringType)


class JsonDecoder(Decoder):
    """Decodes JSON documents.

    Parameters
    ----------
    wanted : StructType
        The type of the documents.
    arrow_type : pyarrow.DataType
        The same type in Arrow.
    """

    def __init__(self, wanted: t.StructType, arrow_type: pa.DataType) -> None:
        import pyarrow as pa

        super().__init__(arrow_type)
        self._budget = Budget()
        convert = converter(wanted, self._budget)
        self._one = lambda value: convert(document(value))
        self._wanted = wanted
        self._has_decimals = "decimal" in wanted.simpleString()
        self._read_as = _read_as(wanted, arrow_type)
        self._schema = None if self._read_as is None else pa.schema(list(self._read_as))
        self._width, self._cost = width_of(arrow_type), cost_of(arrow_type)
        self._widest = largest_element(arrow_type, width_of)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; a null stays null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._budget.begin(values.nbytes)
        if len(values) * self._width > most_bytes(values.nbytes):
            raise TooLargeError  # fields that a document does not have take room, too
        framed = pc.starts_with(values, pattern=b"\0")  # by Confluent's serializer; no JSON begins with a zero
        if pc.any(framed).as_py():
            # Deliberate: not binary_slice, which without an end fails for each even number of rows (pyarrow 26).
            bare = pc.binary_replace_slice(values, start=0, stop=ID_BYTES, replacement=b"")
            values = pc.if_else(framed, bare, values)
        if self._schema is None:
            return self._of_each(values)
        plain = pc.fill_null(_in_one_line(values), fill_value=False)
        if pc.all(plain).as_py():
            return self._of_lines(values)
        lines, others = pc.indices_nonzero(plain), pc.indices_nonzero(pc.invert(plain))
        of_lines = self._of_lines(values.take(lines))
        of_others = self._of_each(values.take(others))
        places = pa.concat_arrays([lines, others])
        column = pa.concat_arrays([of_lines.column, of_others.column]).take(pc.sort_indices(places))
        malformed = {lines[row].as_py(): reason for row, reason in of_lines.malformed.items()}
        malformed |= {others[row].as_py(): reason for row, reason in of_others.malformed.items()}
        return Decoded(column, dict(sorted(malformed.items())))

    def _of_each(self, values: pa.BinaryArray) -> Decoded:
        """Decode values one by one."""
        self._budget.spend_bytes(len(values) * self._cost)
        return decode_each(values.to_pylist(), self._one, self._type)

    def _of_lines(self, values: pa.BinaryArray) -> Decoded:
        """Decode values that may be joined by line breaks.  If Arrow's reader refuses them, decode them in parts."""
        import pyarrow as pa

        too_large = self._may_be_too_large(values)
        column = None if too_large else self._at_once(values)
        if column is not None:
            return Decoded(column, {})
        if len(values) <= (1 if too_large else _FEW):
            return self._of_each(values)
        size = -(-len(values) // 4)
        columns: list[pa.Array] = []
        malformed: dict[int, str] = {}
        for start in range(0, len(values), size):
            part = self._of_lines(values.slice(start, size))
            columns.append(part.column)
            malformed |= {start + row: reason for row, reason in part.malformed.items()}
        return Decoded(pa.concat_arrays(columns), malformed)

    def _at_once(self, values: pa.BinaryArray) -> pa.Array | None:
        """Return the column from Arrow's reader; None if it refuses the values, or would differ from `json_values`."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import json

        if not len(values):
            return pa.array([], self._type)
        assert self._schema is not None
        try:
            values.cast(pa.string())  # raises for invalid UTF-8, which the reader accepts
            lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
            if any(word.search(lines) for word in _WORDS) or (self._has_decimals and _EXPONENT.search(lines)):
                return None
            table = json.read_json(
                pa.BufferReader(lines),
                read_options=json.ReadOptions(use_threads=False, block_size=lines.size + 1),
                parse_options=json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore"),
            )
            if len(table) != len(values):
                return None
            (batch,) = table.combine_chunks().to_batches()
            found = _as_wanted(pa.StructArray.from_arrays(batch.columns, fields=list(self._schema)), self._type)
            if self._has_decimals:
                found.validate(full=True)  # the reader accepts more digits than the type has (pyarrow 26)
        except pa.ArrowException:
            return None
        return found

    def _may_be_too_large(self, values: pa.BinaryArray) -> bool:
        """Return whether documents may have so many elements that these must be counted one by one."""
        import pyarrow.compute as pc

        most, size = most_bytes(values.nbytes), int(values.nbytes)
        if size * self._widest <= most:
            return False  # even if each byte were an element
        signs = sum(int(pc.sum(pc.count_substring(values, sign)).as_py() or 0) for sign in (b",", b"["))
        return signs * self._widest > most


def _in_one_line(values: pa.BinaryArray) -> pa.BooleanArray:
    """Return which values, joined by line breaks, are at least one line with at least one object each."""
    import pyarrow.compute as pc

    braces = pc.and_(pc.starts_with(values, pattern=b"{"), pc.ends_with(values, pattern=b"}"))
    breaks = pc.or_(pc.match_substring(values, pattern=b"\n"), pc.match_substring(values, pattern=b"\r"))
    return pc.and_not(braces, breaks)


def _read_as(wanted: t.DataType, arrow_type: pa.DataType) -> pa.DataType | None:
    """Return the type for Arrow's reader, which `_as_wanted` converts later; None if there is none."""
    import pyarrow as pa

    if isinstance(wanted, t.StructType):
        parts = [_read_as(field.dataType, arrow_type.field(i).type) for i, field in enumerate(wanted)]
        if any(part is None for part in parts):
            return None
        return pa.struct([pa.field(field.name, part) for field, part in zip(wanted, parts, strict=True)])
    if isinstance(wanted, t.ArrayType):
        element = _read_as(wanted.elementType, arrow_type.value_type)
        # Only if the element needs no conversion.
        return arrow_type if element == arrow_type.value_type else None
    if isinstance(wanted, (*_SAME, t.DecimalType)):
        return arrow_type
    return pa.string() if type(wanted) in _TEXTS else None


def _as_wanted(found: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert texts to dates and times; raise `pyarrow.ArrowException` if `json_values` has to decode them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if found.type == wanted:
        return found
    if pa.types.is_struct(wanted):
        children = [_as_wanted(found.field(i), wanted.field(i).type) for i in range(wanted.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=found.is_null())
    pattern = _TEXTS[t.DateType] if pa.types.is_date(wanted) else _LOCAL if wanted.tz is None else _ZONED
    if not pc.all(pc.match_substring_regex(found, pattern=pattern), min_count=0).as_py():
        raise pa.ArrowInvalid
    return found.cast(wanted)
