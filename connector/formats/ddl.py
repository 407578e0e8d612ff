"""Parses the text of a schema to Spark's types.  It needs no JVM: the process of `load()` does not have one.

It accepts the texts of ``DataFrame.schema`` (``simpleString`` and ``json``), and DDL.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from pyspark.sql import types as t

from pyspark_kafka_group.options.parsers import MalformedError

_REMEDY = "Write Spark's DDL, as in 'id BIGINT, name STRING, at TIMESTAMP', or the JSON of a schema (df.schema.json())."

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([\w.]+)|('(?:[^'\\]|\\.)*')|(.))", re.DOTALL)

_SIMPLE: dict[str, type[t.DataType]] = {
    "boolean": t.BooleanType,
    "tinyint": t.ByteType,
    "byte": t.ByteType,
    "smallint": t.ShortType,
    "short": t.ShortType,
    "int": t.IntegerType,
    "integer": t.IntegerType,
    "bigint": t.LongType,
    "long": t.LongType,
    "float": t.FloatType,
    "real": t.FloatType,
    "double": t.DoubleType,
    "string": t.StringType,
    "binary": t.BinaryType,
    "date": t.DateType,
    "timestamp": t.TimestampType,
    "timestamp_ltz": t.TimestampType,
    "timestamp_ntz": t.TimestampNTZType,
}

MOST_PARTS = 20_000
"""How many parts a column may have.  Each part takes some memory in each batch, and in Spark."""

_PLAIN = tuple(dict.fromkeys(_SIMPLE.values()))


def struct_type(text: str) -> t.StructType:
    """Return the struct that a text describes.  All fields, elements and values are nullable.

    Raises
    ------
    MalformedError
        If this is not a schema, or if it has an unsupported type.
    """
    found = _of_json(text) if text.lstrip().startswith("{") else _Parser(text).schema()
    check_type(found, "")
    nullable = all_nullable(found)
    assert isinstance(nullable, t.StructType)
    return nullable


def check_type(found: t.DataType, path: str) -> None:
    """Raise `MalformedError` for unsupported types, structs without fields, and duplicate fields."""
    where = f" (field {path})" if path else ""
    if isinstance(found, t.StructType):
        names = [field.name for field in found]
        if not names:
            raise MalformedError(f"it has a struct without fields{where}.", "Name at least one field.")
        for field in found:
            if names.count(field.name) > 1:
                raise MalformedError(f"it has two fields {field.name!r}{where}.", "Give each its own name.")
            check_type(field.dataType, f"{path}.{field.name}" if path else field.name)
    elif isinstance(found, t.ArrayType):
        check_type(found.elementType, f"{path}[]")
    elif isinstance(found, t.MapType):
        if not isinstance(found.keyType, t.StringType):
            raise MalformedError(f"it has a map whose keys are not STRING{where}.", "Keys in JSON are strings.")
        check_type(found.valueType, f"{path}{{}}")
    elif isinstance(found, t.DecimalType):
        decimal_type(found.precision, found.scale)
    elif type(found) not in _PLAIN:
        raise MalformedError(
            f"values of type {found.simpleString()} cannot be read{where}.", "Read it as STRING, and convert it."
        )


def decimal_type(precision: object, scale: object) -> t.DecimalType:
    """Return a decimal type.  Raise `MalformedError` if Spark does not have it."""
    if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and 0 < precision <= 38):
        raise MalformedError(
            f"it has a decimal with precision {precision} and scale {scale}.",
            "Spark's precision is 1 to 38, and its scale 0 to the precision. Name another schema.",
        )
    return t.DecimalType(precision, scale)


def check_parts(parts: int) -> None:
    """Raise `MalformedError` for a schema with more parts than a column may have.

    A few types that use each other twice have millions of parts.
    """
    if parts > MOST_PARTS:
        raise MalformedError(f"it has more than {MOST_PARTS} parts.", "Read it as binary, or name another schema.")


def all_nullable(found: t.DataType) -> t.DataType:
    """Return the type with all parts nullable, because a producer may omit any field."""
    if isinstance(found, t.StructType):
        return t.StructType([t.StructField(f.name, all_nullable(f.dataType), nullable=True) for f in found])
    if isinstance(found, t.ArrayType):
        return t.ArrayType(all_nullable(found.elementType), containsNull=True)
    if isinstance(found, t.MapType):
        return t.MapType(all_nullable(found.keyType), all_nullable(found.valueType), valueContainsNull=True)
    return found


def _of_json(text: str) -> t.StructType:
    try:
        return t.StructType.fromJson(json.loads(text))
    except Exception as problem:  # noqa: BLE001, RUF100 - PySpark may raise any error
        raise MalformedError(f"it is not the JSON of a schema ({type(problem).__name__}).", _REMEDY) from None


class _Parser:
    """One text and the parser's position in it."""

    def __init__(self, text: str) -> None:
        self._tokens = [found[0].strip() for found in _TOKEN.finditer(text.strip()) if found[0].strip()]
        self._next = 0

    def schema(self) -> t.StructType:
        """Return the struct of the whole text."""
        if self._peek().lower() == "struct" and self._peek(1) == "<":
            found = self._type()
            assert isinstance(found, t.StructType)
        else:
            found = t.StructType(self._fields(end=""))
        if self._peek():
            self._fail(f"nothing may follow, but {self._peek()!r} does")
        return found

    def _fields(self, end: str) -> list[t.StructField]:
        fields = []
        while self._peek() != end:
            name = self._name()
            if self._peek() == ":":
                self._take()
            fields.append(t.StructField(name, self._type()))
            self._remarks()
            if self._peek() != ",":
                break
            self._take()
        return fields

    def _remarks(self) -> None:
        if self._peek().lower() == "not" and self._peek(1).lower() == "null":
            self._next += 2
        if self._peek().lower() == "comment" and self._peek(1).startswith("'"):
            self._next += 2

    def _type(self) -> t.DataType:
        word = self._take()
        kind = word.lower()
        if kind == "array":
            self._expect("<")
            array = t.ArrayType(self._type())
            self._expect(">")
            return array
        if kind == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return t.MapType(key, value)
        if kind == "struct":
            self._expect("<")
            fields = self._fields(end=">")
            self._expect(">")
            return t.StructType(fields)
        if kind in ("decimal", "dec", "numeric"):
            return self._decimal()
        if kind in _SIMPLE:
            return _SIMPLE[kind]()
        return self._fail(f"{word!r} is not a supported type" if word else "a type is missing at its end")

    def _decimal(self) -> t.DecimalType:
        if self._peek() != "(":
            return t.DecimalType(10, 0)
        self._take()
        precision, scale = self._number(), 0
        if self._peek() == ",":
            self._take()
            scale = self._number()
        self._expect(")")
        return t.DecimalType(precision, scale)

    def _number(self) -> int:
        word = self._take()
        return int(word) if word.isdecimal() else self._fail(f"{word!r} is not a number")

    def _name(self) -> str:
        word = self._take()
        if word.startswith("`") and len(word) > 2:
            return word[1:-1].replace("``", "`")
        return word if re.fullmatch(r"\w+", word) else self._fail(f"{word!r} is not a name")

    def _peek(self, ahead: int = 0) -> str:
        return self._tokens[self._next + ahead] if self._next + ahead < len(self._tokens) else ""

    def _take(self) -> str:
        word = self._peek()
        self._next += 1
        return word

    def _expect(self, sign: str) -> None:
        word = self._take()
        if word != sign:
            self._fail(f"{sign!r} is missing before {word!r}" if word else f"{sign!r} is missing at its end")

    def _fail(self, problem: str) -> NoReturn:
        raise MalformedError(f"it is not a schema: {problem}.", _REMEDY)
