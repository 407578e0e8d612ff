"""Faults in landing: what a table lacks, how its files are arranged, and which files are removed."""

from __future__ import annotations

from tests.faults.fault import Fault

_MISSING, _LANDING = "connector/landing/missing.py", "connector/landing/landing.py"
_FILES, _LAYOUT = "connector/landing/files.py", "connector/landing/layout.py"
_DELTA, _ICEBERG = "connector/landing/delta_files.py", "connector/landing/iceberg_files.py"
_TEST = "tests/connector/landing/test_landing.py"
_TEST_ALL, _TEST_MISSING = "tests/connector/landing", "tests/connector/landing/test_missing.py"
_TEST_TYPES = "tests/connector/landing/test_types.py"
_TEST_PARTITIONS = "tests/connector/landing/test_partitions.py"

FAULTS = [
    Fault(
        "the record before the stored offset is landed again",
        _MISSING,
        "OffsetSpan(next_offset, max(next_offset, span.until))",
        "OffsetSpan(next_offset - 1, max(next_offset, span.until))",
        _TEST_MISSING,
    ),
    Fault(
        "a table that is one record behind its group is not noticed",
        _MISSING,
        "stored < r.finished",
        "stored + 1 < r.finished",
        _TEST_MISSING,
    ),
    Fault(
        "a task's result that is there twice is committed",
        _MISSING,
        "    return at != span.until",
        "    return at < span.until",
        _TEST_MISSING,
    ),
    Fault(
        "the last record of a file is not looked at",
        _MISSING,
        "part.start <= first and last < part.until",
        "part.start <= first and last <= part.until",
        _TEST_MISSING,
    ),
    Fault(
        "the files of records that the table had are left",
        _LANDING,
        "orphans += self._remove(written - this.unknown - {file.path for file in kept})",
        "orphans += 0",
        _TEST,
    ),
    Fault(
        "files that a commit may have are removed after an error",
        _LANDING,
        "                self._remove(written - this.unknown)\n",
        "                self._remove(written)\n",
        _TEST_ALL,
    ),
    Fault(
        "files that a commit needs and that are gone are committed",
        _LANDING,
        "if absent := place.absent([file.path for file in every]):",
        "if absent := place.absent([]):",
        _TEST,
    ),
    Fault(
        "a null is landed in a column that takes none",
        _LANDING,
        "if count and not look.columns.get(name)",
        "if count and look.columns.get(name) is None",
        _TEST_ALL,
    ),
    Fault(
        "orphans of the next batch are removed",
        _FILES,
        "landed.start <= at < landed.until",
        "landed.start <= at <= landed.until",
        _TEST_ALL,
    ),
    Fault(
        "a file ends at twice its size",
        _FILES,
        "if self._open[key].size >= self._layout.file_bytes:",
        "if self._open[key].size > 2 * self._layout.file_bytes:",
        _TEST,
    ),
    Fault(
        "records that are written again begin one later",
        _FILES,
        "pc.and_(pc.greater_equal(offset, p.start), pc.less(offset, p.until))",
        "pc.and_(pc.greater(offset, p.start), pc.less(offset, p.until))",
        f"{_TEST} {_TEST_PARTITIONS}",
    ),
    Fault(
        "rows of one file get the values of another one",
        _LAYOUT,
        "rows = rows.take(pc.sort_indices(keys, by))",
        "rows = rows.slice(0)",
        _TEST_PARTITIONS,
    ),
    Fault(
        "rows without a value are in no file",
        _LAYOUT,
        'aggregate([([], "count_all")])',
        'aggregate([(keys.column_names[:1], "count")])',
        _TEST_PARTITIONS,
    ),
    Fault(
        "a day that Python does not know is kept",
        _LAYOUT,
        "days = pc.if_else(known, days, pa.scalar(None, pa.date32()))",
        "days = pc.if_else(known, days, days)",
        _TEST,
    ),
    Fault(
        "Delta gets a boolean as Python writes it",
        _DELTA,
        "str(value).lower() if isinstance(value, bool) else str(value)",
        "str(value)",
        _TEST_PARTITIONS,
    ),
    Fault(
        "a row group without bounds is ignored",
        _ICEBERG,
        "for column in _without_bounds(footer)",
        "for column in ()",
        _TEST_TYPES,
    ),
    Fault(
        "a row group of nulls removes the bounds of a column",
        _ICEBERG,
        "chunk.statistics.null_count == chunk.num_values",
        "chunk.statistics.null_count > chunk.num_values",
        _TEST_TYPES,
    ),
    Fault(
        "groups of rows are in the order of their hashes",
        _LAYOUT,
        ".sort_by(by)",
        "",
        _TEST_PARTITIONS,
    ),
    Fault(
        "an empty text stays in a partition column of Delta",
        _LAYOUT,
        "        if self.empty_is_null:",
        "        if False:",
        _TEST_TYPES,
    ),
    Fault(
        "row groups of open files are not counted",
        _FILES,
        "        self.row_groups += 1\n",
        "",
        _TEST,
    ),
    Fault(
        "offsets of a replaced Iceberg table count",
        "connector/landing/iceberg.py",
        "return now[-1] is None and self._note",
        "return now[-1] is not None and self._note",
        _TEST,
    ),
    Fault(
        "a rollback of Iceberg seems to be a replacement",
        "connector/landing/iceberg.py",
        " and not {*now[:-1]} & {*noted}",
        "",
        _TEST,
    ),
    Fault(
        "columns with other numbers are not noticed",
        _LANDING,
        "if any(look.ids.get(path) != number for path, number in ours.items()):",
        "if any(look.ids.get(path) is None for path, number in ours.items()):",
        "tests/connector/landing/test_iceberg.py",
    ),
    Fault(
        "Iceberg's day is one later",
        _ICEBERG,
        "(day - date(1970, 1, 1)).days",
        "(day - date(1969, 12, 31)).days",
        f"{_TEST_PARTITIONS} tests/connector/landing/test_iceberg.py",
    ),
]
