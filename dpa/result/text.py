"""What people are shown of a run, a stage or a plan: facts and tables as plain data, and numbers, durations and keys as
plain text. `dpa.report` draws them on the terminal, on the page and in pictures.

Every screen, page and picture of `dpa.report` shows foreign text (keys, reasons, errors) through `one_line`, `lines` or
`key_text` and nothing else, so no control character of the data ever reaches a terminal. The page escapes HTML.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from dpa._util import words
from dpa.balance.decision import Outcome

_EIGHTHS = " ▏▎▍▌▋▊▉"

key_text, one_line, plural = words.key_text, words.one_line, words.plural

PLAIN_RING = "with the plain ring"
"""How a stage started whose first table was not planned."""

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
        wide: those of a wide one; None: as many as a narrow one.
        most: rows that a terminal shows; None: all. Of more it says how many there are, followed by `more`.
        total: a last row.
        marked: the place of a row that stands out.
        wraps: whether words of the last column of a terminal break lines; else they are cut, as others are.
        is_copied: people copy names from it, so no cell is cut.
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
    is_copied: bool = False


def count(number: float) -> str:
    """In full: `24,000,000`."""
    return f"{number:,.0f}" if math.isfinite(number) else "n/a"


def short(number: float) -> str:
    """In three digits and a unit, at most five characters below 1e15: `999`, `1.23k`, `24.0M`."""
    if not math.isfinite(number):
        return "n/a"
    for unit in ("", "k", "M", "G", "T"):
        if abs(number) < 999.5 or unit == "T":
            break
        number /= 1000
    if not unit:
        return f"{number:.0f}"
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:,.{digits}f}{unit}"


def megabytes(size: float) -> str:
    """Of bytes, without the unit."""
    count = size / 1e6
    return short(count) if count >= 10 else f"{count:.2f}"


def mebibytes(size: float) -> str:
    """Of bytes, without the unit; empty for 0, which means that they were not measured."""
    return f"{size / 2**20:,.0f}" if size else ""


def percent(share: float) -> str:
    return f"{share:.1%}" if math.isfinite(share) else "n/a"


def skew(value: float | None, absent: str = "not asked for") -> str:
    if value is None:
        return absent
    return f"{value:.3f}" if math.isfinite(value) else "n/a"


def seconds(duration: float | None, absent: str = "n/a") -> str:
    """`0.31 s`, `12.3 s` or, from two minutes on, `2:05` and `1:00:00`."""
    if duration is None or not math.isfinite(duration):
        return absent
    if duration < 9.995:
        return f"{duration:.2f} s"
    return f"{duration:.1f} s" if duration < 120 else clock(duration)


def latency(duration: float | None) -> str:
    """As `seconds`, but below a tenth of a second as `3.12 ms`; `n/a` for None."""
    if duration is None or not math.isfinite(duration) or duration >= 0.0995:
        return seconds(duration)
    return f"{1000 * duration:.3g} ms"


def clock(duration: float) -> str:
    """Of seconds: `0:12` or `1:02:03`."""
    minutes, second = divmod(int(duration), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def instant(micros: int) -> str:
    """A time in microseconds since 1970, of UTC: `2026-01-31 12:00:00.5`."""
    whole, _, part = str(np.datetime64(micros, "us")).replace("T", " ").partition(".")
    return f"{whole}.{part.rstrip('0')}".rstrip(".")


def per_record(number: int, processed: int) -> str:
    """A number of events divided by the records processed: `0.0021 per record`; empty if there were none."""
    # Not a percentage: a record may be forwarded several times, and 502% would read as a wrong count.
    if not number or not processed:
        return ""
    each = number / processed
    return f"{'under 0.001' if each < 0.001 else f'{each:.2g}' if each < 0.1 else f'{each:.2f}'} per record"


def outcomes(decision_counts: Mapping[str, int]) -> str:
    """Decisions by outcome, the most frequent first: `120 below threshold, 4 applied`."""
    named = sorted(decision_counts.items(), key=lambda counted: (-counted[1], counted[0]))
    return ", ".join(f"{number:,} {one_line(outcome.replace('_', ' '))}" for outcome, number in named if number)


def refusals(decision_counts: Mapping[str, int]) -> str:
    """As `outcomes`, of the decisions not to act."""
    refused = {outcome: number for outcome, number in decision_counts.items() if outcome != Outcome.APPLIED.value}
    return outcomes(refused)


def bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """A bar of at most `width` characters, `share` (0 to 1) of them filled, to an eighth of a character; not padded."""
    filled = (min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0) * width
    if ascii_only:
        return "#" * round(filled)
    eighths = math.ceil(filled * 8 - 1e-9)  # a share above zero is visible
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def span(first: float, last: float, width: int, *, ascii_only: bool = False) -> str:
    """A line of `width` characters, filled from the part `first` (0 to 1) of it to the part `last`, at least one
    character."""
    full, rest = ("#", ".") if ascii_only else ("█", "·")
    first, last = min(first, 1.0) * width, min(last, 1.0) * width
    start = min(int(first), width - 1)
    length = max(round(last) - start, 1)
    return rest * start + full * length + rest * (width - start - length)


def lines(text: str, limit: int = 40) -> list[str]:
    """The lines of `text`, each made safe; of more than `limit` lines the last, where a traceback names its cause."""
    found = [one_line(line.expandtabs(4)) for line in text.rstrip().splitlines()]
    if len(found) <= limit:
        return found
    return [f"... {len(found) - limit + 1:,} earlier lines are in report.json", *found[1 - limit :]]
