"""The first rows of a table as words, for terminals, pages and notebooks alike."""

import math
from collections.abc import Iterator
from itertools import accumulate

import pyarrow as pa

from dpa.result.text import Table, key_text, one_line, plural

_MAX_CELL = 60  # characters of a value
_READABLE = 16  # characters that a longer value needs to be read
_MAX_COLUMNS = 20


def first_rows(found: pa.Table, title: str, *, rows: int, width: float = math.inf, has_types: bool = False) -> Table:
    """The first rows, and those of the first columns that can be read in `width` characters, headed by `title` and the
    number of columns that are left out; `has_types`: the first row has their types, and floats have ten digits."""
    names = found.column_names[:_MAX_COLUMNS]
    texts = [[*_words(name, found.column(place).slice(0, rows), has_types)] for place, name in enumerate(names)]
    ends = accumulate(2 + min(max(map(len, words)), _READABLE) for words in texts)  # two spaces after each but the last
    shown = max(1, sum(end <= width + 2 for end in ends))
    more = f", without {plural(found.num_columns - shown, 'more column')}" if found.num_columns > shown else ""
    head, *lines = zip(*texts[:shown], strict=True) if texts else [()]
    return Table(f"{title}{more}", head, lines, wraps=False)


def _words(name: str, column: pa.ChunkedArray, has_types: bool) -> Iterator[str]:
    """A column from its name down."""
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    yield "#" * is_number + one_line(name, _MAX_CELL)
    if has_types:
        yield one_line(str(kind), _MAX_CELL)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.string())  # Python's times have no nanoseconds
    for value in column.to_pylist():
        is_rounded = has_types and pa.types.is_floating(kind) and value is not None
        yield f"{value:.10g}" if is_rounded else key_text(value, _MAX_CELL)
