"""How rows become the bytes of a file, and rows again: a class for each format of files, and a line of `ENCODINGS`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from dpa.errors import TableError

COMPRESSED = {"gzip": ".gz", "zstd": ".zst"}
"""Endings added to files of text, by how they are compressed."""

_UNWRITABLE = (  # types that no text stands for
    types.is_binary,
    types.is_large_binary,
    types.is_binary_view,
    types.is_fixed_size_binary,
    types.is_duration,
    types.is_interval,
    types.is_union,
    types.is_decimal256,
)


class Encoding(ABC):
    """A format of files.

    Attributes:
        name: in a job file.
        ending: of a file's name, without that of its compression.
        compressions: how files may be compressed, the default first.
        is_text: whether a file does not say the types of its columns, and its name how it is compressed.
    """

    name: ClassVar[str]
    ending: ClassVar[str]
    compressions: ClassVar[tuple[str, ...]] = ("none", *COMPRESSED)
    is_text: ClassVar[bool] = True

    def ending_of(self, compression: str | None) -> str:
        """Of the names of files that are compressed so; nothing stands for the default."""
        return self.ending + (COMPRESSED.get(compression or "", "") if self.is_text else "")

    def check(self, columns: pa.Schema) -> None:  # noqa: B027 - need not be overridden
        """TableError if a file cannot hold columns of these types; null stands for an unknown one."""

    @abstractmethod
    def writing(
        self, stream: Any, columns: pa.Schema, compression: str
    ) -> AbstractContextManager[Callable[[pa.Table], None]]:
        """A block that writes a file of tables with these columns, one after another."""

    @abstractmethod
    def read(self, file: Any, columns: pa.Schema | None) -> pa.Table:
        """The table in a file that was written with some of these columns, or none of them where the file itself says
        its types."""


class Parquet(Encoding):
    """Knows every type, and says which."""

    name = "parquet"
    ending = ".parquet"
    compressions = ("snappy", "none", *COMPRESSED)
    is_text = False

    @contextmanager
    def writing(self, stream: Any, columns: pa.Schema, compression: str) -> Iterator[Callable[[pa.Table], None]]:
        with pq.ParquetWriter(stream, columns, compression=compression) as writer:
            yield writer.write_table

    def read(self, file: Any, columns: pa.Schema | None) -> pa.Table:
        return pq.read_table(file)


class Text(Encoding):
    """Files of text, which polars writes and reads. What makes a value another one is refused."""

    def check(self, columns: pa.Schema) -> None:
        for field in columns:
            if self._refuses(field.type):
                remedy = "convert it to a text, or write Parquet"
                raise TableError(f"column {field.name!r} is {field.type}, which {self.name} cannot hold: {remedy}")

    def _refuses(self, kind: pa.DataType) -> bool:
        return any(test(kind) for test in _UNWRITABLE)

    @contextmanager
    def writing(self, stream: Any, columns: pa.Schema, compression: str) -> Iterator[Callable[[pa.Table], None]]:
        self.check(columns)
        how = {"compression": "uncompressed" if compression == "none" else compression}
        self._begin(columns, stream, how)
        yield lambda table: self._add(table, stream, how)

    def _begin(self, columns: pa.Schema, stream: Any, how: Any) -> None:
        """Write what comes before the rows."""

    @abstractmethod
    def _add(self, table: pa.Table, stream: Any, how: Any) -> None: ...

    def read(self, file: Any, columns: pa.Schema | None) -> pa.Table:
        assert columns is not None
        import polars as pl

        kinds = pl.Schema(columns)
        found = self._frame(file, {name: _readable(kind) for name, kind in kinds.items()})
        times = [name for name, kind in found.schema.items() if kind == pl.String and kinds[name] == pl.Time]
        found = found.with_columns(pl.col(times).str.to_time())
        exact = found.cast({name: kinds[name] for name in found.columns}).to_arrow()
        return exact.cast(pa.schema([columns.field(name) for name in exact.column_names]))

    @abstractmethod
    def _frame(self, file: Any, read_as: Any) -> Any:
        """A frame of polars, whose columns are those of the file."""


class Csv(Text):
    """A header, and a line for each row, with quotes where a value needs them: an empty field is null, and `""` an
    empty text."""

    name = "csv"
    ending = ".csv"

    def _refuses(self, kind: pa.DataType) -> bool:
        return super()._refuses(kind) or types.is_nested(kind)

    def _begin(self, columns: pa.Schema, stream: Any, how: Any) -> None:
        _frame_of(columns.empty_table()).write_csv(stream, **how)

    def _add(self, table: pa.Table, stream: Any, how: Any) -> None:
        _frame_of(table).write_csv(stream, include_header=False, **how)

    def _frame(self, file: Any, read_as: Any) -> Any:
        import polars as pl

        return pl.read_csv(file, schema_overrides=read_as, infer_schema=False)


class JsonLines(Text):
    """An object for each row, with decimals, dates and times as texts."""

    name = "json"
    ending = ".jsonl"

    def _refuses(self, kind: pa.DataType) -> bool:
        if types.is_map(kind) and not (types.is_string(kind.key_type) or types.is_large_string(kind.key_type)):
            return True
        inner = [kind.field(at).type for at in range(kind.num_fields)] if types.is_nested(kind) else []
        return super()._refuses(kind) or any(types.is_time(each) or self._refuses(each) for each in inner)

    def _add(self, table: pa.Table, stream: Any, how: Any) -> None:
        for name, column in zip(table.column_names, table.columns, strict=True):
            if not all(map(_is_finite, column.chunks)):
                remedy = "make it null, or write csv or Parquet"
                raise TableError(f"column {name!r} has a number that is infinite or NaN, which JSON cannot: {remedy}")
        _frame_of(table).write_ndjson(stream, **how)

    def _frame(self, file: Any, read_as: Any) -> Any:
        import polars as pl

        return pl.read_ndjson(file, schema=read_as)


def _frame_of(table: pa.Table) -> Any:
    import polars as pl

    if any("fixed_size_list" in str(field.type) for field in table.schema):
        table = table.take(np.arange(table.num_rows))  # polars does not take a slice of them that has nulls
    return pl.from_arrow(table)


def _is_finite(values: pa.Array) -> bool:
    kind = values.type
    if types.is_floating(kind):
        return bool(pc.all(pc.is_finite(values.cast(pa.float64()))).as_py() is not False)
    if types.is_struct(kind):
        return all(map(_is_finite, values.flatten()))
    if types.is_map(kind):
        return _is_finite(values.items)
    return not types.is_nested(kind) or _is_finite(pc.list_flatten(values))


def _readable(kind: Any) -> Any:
    """A type of polars as which a text of that type is read: its readers lack some."""
    import polars as pl

    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _readable(field.dtype) for field in kind.fields})
    if isinstance(kind, (pl.List, pl.Array)):
        return pl.List(_readable(kind.inner))
    if kind.is_integer() and kind != pl.UInt64:
        return pl.Int64
    is_text = kind in (pl.Null, pl.Time, pl.Categorical, pl.Enum) or kind.is_decimal()
    return pl.String if is_text else kind


PARQUET = Parquet()

ENCODINGS: tuple[Encoding, ...] = (PARQUET, Csv(), JsonLines())


def encoding_of(name: str) -> Encoding:
    """That of a file of a result, by its name."""
    inner = name
    for ending in COMPRESSED.values():
        inner = inner.removesuffix(ending)
    return next(each for each in ENCODINGS if inner.endswith(each.ending))
