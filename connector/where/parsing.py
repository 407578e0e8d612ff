"""Parses a condition on the driver, checks it, and decides the types as Spark does.

`sqlglot` parses Spark's SQL.  Only a small part of it is accepted; every other part is an error that names the part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_group.offsets.errors import MissingDependencyError, OptionError
from pyspark_kafka_group.where import expressions as e
from pyspark_kafka_group.where.constants import (
    UnsupportedError,
    is_inside,
    of_decimal,
    of_number,
    of_time,
    with_own_digits,
)
from pyspark_kafka_group.where.patterns import PatternError, of_like, of_rlike
from pyspark_kafka_group.where.types import (
    BOOL,
    NULL,
    common_type,
    is_comparable,
    is_number,
    is_text,
    is_wider,
    name_of,
)

Tree: TypeAlias = Any
"""A node of sqlglot's."""

MAX_LENGTH = 10_000
"""The longest condition, in characters."""

_MAX_DEPTH = 250
"""How deep a condition may be.  Executors need three times as many calls, and Python allows 1,000."""

SUPPORTED = (
    "Use comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, LIKE, RLIKE, CAST and TRY_CAST of text to a number, "
    "substring, exists on headers, and arithmetic. Filter by anything else with df.where(...)."
)


def parse_condition(text: str, schema: Mapping[str, pa.DataType]) -> e.Expression:
    """Return the checked condition of a text.

    Parameters
    ----------
    text : str
        The option ``where``, in Spark's SQL.
    schema : mapping of str to pyarrow.DataType
        The types of the columns.

    Raises
    ------
    OptionError
        If the condition cannot be parsed, or if a part of it is not supported.
    MissingDependencyError
        If ``sqlglot`` is not installed.
    """
    if len(text) > MAX_LENGTH:
        raise OptionError("where", f"it has {len(text)} characters.", f"Write at most {MAX_LENGTH}.")
    if "${" in text:
        raise OptionError(
            "where", "it has ${, where Spark's SQL would put in a variable.", "Put the value in yourself."
        )
    too_deep = OptionError("where", "it is nested too deeply.", "Write IN for many OR, or fewer parentheses.")
    try:
        found = _Typing(schema).condition(_tree(text))
        depth = _depth(found)
    except RecursionError:
        raise too_deep from None
    except UnsupportedError as problem:
        raise OptionError("where", f"{problem}.", SUPPORTED) from None
    if depth > _MAX_DEPTH:
        raise too_deep
    return found


def _depth(expression: e.Expression) -> int:
    inside = (*expression.children, *([expression.body] if isinstance(expression, e.Exists) else []))
    return 1 + max(map(_depth, inside), default=0)


def _tree(text: str) -> Tree:
    try:
        import sqlglot
    except ModuleNotFoundError:
        import sys

        raise MissingDependencyError("sqlglot", sys.executable, extra="where") from None
    from sqlglot.errors import SqlglotError

    # Deliberate: by what it does.  An environment may have an older one than the extra asks for.  Such a one reads some
    # escapes in texts otherwise, and ignores SYMMETRIC and COLLATE.
    if sqlglot.parse_one(r"'\d'", read="spark").name != "d":
        raise OptionError(
            "where",
            "the installed sqlglot is too old: it reads texts otherwise than Spark.",
            "Install sqlglot 30.22 or newer on the driver.",
        )
    try:
        trees = sqlglot.parse(text, read="spark")
    except SqlglotError as problem:
        where = getattr(problem, "errors", None)
        near = f" near {where[0]['highlight']!r}" if where and where[0].get("highlight") else ""
        raise OptionError("where", f"it is not a condition in Spark's SQL{near}.", "Correct it.") from None
    if len(trees) != 1 or trees[0] is None:
        raise OptionError("where", "it is not one condition.", "Write one, such as key = 'eu'.")
    return trees[0]


_CASTS: dict[str, pa.DataType] = {
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
}


class _Typing:
    """Gives a parsed condition its types."""

    def __init__(self, schema: Mapping[str, pa.DataType]) -> None:
        self._schema = dict(schema)

    def condition(self, tree: Tree) -> e.Expression:
        typed = self.of(tree)
        return self._boolean(typed, tree)

    def of(self, tree: Tree) -> e.Expression:
        """Return the typed expression of a tree."""
        kind = type(tree).__name__
        # Deliberate: an argument that is not expected, such as a modifier of a later version of sqlglot, is refused.
        known = {"this", "expression", *_ARGUMENTS.get(kind, ())}
        if kind not in _BUILDERS or {name for name, value in tree.args.items() if value} - known:
            raise UnsupportedError(f"{_sql(tree)} is not supported")
        return _BUILDERS[kind](self, tree)

    def _boolean(self, typed: e.Expression, tree: Tree) -> e.Expression:
        if typed.type == NULL:
            return e.Literal(BOOL, None)
        if typed.type != BOOL:
            raise UnsupportedError(f"{_sql(tree)} is {name_of(typed.type)}, not a condition")
        return typed

    def logic(self, tree: Tree) -> e.Expression:
        sides = [self._boolean(self.of(side), side) for side in (tree.left, tree.right)]
        return (e.And if type(tree).__name__ == "And" else e.Or)(BOOL, *sides)

    def negated(self, tree: Tree) -> e.Expression:
        return e.Not(BOOL, self._boolean(self.of(tree.this), tree.this))

    def paren(self, tree: Tree) -> e.Expression:
        return self.of(tree.this)

    def column(self, tree: Tree) -> e.Expression:
        return self._field([part.name for part in tree.parts], tree)

    def dot(self, tree: Tree) -> e.Expression:
        path: list[str] = []
        part = tree
        while type(part).__name__ == "Dot" and type(part.expression).__name__ == "Identifier":
            path.insert(0, part.expression.name)
            part = part.this
        if type(part).__name__ not in ("Identifier", "Column"):
            raise UnsupportedError(f"{_sql(tree)} is not supported")
        first = [part.name] if type(part).__name__ == "Identifier" else [one.name for one in part.parts]
        return self._field(first + path, tree)

    def variable(self, tree: Tree) -> e.Expression:
        return self._field([tree.name], tree)

    def _field(self, path: list[str], tree: Tree) -> e.Expression:
        kinds: Mapping[str, pa.DataType] = self._schema
        names: list[str] = []
        kind = NULL
        for name in path:
            found = [known for known in kinds if known.lower() == name.lower()]
            if len(found) != 1:
                problem = "is ambiguous" if found else "does not exist"
                raise UnsupportedError(
                    f"{_sql(tree)} {problem}: there is {', '.join(sorted(kinds)) or 'no field in it'}"
                )
            names.append(found[0])
            kind = kinds[found[0]]
            kinds = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
        return e.Column(kind, tuple(names))

    def literal(self, tree: Tree) -> e.Expression:
        if tree.is_string:
            return e.Literal(pa.string(), tree.this.encode())
        return of_number(tree.this)

    def concatenated(self, tree: Tree) -> e.Expression:
        # Texts side by side, too: Spark reads 'a''b' as one text with a quote, and 'a' 'b' as ab.
        of_texts = all(type(part).__name__ == "Literal" and part.is_string for part in tree.expressions)
        hint = ": write one text, and a quote in it as \\'" if of_texts else ""
        raise UnsupportedError(f"{_sql(tree)} is not supported{hint}")

    def hexadecimal(self, tree: Tree) -> e.Expression:
        digits = tree.this
        return e.Literal(pa.binary(), bytes.fromhex("0" * (len(digits) % 2) + digits))

    def truth(self, tree: Tree) -> e.Expression:
        return e.Literal(BOOL, tree.this)

    def null(self, tree: Tree) -> e.Expression:
        return e.Literal(NULL, None)

    def comparison(self, tree: Tree) -> e.Expression:
        # Deliberate: sqlglot (30.30) binds < stronger than =, and Spark binds both alike.  sqlglot also gives the right
        # side of <=> parentheses, which the user may not have written.
        of_null = type(tree).__name__.startswith("NullSafe")
        right = tree.right.this if of_null and type(tree.right).__name__ == "Paren" else tree.right
        if {type(tree.left).__name__, type(right).__name__} & _CHAINED:
            raise UnsupportedError(f"{_sql(tree)} compares twice without parentheses")
        return self._compared(_COMPARISONS[type(tree).__name__], self.of(tree.left), self.of(tree.right), tree)

    def _compared(self, operator: str, left: e.Expression, right: e.Expression, tree: Tree) -> e.Expression:
        if operator in (">", ">="):
            # Deliberate: not by exchanging the sides, because the left one may decide that the right one cannot fail.
            inner = self._compared("<=" if operator == ">" else "<", left, right, tree)
            return e.Not(BOOL, inner)
        if operator in ("<>", "is distinct"):
            return e.Not(BOOL, self._compared("=" if operator == "<>" else "<=>", left, right, tree))
        return e.Compare(BOOL, *self._alike(left, right, tree), operator)

    def _alike(self, left: e.Expression, right: e.Expression, tree: Tree) -> tuple[e.Expression, e.Expression]:
        """Return two values in the type in which Spark compares them."""
        left, right = with_own_digits(left, right), with_own_digits(right, left)
        kind = common_type(left.type, right.type)
        if kind is None:
            raise self._different(left.type, right.type, tree)
        return _widened(left, kind), _widened(right, kind)

    def _different(self, left: pa.DataType, right: pa.DataType, tree: Tree) -> UnsupportedError:
        what = f"{_sql(tree)} compares {name_of(left)} with {name_of(right)}, which is not supported"
        if not (is_comparable(left) and is_comparable(right)):
            return UnsupportedError(f"{what}: compare their fields")
        times = pa.types.is_temporal(left) and pa.types.is_temporal(right)  # no cast makes one of the other
        return UnsupportedError(what if times else f"{what}: cast one")

    def inside(self, tree: Tree) -> e.Expression:
        listed = tree.expressions
        if not listed:
            raise UnsupportedError(f"{_sql(tree)} has no list of constants")
        of, values = self.of(tree.this), [self.of(one) for one in listed]
        kind = of.type
        decimal = next((value for value in (of, *values) if pa.types.is_decimal(value.type)), of)
        values = [with_own_digits(value, decimal) for value in values]
        for value, one in zip(values, listed, strict=True):
            if not isinstance(value, e.Literal):
                raise UnsupportedError(f"{_sql(one)} in a list is not a constant")
            found = common_type(kind, value.type)
            if found is None:
                raise self._different(kind, value.type, tree)
            kind = found
        constants = [_widened(value, kind) for value in values]
        return e.In(BOOL, _widened(of, kind), tuple(one.value for one in constants if isinstance(one, e.Literal)))

    def between(self, tree: Tree) -> e.Expression:
        of, low, high = (self.of(tree.args[name]) for name in ("this", "low", "high"))
        return e.And(BOOL, self._compared(">=", of, low, tree), self._compared("<=", of, high, tree))

    def is_(self, tree: Tree) -> e.Expression:
        of = self.of(tree.this)
        match self.of(tree.expression):
            case e.Literal(type=kind) if kind == NULL:
                return e.IsNull(BOOL, of)
            case e.Literal(value=bool()) as wanted:
                return e.Compare(BOOL, self._boolean(of, tree.this), wanted, "<=>")
        raise UnsupportedError(f"{_sql(tree)} is not supported")

    def like(self, tree: Tree, escape: str = "\\") -> e.Expression:
        of = self.of(tree.this)
        pattern = self._text_of(tree.expression)
        found = self._matches(of, lambda: of_like(pattern, escape), tree)
        return e.Not(BOOL, found) if tree.args.get("negate") else found

    def escaped(self, tree: Tree) -> e.Expression:
        escape = self._text_of(tree.expression)
        if type(tree.this).__name__ != "Like" or len(escape) != 1:
            raise UnsupportedError(f"{_sql(tree)} is not supported")
        return self.like(tree.this, escape)

    def rlike(self, tree: Tree) -> e.Expression:
        pattern = self._text_of(tree.expression)
        return self._matches(self.of(tree.this), lambda: of_rlike(pattern), tree)

    def _matches(self, of: e.Expression, translate: Callable[[], str], tree: Tree) -> e.Expression:
        if not is_text(of.type):
            raise UnsupportedError(f"{_sql(tree)} needs text, not {name_of(of.type)}")
        try:
            pattern = translate()
            pc.match_substring_regex(pa.array([""]), pattern)
        except PatternError as problem:
            raise UnsupportedError(f"{_sql(tree)}: {problem}") from None
        except pa.ArrowInvalid:
            raise UnsupportedError(f"{_sql(tree)}: the pattern is not valid, or too large") from None
        return e.Matches(BOOL, of, pattern)

    def _text_of(self, tree: Tree) -> str:
        found = self.of(tree)
        if not isinstance(found, e.Literal) or found.type != pa.string():
            raise UnsupportedError(f"{_sql(tree)} is not a constant text")
        return str(found.value, "utf-8")

    def substring(self, tree: Tree) -> e.Expression:
        of = self.of(tree.this)
        if not is_text(of.type):
            raise UnsupportedError(f"{_sql(tree)} needs text, not {name_of(of.type)}")
        numbers = [self.of(part) for name in ("start", "length") if (part := tree.args.get(name)) is not None]
        values = [one.value for one in numbers if isinstance(one, e.Literal) and one.type == pa.int32()]
        if len(values) != len(numbers) or not values:
            raise UnsupportedError(f"{_sql(tree)} needs constant positions")
        return e.Substring(of.type, of, values[0], values[1] if len(values) > 1 else None)

    def exists(self, tree: Tree) -> e.Expression:
        body = tree.args.get("expression")
        of = self.of(tree.this)
        if type(body).__name__ != "Lambda" or len(body.expressions) != 1 or not pa.types.is_list(of.type):
            raise UnsupportedError(f"{_sql(tree)} is not exists(headers, h -> ...)")
        name = body.expressions[0].name
        if name in self._schema:
            raise UnsupportedError(f"{_sql(tree)}: {name} is a column. Give the variable another name")
        inner = _Typing({**self._schema, name: of.type.value_type})
        return e.Exists(BOOL, of, name, inner.condition(body.this))

    def cast(self, tree: Tree) -> e.Expression:
        to = tree.args["to"]
        # sqlglot parses CAST of Spark as TryCast, too.
        null_if_wrong = type(tree).__name__ == "TryCast" and bool(tree.args.get("safe"))
        constant = self._dated(tree.this, to) or self._exact(tree.this, to)
        if constant is not None:
            return constant
        of, kind = self.of(tree.this), _CASTS.get(to.this.name if to.this is not None else "")
        # Deliberate: a length or a collation, for example, would have another meaning.
        if kind is None or {name for name, value in to.args.items() if value} - {"this", "nested"}:
            raise UnsupportedError(f"a cast to {_sql(to)} is not supported")
        if of.type == NULL:
            return e.Literal(kind, None)
        if of.type == kind or (is_text(of.type) and is_text(kind)) or is_wider(of.type, kind):
            return _widened(of, kind)
        narrow = pa.types.is_integer(of.type) and pa.types.is_integer(kind)
        number = of.type == pa.string() and (pa.types.is_integer(kind) or pa.types.is_floating(kind))
        if narrow or number:
            if isinstance(of, e.Literal) and narrow and is_inside(of.value, kind):  # 10Y: of a small integer
                return e.Literal(kind, of.value)
            return e.Cast(kind, of, null_if_wrong)
        if of.type == pa.binary():
            raise UnsupportedError(f"{_sql(tree)} casts bytes: write CAST(CAST(... AS STRING) AS {name_of(kind)})")
        raise UnsupportedError(f"a cast from {name_of(of.type)} to {name_of(kind)} is not supported")

    def _dated(self, tree: Tree, to: Tree) -> e.Expression | None:
        """Return a constant of DATE or TIMESTAMP."""
        target = to.this.name
        if target not in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"):
            return None
        found = self.of(tree)
        if not isinstance(found, e.Literal) or found.type != pa.string():
            raise UnsupportedError(f"{_sql(tree)} cannot be cast to {target}: only constants can")
        return of_time(str(found.value, "utf-8"), is_date=target == "DATE")

    def _exact(self, tree: Tree, to: Tree) -> e.Expression | None:
        """Return a constant with the suffix BD, which sqlglot turns into a cast of its digits."""
        if to.this.name != "DECIMAL" or not to.expressions or type(tree).__name__ != "Literal" or not tree.is_string:
            return None
        found = of_decimal(tree.this)
        # Deliberate: a cast that a user has written is refused if it may round the number, or is too narrow for it.
        digits = [str(found.type.precision), str(found.type.scale)]
        return found if [part.name for part in to.expressions] == digits else None

    def sign(self, tree: Tree) -> e.Expression:
        inner, suffix = tree.this, None
        if type(inner).__name__ == "TryCast" and type(inner.this).__name__ == "Literal":  # 128Y
            inner, suffix = inner.this, _CASTS.get(inner.args["to"].this.name)
        if type(inner).__name__ == "Literal" and not inner.is_string:
            number = of_number(f"-{inner.this}")
            if suffix is None or number.type == suffix:
                return number
            if pa.types.is_integer(suffix) and is_inside(number.value, suffix):
                return e.Literal(suffix, number.value)
        of = self.of(tree.this)
        if isinstance(of, e.Literal) and of.value is not None and is_number(of.type):
            lowest = pa.types.is_integer(of.type) and not is_inside(-of.value, of.type)
            if not lowest:
                return e.Literal(of.type, -of.value)
        if pa.types.is_floating(of.type):
            return e.Arithmetic(of.type, e.Literal(of.type, -1.0), of, "*")
        if not pa.types.is_integer(of.type):
            raise UnsupportedError(f"{_sql(tree)} is not supported for {name_of(of.type)}")
        return e.Arithmetic(of.type, e.Literal(of.type, 0), of, "-")

    def arithmetic(self, tree: Tree) -> e.Expression:
        operator = _ARITHMETIC[type(tree).__name__]
        left, right = self.of(tree.left), self.of(tree.right)
        kind = common_type(left.type, right.type)
        if kind is None or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            hint = ": write a number with D, such as 1.5D" if is_number(left.type) and is_number(right.type) else ""
            raise UnsupportedError(
                f"{_sql(tree)} is not supported for {name_of(left.type)} and {name_of(right.type)}{hint}"
            )
        if operator == "/":
            kind = pa.float64()
        if operator in ("%", "div") and not pa.types.is_integer(kind):
            raise UnsupportedError(f"{_sql(tree)} is only supported for integers")
        if operator == "div":
            kind = pa.int64()
        return e.Arithmetic(kind, _widened(left, kind), _widened(right, kind), operator)


def _sql(tree: Tree) -> str:
    """Return the part of the condition, short."""
    text = str(tree.sql(dialect="spark"))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _widened(of: e.Expression, kind: pa.DataType) -> e.Expression:
    if of.type == kind:
        return of
    if of.type == NULL:
        return e.Literal(kind, None)
    wider = e.Widened(kind, of)
    return e.Literal(kind, wider.evaluate({}, 1).values[0].as_py()) if isinstance(of, e.Literal) else wider


_COMPARISONS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_COMPARISONS |= {"NullSafeEQ": "<=>", "NullSafeNEQ": "is distinct"}
_CHAINED = {*_COMPARISONS, "Is", "Not", "In", "Between", "Like", "Escape", "RegexpLike"}
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "IntDiv": "div"}

_ARGUMENTS = {
    "Column": ("table", "db", "catalog"),
    "Identifier": ("quoted",),
    "Literal": ("is_string",),
    "HexString": ("is_integer",),
    "In": ("expressions",),
    "Between": ("low", "high"),
    "Like": ("negate",),
    "Substring": ("start", "length"),
    "Concat": ("expressions", "safe", "coalesce"),
    "Cast": ("to",),
    "TryCast": ("to", "safe"),
    "Div": ("typed", "safe"),
}
"""The arguments that a node may have, beside its operands."""

_BUILDERS: dict[str, Callable[[_Typing, Any], e.Expression]] = {
    "And": _Typing.logic,
    "Or": _Typing.logic,
    "Not": _Typing.negated,
    "Paren": _Typing.paren,
    "Column": _Typing.column,
    "Dot": _Typing.dot,
    "Identifier": _Typing.variable,
    "Literal": _Typing.literal,
    "HexString": _Typing.hexadecimal,
    "Boolean": _Typing.truth,
    "Null": _Typing.null,
    "In": _Typing.inside,
    "Between": _Typing.between,
    "Is": _Typing.is_,
    "Like": _Typing.like,
    "Escape": _Typing.escaped,
    "RegexpLike": _Typing.rlike,
    "Substring": _Typing.substring,
    "Concat": _Typing.concatenated,
    "Exists": _Typing.exists,
    "Cast": _Typing.cast,
    "TryCast": _Typing.cast,
    "Neg": _Typing.sign,
    **dict.fromkeys(_COMPARISONS, _Typing.comparison),
    **dict.fromkeys(_ARITHMETIC, _Typing.arithmetic),
}
