"""The first rows of a table as words, for terminals, pages and notebooks alike."""

import pyarrow as pa

from dpa.result.text import Table, key_text, one_line, plural

_MAX_CELL = 60  # characters of a value


def first_rows(rows_of: pa.Table, title: str, *, rows: int, columns: int, has_types: bool = False) -> Table:
    """The first rows and columns, headed by `title` and how many columns are left out; `has_types`: the types of the
    columns are the first of them, and floats have six digits."""
    shown = rows_of.slice(0, rows).select(range(min(rows_of.num_columns, columns)))
    hidden = rows_of.num_columns - shown.num_columns
    more = f", without {plural(hidden, 'more column')}" if hidden else ""
    kinds = shown.schema.types
    numbers = [pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in kinds]
    head = tuple(
        "#" * is_number + one_line(name, _MAX_CELL) for name, is_number in zip(shown.column_names, numbers, strict=True)
    )
    types = [tuple(one_line(str(kind), _MAX_CELL) for kind in kinds)] if has_types and kinds else []
    cells = [_cells(column, is_rounded=has_types) for column in shown.columns]
    return Table(f"{title}{more}", head, [*types, *zip(*cells, strict=True)], wraps=False)


def _cells(column: pa.ChunkedArray, *, is_rounded: bool) -> list[str]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.string())  # Python's times have no nanoseconds
    values = column.to_pylist()
    if is_rounded and pa.types.is_floating(column.type):
        return [key_text(value) if value is None else f"{value:.6g}" for value in values]
    return [key_text(value, _MAX_CELL) for value in values]
