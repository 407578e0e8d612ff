"""Writes the Parquet files of a task.  Runs in executors; trims files also in the driver.

Each file has records of one topic-partition, which share what its layout wants.  It has a new name, so
that no attempt of a task overwrites the file of another one.  A task that fails removes its files.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pfs
import pyarrow.parquet as pq

from pyspark_kafka_group.landing.errors import refused_nulls, write_error
from pyspark_kafka_group.landing.layout import SNAPPY, Layout
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.stores.lake_history import OffsetSpan

# A task holds this much, and the batch that has just come (32 MB at most), before it writes a row group.
_ROW_GROUP_BYTES = 64_000_000


def _most_open_files() -> int:
    """Return how many files of a task may be open.  Each costs memory, above all in an object store."""
    allowed = os.sysconf("SC_OPEN_MAX")  # -1 is no limit
    return 500 if allowed < 0 else min(500, allowed // 2)


_OPEN_FILES = _most_open_files()
"""How many files of a task are open.  Before it opens more, it ends the oldest."""

_ROW_GROUPS = 4_000
"""How many row groups the open files of a task have.  What Parquet keeps of each, until the file ends, is some kB."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A written file that no commit has yet.  Travels from an executor to the driver.

    Attributes
    ----------
    path : str
        Its path below the table.
    first, last : int
        The offsets of its first and its last record.
    rows, size : int
        Its number of rows, and of bytes.
    nulls : mapping of str to int
        The number of nulls in each column.
    values : mapping of str to object
        What all its rows share: ``topic``, ``partition``, and `Layout.one_value`.
    entry : object
        What the format's commit needs of the file besides; None for Delta.
    times : tuple of int, or None
        The lowest and the highest timestamp in microseconds; None if a record lacks it, or the column is not selected.
    """

    path: str
    first: int
    last: int
    rows: int
    size: int
    nulls: Mapping[str, int]
    values: Mapping[str, Any]
    times: tuple[int, int] | None
    entry: Any = None


class Place:
    """The folder of a table, on the local disk or in an object store.

    Parameters
    ----------
    files : pyarrow.fs.FileSystem
        The file system, with the folder as its root.
    local : str or None
        The folder on the local disk.
    """

    def __init__(self, files: pfs.FileSystem, local: str | None = None) -> None:
        self._files = files
        self._local = None if local is None else Path(local)

    @classmethod
    def on_disk(cls, folder: str) -> Place:
        """Return a folder of the local disk."""
        return cls(pfs.SubTreeFileSystem(folder, pfs.LocalFileSystem()), folder)

    def create(self, path: str) -> pa.NativeFile:
        """Create a file, with its folders."""
        if self._local is not None:
            self._files.create_dir(str(Path(path).parent))
        return self._files.open_output_stream(path)

    def keep(self, path: str) -> int:
        """Return the size of a written file.  On a local disk, wait until a loss of power cannot remove it."""
        if self._local is not None:
            file = self._local / path
            sync(file)
            for folder in file.relative_to(self._local).parents:
                sync(self._local / folder)
        return int(self._files.get_file_info(path).size)

    def open(self, path: str) -> pa.NativeFile:
        """Open a file to read it."""
        return self._files.open_input_file(path)

    def absent(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that name no file."""
        found = self._files.get_file_info(list(paths))
        return [path for path, info in zip(paths, found, strict=True) if info.type != pfs.FileType.File]

    def remove(self, path: str) -> bool:
        """Remove a file.  Return False if this fails: an orphan costs space, and nothing else."""
        try:
            self._files.delete_file(path)
        except OSError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """Return the paths of the files in a folder, which may not exist."""
        found = self._files.get_file_info(pfs.FileSelector(folder, allow_not_found=True))
        return [f"{folder}/{info.base_name}" for info in found if info.type == pfs.FileType.File]


def local_folder(uri: str) -> str | None:
    """Return the folder of a table on the local disk; None for an object store."""
    if is_url(uri):
        parts = urlsplit(uri)
        return unquote(parts.path) if parts.scheme == "file" else None
    return uri


def is_url(uri: str) -> bool:
    """Return whether this is a URL of a table.  Java writes one of the local disk as ``file:/lake``."""
    return _URL.match(uri) is not None


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def folder_of(tp: TopicPartition, table: str) -> str:
    """Return the folder of a topic-partition, in the folder of a table with this id.

    Deliberate: with the id.  If a table of Iceberg is renamed, the next one of its name has the same folder, and would
    take the files of the first one for orphans.

    Deliberate: no name begins with ``_`` or ``.``.  Such folders are hidden from the formats' clean-up.  Deliberate: no
    ``=`` in it.  Polars takes such folders for partitions of the table (`test_polars_reads_a_table_with_partitions`).
    """
    return f"topic-{tp.topic}/partition-{tp.partition}/{table}"


def orphans(paths: Sequence[str], landed: OffsetSpan, committed: Collection[str]) -> list[str]:
    """Return the files of one topic-partition that no commit has, and no commit will have.

    Parameters
    ----------
    paths : sequence of str
        The files in its folder.
    landed : OffsetSpan
        From the next offset that the table stored before this commit, to that after it.  Files that begin there were
        not committed before, and will not be later, because the table now has their records.
    committed : collection of str
        The files of this commit.
    """
    known = set(committed)
    return [
        p for p in paths if p not in known and (at := _start_of(p)) is not None and landed.start <= at < landed.until
    ]


def _start_of(path: str) -> int | None:
    start = path.rpartition("/")[2].partition("-")[0]
    return int(start) if start.isdecimal() else None


@dataclass
class _File:
    """A file that a task writes."""

    place: Place
    path: str
    schema: pa.Schema
    values: Mapping[str, Any]
    compression: str = SNAPPY
    writer: pq.ParquetWriter = field(init=False)
    first: int = -1
    last: int = -1
    rows: int = 0
    row_groups: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    times: tuple[int, int] | None = None
    timed: bool = True

    def __post_init__(self) -> None:
        self._stream = self.place.create(self.path)
        self.writer = pq.ParquetWriter(
            self._stream,
            self.schema,
            compression=self.compression,
            use_dictionary=_repeated(self.schema),
            store_schema=False,
        )

    @property
    def size(self) -> int:
        """The number of bytes until now."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        """Write a row group."""
        offsets = rows.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        self.first, self.last = (first if self.first < 0 else self.first), last
        self.rows += rows.num_rows
        self.row_groups += 1
        for name in rows.schema.names:
            self.nulls[name] = self.nulls.get(name, 0) + rows.column(name).null_count
        if nulls := [f.name for f in self.schema if not f.nullable and self.nulls[f.name]]:
            raise refused_nulls("The table", nulls)
        self._note_times(rows)
        self.writer.write_table(rows.select(self.schema.names).cast(self.schema), row_group_size=rows.num_rows)

    def close(self) -> NewFile:
        """End the file."""
        self.writer.close()
        self._stream.close()
        return NewFile(
            path=self.path,
            first=self.first,
            last=self.last,
            rows=self.rows,
            size=self.place.keep(self.path),
            nulls=self.nulls,
            values=self.values,
            times=self.times if self.timed else None,
        )

    def abort(self) -> None:
        """End the file, and remove it."""
        for end in (self.writer.close, self._stream.close):
            with suppress(OSError, pa.ArrowException):
                end()
        self.place.remove(self.path)

    def _note_times(self, rows: pa.Table) -> None:
        if "timestamp" not in rows.schema.names or rows.column("timestamp").null_count:
            self.timed = False
            return
        found = pc.min_max(rows.column("timestamp").cast(pa.int64())).as_py()
        low, high = self.times or (found["min"], found["max"])
        self.times = min(low, found["min"]), max(high, found["max"])


@lru_cache(maxsize=8)
def _repeated(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns whose values repeat, as Parquet names them: a dictionary of others costs time."""
    none = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), none)
    columns = pq.ParquetFile(pa.BufferReader(none.getvalue())).schema
    paths = [columns.column(n).path for n in range(len(columns))]
    return [path for path in paths if path not in ("value", "offset", "timestamp")]


_Key = tuple[Any, ...]
"""What the rows of a file share, in the order of `Layout.one_value`."""


class _RangeFiles:
    """The files of one range of a task."""

    def __init__(
        self,
        place: Place,
        layout: Layout,
        tp: TopicPartition,
        r: OffsetRange,
        columns: pa.Schema | None,
        *,
        opened: list[tuple[_RangeFiles, _Key]],
    ) -> None:
        self._place, self._layout, self._columns, self._tp = place, layout, columns, tp
        self._name = f"{folder_of(tp, layout.table)}/{r.start:020}-{r.until}"
        self._rows: list[pa.RecordBatch] = []
        self._open: dict[_Key, _File] = {}
        self._opened = opened  # by all ranges of the task, the oldest first
        self.files: list[NewFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows.append(batch)

    def write(self) -> None:
        """Write the rows until now, as one row group for each file that they belong to."""
        if not self._rows:
            return
        rows, self._rows = pa.Table.from_batches(self._rows), []
        for shared, part in self._layout.parts(rows):
            key = tuple(shared.values())
            if key not in self._open:
                if len(self._opened) >= _OPEN_FILES:
                    oldest, its_key = self._opened[0]
                    oldest._close(its_key)
                values = {"topic": self._tp.topic, "partition": self._tp.partition, **shared}
                path = f"{self._name}-{uuid.uuid4().hex}.parquet"
                schema = self._columns or part.schema
                self._open[key] = _File(self._place, path, schema, values, self._layout.compression)
                self._opened.append((self, key))
            self._open[key].write(part)
            if self._open[key].size >= self._layout.file_bytes:
                self._close(key)
        while sum(one._open[its_key].row_groups for one, its_key in self._opened) > _ROW_GROUPS:
            oldest, its_key = self._opened[0]
            oldest._close(its_key)

    def close(self) -> None:
        self.write()
        for key in [*self._open]:
            self._close(key)

    def abort(self) -> None:
        for file in self._open.values():
            file.abort()
        for written in self.files:
            self._place.remove(written.path)

    def _close(self, key: _Key) -> None:
        self.files.append(self._open[key].close())
        del self._open[key]
        self._opened.remove((self, key))


def write_ranges(
    batches: Iterator[pa.RecordBatch],
    ranges: Mapping[TopicPartition, OffsetRange],
    place: Place,
    layout: Layout,
    *,
    columns: pa.Schema | None = None,
    describe: Callable[[NewFile], NewFile] = lambda file: file,
) -> dict[TopicPartition, list[NewFile]]:
    """Write the records of a task, and return the files of each of its ranges.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        The records, each batch of one partition, in order, with the columns ``topic``, ``partition`` and ``offset``.
    ranges : mapping of TopicPartition to OffsetRange
        The ranges of the task.
    place : Place
        Where the table is.
    layout : Layout
        How the rows are arranged.
    columns : pyarrow.Schema, optional
        The columns of the files, with the types and the metadata that the format wants; by default those of the rows.
    describe : callable, optional
        Adds to each file what the format's commit needs.

    Raises
    ------
    LandingError
        If a file cannot be written.
    """
    opened: list[tuple[_RangeFiles, _Key]] = []
    found = {tp: _RangeFiles(place, layout, tp, r, columns, opened=opened) for tp, r in ranges.items()}
    kept_bytes = 0
    try:
        with closing(_generator(batches)) as rest:
            for batch in rest:
                found[TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())].add(batch)
                kept_bytes += batch.nbytes
                if kept_bytes >= _ROW_GROUP_BYTES:
                    for one in found.values():
                        one.write()
                    kept_bytes = 0
        for one in found.values():
            one.close()
        return {tp: [describe(file) for file in one.files] for tp, one in found.items()}
    except BaseException as e:
        for one in found.values():
            one.abort()
        if isinstance(e, OSError):
            raise write_error(e) from e
        raise


def _generator(batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
    yield from batches


def trimmed(place: Place, file: NewFile, parts: Sequence[OffsetSpan]) -> NewFile | None:
    """Write a file again with only the records of some offsets, one row group after the other.

    Returns
    -------
    NewFile or None
        None if no record is left.
    """
    folder, _, name = file.path.rpartition("/")
    start = max(min(part.start for part in parts), file.first)
    path = f"{folder}/{start:020}-{name.split('-')[1]}-{uuid.uuid4().hex}.parquet"
    new: _File | None = None
    with place.open(file.path) as stream:
        source = pq.ParquetFile(stream)
        codec = source.metadata.row_group(0).column(0).compression.lower().replace("uncompressed", "none")
        for number in range(source.num_row_groups):
            rows = source.read_row_group(number)
            offset = rows.column("offset")
            wanted = [pc.and_(pc.greater_equal(offset, p.start), pc.less(offset, p.until)) for p in parts]
            mask = wanted[0]
            for other in wanted[1:]:
                mask = pc.or_(mask, other)
            rows = rows.filter(mask)
            if rows.num_rows:
                new = new or _File(place, path, rows.schema, file.values, codec)
                new.write(rows)
    return None if new is None else new.close()
