"""What is said of a run, a stage or a plan, as plain data: facts and tables.

`dpa.report` draws them on the terminal, on the page and in pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

WIDE = 100
"""From this many columns on, a terminal is wide."""


class Fact(NamedTuple):
    """A name, a value, what the value is or is made of, and a part of 1 to be drawn as a bar."""

    name: str
    value: str
    remark: str = ""
    share: float | None = None


class Bar(NamedTuple):
    """A cell: a bar that is filled up to the part `last` (0 to 1) of it, from the part `first` on if that is given."""

    last: float
    first: float | None = None


Cell: TypeAlias = "str | Bar"


@dataclass(frozen=True)
class Table:
    """Rows below a heading.

    Attributes:
        title: what the rows are.
        head: the titles of the columns; one that begins with `#` is of numbers, an empty one of bars.
        rows: a cell for each column.
        narrow: the columns that a narrow terminal has, from the left; None: all.
        wide: those of a wide one; None: as many as a narrow one. The page has all.
        most: rows that a terminal shows; None: all. Of more it says how many there are, followed by `more`.
        total: a last row.
        marked: the place of a row that stands out.
        wraps: whether words of the last column of a terminal break lines; else they are cut, as others are.
        absent: what the page says where there are no rows.
        open_up_to: rows up to which the page does not fold the table away.
    """

    title: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    narrow: int | None = None
    wide: int | None = None
    most: int | None = None
    more: str = ", in the report"
    total: Sequence[Cell] = ()
    marked: int | None = None
    wraps: bool = True
    absent: str = ""
    open_up_to: int = 16
