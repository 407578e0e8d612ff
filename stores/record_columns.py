"""The columns with which a row names its record.  Each store needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_COLUMNS = {"topic": "string", "partition": "int", "offset": "bigint"}
"""The columns that identify the record of a row, and their types in Kafka sources."""


def check_columns(store: str, batch: DataFrame, remark: str = "") -> None:
    """Check that the rows of a batch can name their records.

    Parameters
    ----------
    store : str
        The class that needs the columns.
    batch : DataFrame
        The batch.
    remark : str
        A last sentence for the error.

    Raises
    ------
    ConfigurationError
        If a column is missing, or has another type.
    """
    found = dict(batch.dtypes)
    wrong = [name for name, needed in RECORD_COLUMNS.items() if found.get(name) != needed]
    if wrong:
        columns = ", ".join(f"{name} {needed}" for name, needed in RECORD_COLUMNS.items())
        raise ConfigurationError(
            f"{store}: the batch needs the columns {columns} of the source. Missing or of another type: "
            f"{', '.join(wrong)}. Keep them in every select.{remark}"
        )
