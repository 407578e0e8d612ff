"""An imitated copy of PySpark, under the name that Databricks' engine gives its own.

The copy has the code of the installed modules, and other classes.  Databricks' workers call a source with its classes,
and ask `isinstance` with them.  ``python -m tests.connector.engine_copy`` uses the source so, and prints a JSON object
with what the engine sees.
"""

from __future__ import annotations

import importlib.util
import io
import json
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any

ENGINE = "_engine_pyspark"
_IMPORT = re.compile(rb"^(\s*(?:from|import)\s+)pyspark\b", re.MULTILINE)


class _Loader(SourceFileLoader):
    """Loads a module of PySpark so that it imports the copy."""

    def get_data(self, path: str) -> bytes:
        data = super().get_data(path)
        return _IMPORT.sub(rb"\1" + ENGINE.encode(), data) if path.endswith(".py") else b""

    def path_stats(self, path: str) -> Any:
        raise OSError  # never from a file with compiled code


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != ENGINE and not name.startswith(f"{ENGINE}."):
            return None
        found = importlib.util.find_spec(name.replace(ENGINE, "pyspark", 1))
        if found is None or found.origin is None:
            return None
        return importlib.util.spec_from_file_location(
            name,
            found.origin,
            loader=_Loader(name, found.origin),
            submodule_search_locations=found.submodule_search_locations,
        )


class Query:
    """Records what the reader asks of the query."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def fix_target(self) -> None:
        self.asked.append("target")

    def latest_offset(self, start: Any, rows: int | None) -> Any:
        self.asked.append(rows)
        return start


def main() -> None:
    """Use the source like the engine."""
    sys.meta_path.insert(0, _Finder())
    runner: Any = importlib.import_module(f"{ENGINE}.sql.streaming.python_streaming_source_runner")
    types: Any = importlib.import_module(f"{ENGINE}.sql.types")
    limits: Any = importlib.import_module(f"{ENGINE}.sql.streaming.datasource")

    from pyspark.sql.types import StructType

    from pyspark_kafka_group.offsets.errors import TriggerError
    from pyspark_kafka_group.source import KafkaGroupDataSource

    def engine_schema(of: StructType) -> Any:
        found = types.StructType.fromJson(of.jsonValue())
        assert not isinstance(found, StructType)
        return found

    given = {"kafka.bootstrap.servers": "x:1", "kafka.group.id": "g", "subscribe": "t", "maxOffsetsPerTrigger": "7"}
    typed = {**given, "valueFormat": "json", "valueSchema": "id BIGINT, tags ARRAY<STRING>"}
    source = KafkaGroupDataSource(typed)
    reader: Any = source.streamReader(engine_schema(source.schema()))
    query = Query()

    @contextmanager
    def called() -> Iterator[Query]:
        yield query

    reader._called = called
    out = io.BytesIO()
    runner.check_support_func(reader, out)
    runner.get_default_read_limit_func(reader, out)
    runner.prepare_for_trigger_available_now_func(reader, out)
    for limit in (limits.ReadMaxRows(7), limits.ReadMinRows(3)):
        reader.latestOffset({}, limit)
    try:
        reader.latestOffset({}, limits.ReadAllAvailable())
    except TriggerError:
        query.asked.append("refused")
    (flags, length), answers = struct.unpack("!ii", out.getvalue()[:8]), out.getvalue()[8:]
    columns = types.StructType().add("value", types.StringType()).add("headers", engine_schema_of_headers(types))
    sink = KafkaGroupDataSource({"kafka.bootstrap.servers": "x:1", "topic": "t"})
    print(
        json.dumps(
            {
                "flags": flags,
                "default limit": json.loads(answers[:length]),
                "asked": query.asked,
                "batch read": type(source.reader(engine_schema(source.schema()))).__name__,
                "writer": type(sink.writer(columns, False)).__name__,
                "stream writer": type(sink.streamWriter(columns, False)).__name__,
            }
        )
    )


def engine_schema_of_headers(types: Any) -> Any:
    """Return the type of the column headers in the engine's classes."""
    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    return types.ArrayType(header)


if __name__ == "__main__":
    main()
