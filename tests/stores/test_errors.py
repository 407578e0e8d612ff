"""`refusal` recognizes the database errors that rows have caused."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.adapt import Transformer

from pyspark_kafka_group.stores.errors import refusal


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ("22P05", "UntranslatableCharacter"),
        ("23502", "NotNullViolation"),
        ("44000", "WithCheckOptionViolation"),
        ("54000", "ProgramLimitExceeded"),  # a row that is too big, or a key that is too long for its index
        ("54001", "StatementTooComplex"),  # a document that is too deep
        ("P0001", "RaiseException"),
    ],
)
def test_an_error_of_rows_is_named(state: str, name: str) -> None:
    problem = psycopg.errors.lookup(state)("detail: secret")
    assert refusal(problem) == f"{name} ({state})"
    assert refusal(sa.exc.DBAPIError("INSERT", {}, problem)) == f"{name} ({state})"


@pytest.mark.parametrize("state", ["08006", "40P01", "42P01", "42501", "53100", "54011", "57014"])
def test_an_error_of_the_target_is_none_of_rows(state: str) -> None:
    assert refusal(psycopg.errors.lookup(state)("")) is None


def test_what_the_driver_refuses_is_a_matter_of_rows() -> None:
    """Psycopg does not send such a text, so there is no error code from a server."""
    with pytest.raises(psycopg.DataError) as found:
        Transformer().as_literal("secret\0")
    assert refusal(sa.exc.DBAPIError("INSERT", {}, found.value)) == "DataError (no SQLSTATE)"


def test_other_errors_of_the_driver_are_none_of_rows() -> None:
    assert refusal(psycopg.OperationalError("the connection is closed")) is None
    assert refusal(psycopg.ProgrammingError("a placeholder is missing")) is None
    of_the_function = type("DataError", (Exception,), {"__module__": "pandas.errors"})
    assert refusal(of_the_function()) is None
