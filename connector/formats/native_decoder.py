"""The formats ``avro`` and ``protobuf``, decoded in C.  Only records that the C code declines become Python objects."""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import TYPE_CHECKING

from pyspark_kafka_group.columns.native_library import reader_override
from pyspark_kafka_group.formats.decoder import Decoded, Decoder, MalformedValueError
from pyspark_kafka_group.formats.native_columns import FORMATS, ColumnLayout, Programs, decode
from pyspark_kafka_group.formats.registry import Definition
from pyspark_kafka_group.formats.schema_lookup import DefinitionOf

if TYPE_CHECKING:
    import ctypes

    import pyarrow as pa

    from pyspark_kafka_group.formats.avro_decoder import AvroDecoder
    from pyspark_kafka_group.formats.protobuf import ProtobufDecoder

    CompilingDecoder = AvroDecoder | ProtobufDecoder

log = logging.getLogger("pyspark_kafka_group.formats")

SENSELESS = "it is not what its schema says (an index below zero, or a number of more than 64 bits)"
"""The reason for such records: fastavro would silently read another index or number."""


def in_c(decoder: CompilingDecoder, arrow_type: pa.DataType, format_: str, *, framed: bool) -> Decoder:
    """Return a decoder that decodes in C if possible, and otherwise this decoder.

    Parameters
    ----------
    decoder : AvroDecoder or ProtobufDecoder
        The decoder in Python.
    arrow_type : pyarrow.DataType
        The type of the column.
    format_ : str
        The name of the format, for the log.
    framed : bool
        Whether records begin with the id of their schema.
    """
    problem = "it is switched off" if reader_override() == "off" else FORMATS.problem
    library = FORMATS.library
    if problem or library is None:
        _say_once(format_, problem)
        return decoder
    return NativeDecoder(arrow_type, decoder, library, framed=framed)


def avro_decoder(arrow_type: pa.DataType, reader: Definition, definition_of: DefinitionOf | None) -> Decoder:
    """Return the decoder for Avro, in C if possible.  See `AvroDecoder` for the parameters."""
    from pyspark_kafka_group.formats.avro_decoder import AvroDecoder

    decoder = AvroDecoder(arrow_type, reader, definition_of)
    return in_c(decoder, arrow_type, "Avro", framed=definition_of is not None)


def protobuf_decoder(
    arrow_type: pa.DataType, reader: Definition, message: str | None, definition_of: DefinitionOf
) -> Decoder:
    """Return the decoder for Protobuf, in C if possible.  See `ProtobufDecoder` for the parameters."""
    from pyspark_kafka_group.formats.protobuf import ProtobufDecoder

    decoder = ProtobufDecoder(arrow_type, reader, message, definition_of)
    return in_c(decoder, arrow_type, "Protobuf", framed=True)


@cache
def _say_once(format_: str, reason: str) -> None:
    log.warning("Decoding %s through Python objects, which is slower: %s.", format_, reason)


class NativeDecoder(Decoder):
    """Decodes records in C, and those that the C code declines with the other decoder.

    So the other decoder decides which records are malformed, and why.  The only exception is `SENSELESS`.

    Parameters
    ----------
    arrow_type : pyarrow.DataType
        The type of the column.
    decoder : AvroDecoder or ProtobufDecoder
        The decoder in Python.
    library
        The library of `FORMATS`.
    framed : bool
        Whether records begin with the id of their schema.
    """

    def __init__(
        self, arrow_type: pa.DataType, decoder: CompilingDecoder, library: ctypes.CDLL, *, framed: bool
    ) -> None:
        super().__init__(arrow_type)
        self._decoder = decoder
        self._library = library
        self._columns = ColumnLayout(arrow_type)
        self._programs = Programs(framed=framed)
        self._passing: list[int] = []
        if not framed:
            self._programs.add(0, decoder.program(None, self._columns))  # only Avro

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; a null stays null."""
        try:
            meet = partial(self._meet, values)
            column, declined = decode(self._library, self._columns, self._programs, values, meet)
        finally:
            for number in self._passing:
                self._programs.drop(number)
            self._passing.clear()
        malformed = {~row: SENSELESS for row in declined if row < 0}
        left = [row for row in declined if row >= 0]
        if left:
            found = self._decoder.decode_rows(values, [values[row].as_py() for row in left])
            malformed |= {left[n]: reason for n, reason in found.malformed.items()}
            if len(found.malformed) < len(left):
                column = _replaced(column, found.column, left)
        return Decoded(column, malformed)

    def _meet(self, values: pa.BinaryArray) -> None:
        """Create the programs of all new ids."""
        for number in self._decoder.look_up(values):
            if number in self._programs:
                continue
            try:
                program = self._decoder.program(number, self._columns)
            except MalformedValueError:
                program = None
                if not self._decoder.is_refused(number):
                    self._passing.append(number)  # the registry may have it for the next batch
            self._programs.add(number, program)


def _replaced(column: pa.Array, values: pa.Array, rows: list[int]) -> pa.Array:
    """Return a column with other values in some rows."""
    import pyarrow as pa

    places = list(range(len(column)))
    for n, row in enumerate(rows, len(column)):
        places[row] = n
    return pa.concat_arrays([column, values]).take(pa.array(places, pa.int64()))
