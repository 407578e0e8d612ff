"""Tells which errors of a write are a matter of its rows, and names them without data.  In executors' Python.

The details of PostgreSQL's errors show the data ("Failing row contains ..."), and others read the logs.  So an error
has names only: those of the condition, the table, the column and the constraint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark_kafka_group.stores.errors import CopyError, RefusedValueError

# Data exceptions, constraints, the condition of a view, what a trigger raises, and values beyond a limit: a row that is
# too big for its table, a key that is too long for its index, or a document that is too deep.
_OF_ROWS = re.compile(r"2[23]...|44000|P0001|5400[01]")

# PostgreSQL names the column of a COPY only in its context, before the value.
_COPY_COLUMN = re.compile(r"^COPY [^\n]*?, line \d+, column ([^\n:]+)", re.MULTILINE)

# sqlite3's names of primary result codes: CONSTRAINT, MISMATCH, TOOBIG.
_SQLITE_OF_ROWS = {19, 20, 18}


def refusal(error: Exception) -> str | None:
    """Return why the target does not take some rows; None if the error is not a matter of rows."""
    if isinstance(error, RefusedValueError):
        return error.message.rstrip(".")
    if isinstance(error, CopyError):
        return error.message.rstrip(".") if _OF_ROWS.fullmatch(error.sqlstate) else None
    driver = getattr(error, "orig", None) or error  # SQLAlchemy's errors wrap those of the driver
    state, code = getattr(driver, "sqlstate", None), getattr(driver, "sqlite_errorcode", None)
    if state is not None and _OF_ROWS.fullmatch(state):
        return named(driver)
    if code is not None and code & 0xFF in _SQLITE_OF_ROWS:
        return str(driver)  # SQLite names tables and columns, and no values
    # psycopg itself refuses a zero byte in a text, before the server sees it.
    kind = type(driver)
    return named(driver) if (kind.__module__, kind.__name__) == ("psycopg", "DataError") else None


def named(error: BaseException, columns: Sequence[str] = ()) -> str:
    """Return the names that an error of psycopg has, without data.

    Parameters
    ----------
    error : BaseException
        The error.
    columns : sequence of str
        The columns that were copied.  The context may have one of them, beside data.
    """
    diag = getattr(error, "diag", None)
    found = [f"{type(error).__name__} ({getattr(error, 'sqlstate', None) or 'no SQLSTATE'})"]
    for what in ("table", "column", "constraint"):
        name = getattr(diag, f"{what}_name", None)
        if name:
            found.append(f"{what} {name}")
    if getattr(diag, "column_name", None) is None:
        copied = _COPY_COLUMN.findall(getattr(diag, "context", None) or "")
        found += [f"column {name}" for name in copied[:1] if name in columns]
    return ", ".join(found)
