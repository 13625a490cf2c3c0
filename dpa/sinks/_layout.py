"""How the rows of a result lie in files: their format, number and directories, which are named as Hive and Spark do,
`country=DE/day=2024-01-02`. The names of the files, and the epochs of the rows in them."""

import base64
import json
import re
import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from dpa.errors import TableError
from dpa.sinks._replacement import ENDING, part_name
from dpa.sinks.encodings import PARQUET, Encoding, encoding_of
from dpa.sinks.sink import Newest, Sink, SinkContext, Target, together
from dpa.sources.manifest import ResultManifest
from dpa.storage import Files

_BATCH_ROWS = 65_536  # rows that are in memory together while one file is made of many

_NULL = "__HIVE_DEFAULT_PARTITION__"  # stands for null

_ESCAPED = {*map(chr, range(32)), "\x7f", *"\"#%'*/:=?\\{[]^"}
"""Characters that Spark escapes in names of directories too."""

_KINDS = (types.is_string, types.is_large_string, types.is_integer, types.is_boolean, types.is_date)

PART = re.compile(
    r"(?:[^/=]+=[^/]+/)*(?:(?:part|share)-\d{5}|merged-(?P<level>\d))"
    r"-(?P<writer>[0-9a-f]{32})(?:-(?P<epoch>\d{6,}))?" + ENDING
)
"""Their names. What came last has no epoch; a merged file has epochs up to the one in its name."""

_EPOCHS = b"dpa.epochs"
"""Metadata of a merged file: its epochs in order, each with its number of rows. Many early epochs are counted together,
after an entry for the first of them with no rows."""

_MOST_EPOCHS = 4_096  # epochs that are counted apart
_LAST = 2**62  # stands for the epoch of what came last

Parts: TypeAlias = tuple[tuple[str, ...], bytes]
"""What a task has staged, where the names of its files are not all that a reader needs: these names, and the columns of
its rows, serialized. Checkpoints hold no classes of sinks."""


@dataclass(frozen=True)
class FileLayout:
    """How a result lies in files.

    Attributes:
        encoding: the format of the files.
        compression: one of its `compressions`; empty: its default.
        partition_by: the columns whose values are names of directories.
        single_file: whether one file has all rows. Then tasks stage their rows as Parquet.
    """

    encoding: Encoding = PARQUET
    compression: str = ""
    partition_by: tuple[str, ...] = ()
    single_file: bool = False

    @property
    def ending(self) -> str:
        """Of the names of files."""
        return self.encoding.ending_of(self.compression)

    @property
    def knows_columns(self) -> bool:
        """Whether files say all the columns of the result."""
        return not (self.encoding.is_text or self.partition_by)

    def check(self, columns: pa.Schema) -> None:
        """TableError if rows with these columns cannot lie so; null stands for an unknown type."""
        check_partitions(columns, self.partition_by)
        self.encoding.check(pa.schema([field for field in columns if field.name not in self.partition_by]))

    def stage(self, files: Files, rows: pa.Table, name: str) -> str | Parts:
        """Write a task's rows, of each directory to one file with a name to which the ending is added. One file is open
        at a time."""
        self.check(rows.schema)
        if self.single_file:
            return PLAIN.stage(files, rows, name)
        written = []
        for folder, some in partitions(rows, self.partition_by):
            written.append(f"{folder}/{name}{self.ending}".lstrip("/"))
            with files.within(folder), files.writing(written[-1]) as stream, self._writing(stream, some.schema) as add:
                add(some)
        return written[0] if self.knows_columns else ((*written,), rows.schema.serialize().to_pybytes())

    def join(self, shares: Files, staged: Sequence[str], files: Files, name: str) -> list[str | Parts]:
        """Write the rows that tasks have staged to one file; returns what a task would that had staged it."""
        if not staged:
            return []
        columns = unified(pq.read_schema(file) for share in staged for file in _opened(shares, share))
        whole = f"{name}{self.ending}"
        with files.writing(whole) as stream, self._writing(stream, columns) as add:
            for share in staged:
                for file in _opened(shares, share):
                    for batch in pq.ParquetFile(file).iter_batches(_BATCH_ROWS):
                        add(together([columns.empty_table(), pa.Table.from_batches([batch])]))
        return [whole if self.knows_columns else ((whole,), columns.serialize().to_pybytes())]

    def _writing(self, stream: Any, columns: pa.Schema) -> Any:
        return self.encoding.writing(stream, columns, self.compression or self.encoding.compressions[0])


PLAIN = FileLayout()
"""Parquet, a file a task."""


class FileSink(Sink):
    """A result as files, of one job after another."""

    _files: Files  # to which tasks write

    def __init__(self, to: Target, layout: FileLayout = PLAIN) -> None:
        """`layout`: how rows lie in files. `error` as a mode requires an empty or missing place."""
        self.know(SinkContext(uuid.uuid4().hex))
        self._mode, self._section, self._text = to.mode, to.section, to.mark
        self._layout = layout

    def expect(self, columns: pa.Schema) -> None:
        self._layout.check(columns)

    def stage(self, rows: pa.Table, task: int, epoch: int) -> str | Parts:
        name = self._part_name(task, epoch)
        if self._layout.single_file:
            name = name.replace("part", "share")  # which readers that list files must not take for a part
        return self._layout.stage(self._files, rows, name)

    def _part_name(self, task: int, epoch: int) -> str:
        return part_name(task)

    @abstractmethod
    def _there(self) -> ResultManifest | None:
        """What is at the place; None: no job has begun there."""

    def newest(self) -> Newest | None:
        found = self._there()
        if found is None or found.files is None or found.job != self.job:
            return None
        return Newest(found.before_last if found.is_last else found.epoch, found.line, found.is_last)


def _opened(files: Files, name: str) -> Iterator[Any]:
    with files.reading(name) as file:
        if file is None:
            raise FileNotFoundError(files.at(name))
        yield file


def names_in(staged: Iterable[str | Parts]) -> list[str]:
    """The names of all files."""
    return [name for each in staged for name in ([each] if isinstance(each, str) else each[0])]


def columns_in(staged: Iterable[str | Parts], before: str | None = None) -> str | None:
    """The columns of a result as text, where its files do not say all of them, and of what was there `before`."""
    packed = {each[1] for each in staged if not isinstance(each, str)}
    if not packed:
        return before
    known = [] if before is None else [_unpacked(before)]
    found = unified([*known, *(pa.ipc.read_schema(pa.py_buffer(each)) for each in sorted(packed))])
    return base64.b64encode(found.serialize().to_pybytes()).decode()


def rows_in(files: Files, names: Iterable[str], columns: str | None) -> pa.Table:
    """The rows of some files, which must exist, with the columns that `columns_in` gave."""
    known = None if columns is None else _unpacked(columns)
    return together(table_in(files, name, known) for name in names)


def unified(columns: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of several tables. TableError if the types of one have no common type."""
    return together(each.empty_table() for each in columns).schema


def _unpacked(columns: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(columns)))


def with_epochs(objects: Files, names: Sequence[str], rows: pa.Table) -> pa.Table:
    """The rows of some files, with their epochs as metadata if all the files have them."""
    known = [_epochs_in(objects, name) for name in names]
    if not all(known):
        return rows
    counts: Counter[int] = Counter()
    for of in known:
        counts.update(dict(of))
    found = [*counts.items()]
    if len(found) > _MOST_EPOCHS:
        early, late = found[:-_MOST_EPOCHS], found[-_MOST_EPOCHS:]
        found = [(early[0][0], 0), (early[-1][0], sum(rows for _, rows in early)), *late]
    return _noted(rows, found)


def begin_of(objects: Files, name: str, until: int, *, is_trial: bool) -> list[str]:
    """A file with the rows of a file up to an epoch: itself, a new one, or none. If `is_trial`, nothing is written.

    Going back to a checkpoint may have to cut a merged file: where old checkpoints are put back, any number of epochs
    may have been merged since. Raises TableError if the file does not say which rows these are."""
    match = PART.fullmatch(name)
    assert match is not None
    last = int(match["epoch"] or _LAST)
    if last <= until or match["level"] is None:
        return [name] if last <= until else []
    epochs = _epochs_in(objects, name)
    kept = [each for each in epochs if each[0] <= until]
    if not epochs or (kept != epochs and kept and not kept[-1][1]):
        raise TableError(f"{objects.place}/{name} has rows of epochs up to {last}, and does not say which")
    if kept in ([], epochs):
        return [name] if kept else []
    new = f"merged-{match['level']}-{uuid.uuid4().hex}-{until:06d}.parquet"
    if not is_trial:
        with objects.writing(new) as stream:
            pq.write_table(_noted(table_in(objects, name).slice(0, sum(rows for _, rows in kept)), kept), stream)
    return [new]


def table_in(objects: Files, name: str, columns: pa.Schema | None = None) -> pa.Table:
    """The table in a file, which must be there, without its epochs. `columns`: those of the result, where the file does
    not say them all."""
    inside = None if columns is None else columns_of_file(name, columns)
    with objects.reading(name) as file:
        table = None if file is None else encoding_of(name).read(file, inside)
    if table is None:
        raise FileNotFoundError(f"{objects.place}/{name}")
    if columns is not None:
        return with_partitions(table, name, columns)
    about = table.schema.metadata or {}
    if _EPOCHS not in about:
        return table
    return table.replace_schema_metadata({key: value for key, value in about.items() if key != _EPOCHS} or None)


def _epochs_in(objects: Files, name: str) -> list[tuple[int, int]]:
    """The epochs of a file, each with its number of rows; empty if they are not known."""
    match = PART.fullmatch(name)
    with objects.reading(name) as file:
        about = pq.read_metadata(file)
    if match is not None and match["level"] is None:
        return [(int(match["epoch"] or _LAST), about.num_rows)]
    return [(int(epoch), int(rows)) for epoch, rows in json.loads((about.metadata or {}).get(_EPOCHS, "[]"))]


def _noted(rows: pa.Table, epochs: Sequence[tuple[int, int]]) -> pa.Table:
    return rows.replace_schema_metadata({**(rows.schema.metadata or {}), _EPOCHS: json.dumps(epochs)})


def check_partitions(columns: pa.Schema, by: Sequence[str]) -> None:
    """TableError if rows with these columns cannot be partitioned by some; null stands for an unknown type."""
    for name in by:
        if name not in columns.names:
            raise TableError(f"`partition_by` names {name!r}, and the result has {', '.join(columns.names)}")
        kind = columns.field(name).type
        if not types.is_null(kind) and not any(test(kind) for test in _KINDS):
            right = "`partition_by` takes texts, integers, booleans and dates"
            raise TableError(f"{right}, and column {name!r} is {kind}: convert it to one of these")
    if by and {*columns.names} <= {*by}:
        raise TableError("`partition_by` names all columns of the result, so files would have none: leave one out")


def partitions(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each directory, without the columns that its name says, in the order in which they were."""
    if not by:
        yield "", rows
        return
    if not rows.num_rows:
        yield "", rows.drop_columns([*by])
        return
    rows = rows.combine_chunks()
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in by:
        found = pc.dictionary_encode(rows[name].combine_chunks(), null_encoding="encode")
        codes = codes * len(found.dictionary) + found.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    rest = rows.drop_columns([*by])
    for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        values = (rows[name][int(places[0])].as_py() for name in by)
        yield "/".join(map(_directory, by, values)), rest.take(places)


def with_partitions(rows: pa.Table, name: str, columns: pa.Schema) -> pa.Table:
    """The rows of a file with the columns that its name says, in the order of all columns. Those that the file lacks
    are null."""
    known = _said_by(name)
    for field in columns:
        if field.name in known:
            one = pa.array([known[field.name]], pa.string()).cast(field.type)
            values = one.take(pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
        elif field.name in rows.column_names:
            continue
        else:
            values = pa.nulls(rows.num_rows, field.type)
        rows = rows.append_column(field, values)
    return rows.select(columns.names)


def columns_of_file(name: str, columns: pa.Schema) -> pa.Schema:
    """Of all columns of a result, those that are in a file."""
    known = _said_by(name)
    return pa.schema([field for field in columns if field.name not in known])


def _said_by(name: str) -> dict[str, str | None]:
    """What the directories in a file's name say, by column."""
    pairs = (folder.partition("=") for folder in name.split("/")[:-1])
    return {unquote(column): None if value == _NULL else unquote(value) for column, _, value in pairs}


def _directory(name: str, value: object) -> str:
    if value in ("", _NULL):  # which Spark and polars take for null
        remedy = "make it null, or another text, in the job"
        raise TableError(f"column {name!r} has the text {value!r}, for which there is no directory's name: {remedy}")
    text = _NULL if value is None else _escaped(str(value).lower() if isinstance(value, bool) else str(value))
    return f"{_escaped(name)}={text}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)
