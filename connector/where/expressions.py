"""Evaluates conditions with Arrow's compute functions, with Spark's results: nulls, NaN, casts and errors.

`parsing` builds the expressions on the driver and decides the types.  Executors only evaluate them, so they need no
parser.  A string is evaluated as its bytes: Spark compares strings byte by byte, and text from ``CAST(value AS
STRING)`` need not be valid UTF-8.

An error of one record, such as an overflow, is a row of a mask.  So a condition such as ``b != 0 AND a / b > 1``
fails for no record, as in Spark.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_group.columns.rounding import for_single
from pyspark_kafka_group.where.types import limits

Mask: TypeAlias = pa.BooleanArray
Columns: TypeAlias = Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Result:
    """The values of an expression, one for each row, and the rows for which it fails (None: for no row)."""

    values: pa.Array
    failed: Mask | None = None


@dataclass(frozen=True, slots=True)
class Expression(ABC):
    """One node of a condition.

    Attributes
    ----------
    type : pyarrow.DataType
        The type of its values.
    """

    type: pa.DataType

    @property
    def children(self) -> tuple[Expression, ...]:
        """The expressions inside."""
        return ()

    @property
    def can_fail(self) -> bool:
        """Whether it may fail for a record."""
        return any(child.can_fail for child in self.children)

    @property
    def names(self) -> frozenset[str]:
        """The columns that it needs."""
        return frozenset[str]().union(*(child.names for child in self.children))

    @abstractmethod
    def evaluate(self, columns: Columns, rows: int) -> Result:
        """Return the values for some rows."""


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A column, or a field inside one."""

    path: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.path[:1])

    def evaluate(self, columns: Columns, rows: int) -> Result:
        values = columns[self.path[0]]
        if len(self.path) > 1:
            values = pc.struct_field(values, self.path[1:])
        return Result(_bytes(values))


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant.  None is null."""

    value: Any

    def evaluate(self, columns: Columns, rows: int) -> Result:
        return Result(pa.repeat(pa.scalar(self.value, stored(self.type)), rows))


@dataclass(frozen=True, slots=True)
class _Unary(Expression):
    of: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class _Binary(Expression):
    left: Expression
    right: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.left, self.right


class Not(_Unary):
    """``NOT of``."""

    def evaluate(self, columns: Columns, rows: int) -> Result:
        found = self.of.evaluate(columns, rows)
        return Result(pc.invert(found.values), found.failed)


class IsNull(_Unary):
    """``of IS NULL``."""

    def evaluate(self, columns: Columns, rows: int) -> Result:
        found = self.of.evaluate(columns, rows)
        return Result(pc.is_null(found.values), found.failed)


class And(_Binary):
    """``left AND right``, with three-valued logic.  If the left side is false, the right one cannot fail."""

    def evaluate(self, columns: Columns, rows: int) -> Result:
        left, right = self.left.evaluate(columns, rows), self.right.evaluate(columns, rows)
        return Result(pc.and_kleene(left.values, right.values), _either(left, right, _is(left.values, False)))


class Or(_Binary):
    """``left OR right``, with three-valued logic.  If the left side is true, the right one cannot fail."""

    def evaluate(self, columns: Columns, rows: int) -> Result:
        left, right = self.left.evaluate(columns, rows), self.right.evaluate(columns, rows)
        return Result(pc.or_kleene(left.values, right.values), _either(left, right, _is(left.values, True)))


@dataclass(frozen=True, slots=True)
class Compare(_Binary):
    """A comparison of two values of one type: ``=``, ``<``, ``<=`` or ``<=>``.

    As in Spark, NaN equals NaN and is greater than any other number.
    """

    operator: str

    def evaluate(self, columns: Columns, rows: int) -> Result:
        left, right = self.left.evaluate(columns, rows), self.right.evaluate(columns, rows)
        a, b = left.values, right.values
        if self.operator == "<=>":
            both_null = pc.and_(pc.is_null(a), pc.is_null(b))
            return Result(pc.or_(pc.fill_null(self._compare("=", a, b), False), both_null), _both(left, right))
        return Result(self._compare(self.operator, a, b), _either(left, right, pc.is_null(a)))

    def _compare(self, operator: str, a: pa.Array, b: pa.Array) -> pa.Array:
        if not pa.types.is_floating(self.left.type):
            return {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}[operator](a, b)
        a_nan, b_nan = pc.is_nan(a), pc.is_nan(b)
        if operator == "=":
            return pc.or_(pc.equal(a, b), pc.and_(a_nan, b_nan))
        if operator == "<":
            return pc.or_(pc.less(a, b), pc.and_(pc.invert(a_nan), b_nan))
        return pc.or_(pc.less_equal(a, b), b_nan)


@dataclass(frozen=True, slots=True)
class In(_Unary):
    """``of IN (values)``, with the null of a list that has one."""

    values: tuple[Any, ...]

    def evaluate(self, columns: Columns, rows: int) -> Result:
        found = self.of.evaluate(columns, rows)
        known = pa.array([value for value in self.values if value is not None], stored(self.of.type))
        inside = pc.is_in(_one_zero(found.values), value_set=_one_zero(known))
        missing = pc.is_null(found.values)
        if None in self.values:
            missing = pc.or_(missing, pc.invert(inside))
        return Result(pc.if_else(missing, pa.scalar(None, pa.bool_()), inside), found.failed)


@dataclass(frozen=True, slots=True)
class Matches(_Unary):
    """Whether a string has a part that matches a regular expression in the syntax of RE2."""

    pattern: str

    def evaluate(self, columns: Columns, rows: int) -> Result:
        found = self.of.evaluate(columns, rows)
        return Result(pc.match_substring_regex(_text(found.values), self.pattern), found.failed)


@dataclass(frozen=True, slots=True)
class Substring(_Unary):
    """``substring(of, position, length)``, of characters for strings and of bytes for binary values."""

    position: int
    length: int | None

    def evaluate(self, columns: Columns, rows: int) -> Result:
        found = self.of.evaluate(columns, rows)
        start = self.position - 1 if self.position > 0 else self.position
        stop: int | None = None
        if self.length is not None:
            stop = start + max(self.length, 0)
            # Deliberate: a negative start counts from the end, and so does its end, unless that is the end itself.
            stop = None if start < 0 <= stop else stop
        if self.length is not None and self.length <= 0:
            start = stop = 0
        if pa.types.is_binary(self.type):
            # Deliberate: with an end, because without one Arrow (26) fails for each even number of rows.
            end = limits(pa.int32())[1] if stop is None and start >= 0 else stop
            return Result(pc.binary_slice(found.values, start, end), found.failed)
        try:
            values = found.values.cast(pa.string())
        except pa.ArrowInvalid:
            cut = [None if v is None else b"".join(_characters(v)[start:stop]) for v in found.values.to_pylist()]
            return Result(pa.array(cut, pa.binary()), found.failed)
        return Result(_bytes(pc.utf8_slice_codeunits(values, start, stop)), found.failed)


@dataclass(frozen=True, slots=True)
class Exists(_Unary):
    """``exists(of, name -> body)`` for a list of structs, with three-valued logic."""

    name: str
    body: Expression

    @property
    def can_fail(self) -> bool:
        return self.of.can_fail or self.body.can_fail

    @property
    def names(self) -> frozenset[str]:
        return self.of.names | (self.body.names - {self.name})

    def evaluate(self, columns: Columns, rows: int) -> Result:
        found = self.of.evaluate(columns, rows)
        parents, items = pc.list_parent_indices(found.values), pc.list_flatten(found.values)
        inner = {name: columns[name].take(parents) for name in self.body.names - {self.name}}
        tested = self.body.evaluate({**inner, self.name: items}, len(items))
        null = pa.scalar(None, pa.bool_())
        values = pc.if_else(_rows(parents, pc.is_null(tested.values), rows), null, pa.scalar(False))
        values = pc.if_else(_rows(parents, _is(tested.values, True), rows), pa.scalar(True), values)
        failed = None if tested.failed is None else _first_failed(parents, tested.failed, tested.values, rows)
        return Result(pc.if_else(pc.is_null(found.values), null, values), _any(found.failed, failed))


class Widened(_Unary):
    """A number as a wider type, or text under another name.  Never fails."""

    def evaluate(self, columns: Columns, rows: int) -> Result:
        found = self.of.evaluate(columns, rows)
        target = stored(self.type)
        if found.values.type == target:
            return found
        if pa.types.is_decimal(found.values.type) and pa.types.is_floating(target):
            return Result(found.values.cast(pa.string()).cast(target), found.failed)  # as near as the digits allow
        return Result(found.values.cast(target, safe=False), found.failed)


@dataclass(frozen=True, slots=True)
class Cast(_Unary):
    """``CAST`` of text to a number, or of an integer to a smaller one.  Fails, or is null with ``TRY_CAST``."""

    null_if_wrong: bool

    @property
    def can_fail(self) -> bool:
        return not self.null_if_wrong or self.of.can_fail

    def evaluate(self, columns: Columns, rows: int) -> Result:
        found = self.of.evaluate(columns, rows)
        if pa.types.is_integer(self.of.type):
            low, high = limits(self.type)
            right = pc.and_(pc.greater_equal(found.values, low), pc.less_equal(found.values, high))
            values = pc.if_else(right, found.values, pa.scalar(None, found.values.type)).cast(self.type)
        elif pa.types.is_integer(self.type):
            values = _map(_text(found.values), _integer(self.type), self.type)
        else:
            read = _single if pa.types.is_float32(self.type) else _number
            values = _map(_text(found.values), read, self.type)
        wrong = pc.and_(pc.is_null(values), pc.is_valid(found.values))
        return Result(values, found.failed if self.null_if_wrong else _any(found.failed, wrong))


@dataclass(frozen=True, slots=True)
class Arithmetic(_Binary):
    """``+``, ``-``, ``*``, ``/``, ``%`` or ``div`` of two values of one type.

    An overflow and a division by zero fail, as with ``spark.sql.ansi.enabled``, the default since Spark 4.0.
    """

    operator: str

    @property
    def can_fail(self) -> bool:
        own = pa.types.is_integer(self.left.type) or self.operator == "/"
        return own or any(child.can_fail for child in self.children)

    def evaluate(self, columns: Columns, rows: int) -> Result:
        left, right = self.left.evaluate(columns, rows), self.right.evaluate(columns, rows)
        a, b = left.values, right.values
        if self.operator in ("/", "%", "div"):
            before = _either(right, left, pc.is_null(b))  # Spark looks at the divisor first
            zero = pc.equal(b, pa.scalar(0, b.type))
            divisor = pc.if_else(zero, pa.scalar(None, b.type), b)
            failed = pc.and_(pc.fill_null(zero, False), pc.is_valid(a))
            if self.operator == "/":
                return Result(pc.divide(a, divisor), _any(before, failed))
            return self._whole(a, divisor, _any(before, failed))
        before = _either(left, right, pc.is_null(a))
        if pa.types.is_floating(a.type):
            return Result(_FLOATING[self.operator](a, b), before)
        try:
            return Result(_CHECKED[self.operator](a, b), before)
        except pa.ArrowInvalid:  # at least one row overflows: which ones?
            return self._overflowing(a, b, before)

    def _whole(self, a: pa.Array, divisor: pa.Array, failed: Mask | None) -> Result:
        minus_one = pc.fill_null(pc.equal(divisor, pa.scalar(-1, a.type)), False)
        quotient = pc.divide(a, pc.if_else(minus_one, pa.scalar(1, a.type), divisor))
        if self.operator == "%":
            rest = pc.subtract(a, pc.multiply(quotient, divisor))
            return Result(pc.if_else(minus_one, pc.multiply(a, pa.scalar(0, a.type)), rest), failed)
        lowest = pa.scalar(limits(pa.int64())[0], pa.int64())
        overflow = pc.and_(minus_one, pc.fill_null(pc.equal(a, lowest), False))
        return Result(pc.if_else(minus_one, pc.subtract(pa.scalar(0, a.type), a), quotient), _any(failed, overflow))

    def _overflowing(self, a: pa.Array, b: pa.Array, before: Mask | None) -> Result:
        wide = pa.decimal256(19)
        exact = _FLOATING[self.operator](a.cast(wide), b.cast(wide))
        low, high = (pa.scalar(limit, pa.int64()).cast(exact.type) for limit in limits(a.type))
        inside = pc.and_(pc.greater_equal(exact, low), pc.less_equal(exact, high))
        values = pc.if_else(inside, exact, pa.scalar(None, exact.type)).cast(pa.int64()).cast(a.type)
        return Result(values, _any(before, pc.fill_null(pc.invert(inside), False)))


_FLOATING = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}


def stored(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are evaluated: strings as bytes."""
    return pa.binary() if pa.types.is_string(kind) else kind


def _bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.binary()) if pa.types.is_string(values.type) else values


def _text(values: pa.Array) -> pa.Array:
    """Return bytes as strings.  What is not valid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        found = (None if value is None else _SURROGATE.sub(_REPLACED, value) for value in values.to_pylist())
        return pa.array([None if value is None else value.decode(errors="replace") for value in found], pa.string())


def _one_zero(values: pa.Array) -> pa.Array:
    """Return floating-point numbers with 0.0 for -0.0, which Arrow's sets tell apart."""
    return pc.add(values, pa.scalar(0, values.type)) if pa.types.is_floating(values.type) else values


def _characters(value: bytes) -> list[bytes]:
    """Return the characters of bytes that may be no valid UTF-8, as Spark counts them: by the first byte of each."""
    found, at = [], 0
    while at < len(value):
        first = value[at]
        size = 2 if 0xC2 <= first < 0xE0 else 3 if 0xE0 <= first < 0xF0 else 4 if 0xF0 <= first < 0xF5 else 1
        found.append(value[at : at + size])
        at += size
    return found


def _is(values: pa.Array, wanted: bool) -> Mask:
    return pc.fill_null(values if wanted else pc.invert(values), False)


def _any(a: Mask | None, b: Mask | None) -> Mask | None:
    return b if a is None else a if b is None else pc.or_(a, b)


def _both(left: Result, right: Result) -> Mask | None:
    return _any(left.failed, right.failed)


def _either(left: Result, right: Result, left_decides: Mask) -> Mask | None:
    """Return where two values fail.  Spark does not look at the right one where the left one decides the result."""
    if right.failed is None:
        return left.failed
    return _any(left.failed, pc.and_(right.failed, pc.invert(left_decides)))


def _first_failed(parents: pa.Array, failed: Mask, values: Mask, rows: int) -> Mask:
    """Return which rows have an item that fails, and no earlier one that is true: Spark stops at that one."""
    if not pc.any(failed).as_py():
        return pa.repeat(pa.scalar(False), rows)
    ends: dict[int, bool] = {}
    items = zip(parents.to_pylist(), failed.to_pylist(), _is(values, True).to_pylist(), strict=True)
    for parent, fails, true in items:
        if fails or true:
            ends.setdefault(parent, fails)
    return pa.array([ends.get(row, False) for row in range(rows)], pa.bool_())


def _rows(parents: pa.Array, mask: Mask, rows: int) -> Mask:
    """Return which rows have at least one marked item."""
    return pc.is_in(pa.array(range(rows), parents.type), value_set=parents.filter(mask))


_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")  # one character for Java, and more for Python
_REPLACED = "\ufffd".encode()
_BLANK_OF_JAVA = "".join(map(chr, range(33)))  # what Java trims before it reads a floating-point number
_BLANK = _BLANK_OF_JAVA + "\x7f"  # what Spark trims before it reads an integer
# Deliberate: possessive (++), because texts are written by others.  Else a long one would take hours.
_INTEGER = re.compile(r"([+-]?)([0-9]++)")
_FLOAT = re.compile(r"[+-]?([0-9]++(\.[0-9]*+)?|\.[0-9]++)([eE][+-]?[0-9]++)?[dDfF]?")
_HEX_DIGITS = r"(?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)"
_HEX_FLOAT = re.compile(rf"([+-]?0[xX]{_HEX_DIGITS}[pP][+-]?[0-9]++)[dDfF]?")
_WORDS = {"inf": "inf", "infinity": "inf", "nan": "nan"}


def _integer(kind: pa.DataType) -> Callable[[str], int | None]:
    low, high = limits(kind)

    def read(text: str) -> int | None:
        found = _INTEGER.fullmatch(text.strip(_BLANK))
        digits = "" if found is None else found[2].lstrip("0") or "0"
        if found is None or len(digits) > 19:  # Deliberate: Python takes long for a number of many digits
            return None
        number = int(found[1] + digits)
        return number if low <= number <= high else None

    return read


def _number(text: str) -> float | None:
    text = text.strip(_BLANK_OF_JAVA)
    if _FLOAT.fullmatch(text):
        return float(text.rstrip("dDfF"))
    if hexadecimal := _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return float("-inf" if text[0] == "-" else "inf")
    sign, word = (text[:1], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if sign and word == "NaN":  # Java reads it with a sign, and Spark reads it without one in any case
        return float("nan")
    found = _WORDS.get(word.lower())
    return None if found is None or (found == "nan" and sign) else float(sign + found)


def _single(text: str) -> float | None:
    number, digits = _number(text), text.strip(_BLANK_OF_JAVA)
    return number if number is None or not _FLOAT.fullmatch(digits) else for_single(number, digits.rstrip("dDfF"))


def _map(values: pa.Array, read: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """Convert texts one by one.  Equal texts are converted once."""
    coded = values.dictionary_encode()
    found = pa.array([None if text is None else read(text) for text in coded.dictionary.to_pylist()], kind)
    return found.take(coded.indices)
