"""One table of several files: their columns go together by name, in any order, each of the widest type of all files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from dpa._util.inference import known, known_schema, lossless, no_rows, promoted
from dpa.errors import TableError
from dpa.sources.columns import only
from dpa.sources.splits import Scan, on_demand, scan_of

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class United:
    """The columns of one table of several files.

    Attributes:
        schema: in the order in which the files have them first.
        widened: what files have as another type, as `n to int64`, or lack, as `m, null where it is missing`.
        refused: why a column cannot be read, by its name. Its type is that of the first file.
    """

    schema: pa.Schema
    widened: Mapping[str, str]
    refused: Mapping[str, str]

    @property
    def known(self) -> pa.Schema:
        """The columns that can be read."""
        return (
            only(self.schema, [name for name in self.schema.names if name not in self.refused])
            if self.refused
            else self.schema
        )

    def read(self, columns: tuple[str, ...] | None) -> pa.Schema:
        """These columns, all for None, without metadata. Raises TableError if one cannot be read."""
        read = only(self.schema, columns)
        for name in read.names:
            if name in self.refused:
                raise TableError(self.refused[name])
        return read


def united(files: Iterable[tuple[str, pa.Schema]], *, allow_missing: bool = False) -> United:
    """Put the columns of files, by path and schema, at least one, together. Raises TableError if one has a name twice.

    Args:
        allow_missing: whether a file may lack columns of others.
    """
    first: dict[pa.Schema, tuple[str, pa.Schema]] = {}
    for path, schema in files:
        first.setdefault(schema.remove_metadata(), (path, schema))
    if len(first) == 1:
        return United(next(iter(first.values()))[1], {}, {})
    cleared = ((path, known_schema(schema)) for path, schema in first.values())
    tables = [(path, dict(zip(schema.names, schema.types, strict=True))) for path, schema in cleared]
    kinds, widened, refused = {}, {}, {}
    for name in dict.fromkeys(name for _, columns in tables for name in columns):
        found: list[tuple[pa.DataType, str]] = []
        for path, columns in tables:
            if name in columns and all(columns[name] != kind for kind, _ in found):
                found.append((columns[name], path))
        lacking = next((path for path, columns in tables if name not in columns), None)
        common = widest([kind for kind, _ in found])
        kinds[name] = found[0][0] if common is None else common
        if lacking is not None and not allow_missing:
            differs = _differs(name, found[0], ("missing", lacking))
            refused[name] = f"{differs}: with `allow_missing_columns` it is null there"
        elif common is None:
            refused[name] = f"{_differs(name, *_apart(found))}: no type holds both"
        elif len(found) > 1:
            widened[name] = f"{name} to {common}"
        elif lacking is not None:
            widened[name] = f"{name} to null where it is missing"
    return United(pa.schema([*kinds.items()]), widened, refused)


def widest(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type that holds the values of all these; None if there is none."""
    common = pa.null()
    flat = [kind.value_type if pat.is_dictionary(kind) and len(kinds) > 1 else kind for kind in kinds]
    for kind in flat:
        both = promoted(common, kind) or _moment(common, kind)
        if both is None:
            return None
        common = both
    return common if all(_may_be(kind, common) for kind in flat) else None


def _moment(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The timestamp of a timestamp without a zone and a date."""
    days, moments = sorted((left, right), key=pat.is_timestamp)
    return moments if pat.is_date(days) and pat.is_timestamp(moments) and moments.tz is None else None


def _may_be(kind: pa.DataType, common: pa.DataType) -> bool:
    try:
        lossless(no_rows(pa.schema([("", kind)])).column(0), common)
    except pa.ArrowInvalid:
        return False
    return True


def _apart(found: Sequence[tuple[pa.DataType, str]]) -> tuple[tuple[pa.DataType, str], tuple[pa.DataType, str]]:
    """Two of some types, with their files, that have no common one; the outermost if only all together have none."""
    pairs = ((one, other) for place, other in enumerate(found) for one in found[:place])
    return next((pair for pair in pairs if widest([kind for kind, _ in pair]) is None), (found[0], found[-1]))


def _differs(name: str, here: tuple[Any, str], there: tuple[Any, str]) -> str:
    return f"column {name!r} is {here[0]} in {here[1]} and {there[0]} in {there[1]}"


@dataclass(frozen=True)
class UnitedSplit:
    """A split of a file whose columns are not those of the input: in another order, of narrower types, or not there.

    Attributes:
        split: of the file, with `columns`, those to read, and perhaps `dictionary`.
        schema: the columns of the input that can be read.
    """

    split: Any
    schema: pa.Schema

    @property
    def rows(self) -> int:
        return int(self.split.rows)

    @property
    def path(self) -> str:
        return str(self.split.path)

    def after(self, rows: int) -> UnitedSplit:
        return replace(self, split=self.split.after(rows))

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows; raises TableError also if a value would change in the type of its column."""
        return self._united(self.split.batches(batch_rows))

    def on_demand(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        return self._united(on_demand(self.split, batch_rows))

    def _united(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = only(self.schema, self.split.columns)
        for batch in batches:
            yield self._as_input(batch, wanted) if len(wanted) else batch

    def scan(self) -> Scan | None:
        """None where polars might change a value in a wider type."""
        import polars as pl

        found = scan_of(self.split)
        if found is None:
            return None
        wanted = only(self.schema, self.split.columns)
        here = found.frame.collect_schema()
        columns = []
        for name, kind in pl.DataFrame(wanted.empty_table()).schema.items():
            if name in here and not _is_wider(here[name], kind):
                return None
            columns.append(pl.col(name).cast(kind) if name in here else pl.lit(None, kind).alias(name))
        is_any_there = any(name in here for name in wanted.names)  # literals alone would be one row
        frame = found.frame.select(columns)
        return replace(found, frame=frame, schema=wanted, dictionary=()) if is_any_there else None

    def _as_input(self, batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
        batch, columns, encoded = known(batch), [], getattr(self.split, "dictionary", ())
        for field in wanted:
            if field.name not in batch.schema.names:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            column = batch.column(field.name)
            if pat.is_dictionary(column.type) and column.type != field.type and field.name not in encoded:
                column = column.dictionary_decode()
            try:
                columns.append(lossless(column, field.type))
            except pa.ArrowException as error:
                what = f"column {field.name!r} is {column.type}, and {field.type} in the input"
                raise TableError(f"{self.path}: {what}: {error}") from None
        return pa.RecordBatch.from_arrays(columns, names=wanted.names)


def _is_wider(narrow: pl.DataType, wide: pl.DataType) -> bool:
    """Whether each value that polars casts, and does not refuse, stays the same."""
    import polars as pl

    alike = (narrow.is_float() and wide.is_float()) or (narrow.is_integer() and wide.is_integer())
    return alike or narrow in (wide, pl.Null)
