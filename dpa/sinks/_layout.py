"""How the rows of a result lie in files: their format, directories and number. The names of the files, and the epochs
of the rows in them."""

import base64
import json
import re
import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from dpa.errors import TableError
from dpa.sinks._hive import check_partitions, columns_of_file, partitions, with_partitions
from dpa.sinks._replacement import ENDING, part_name
from dpa.sinks.encodings import PARQUET, Encoding, encoding_of
from dpa.sinks.sink import Newest, Sink, SinkContext, Target, together
from dpa.sources.manifest import ResultManifest
from dpa.storage import Files

_BATCH_ROWS = 65_536  # rows that are in memory together while one file is made of many

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
