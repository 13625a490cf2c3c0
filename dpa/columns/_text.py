"""SQL texts as expressions of polars, and what is wrong with a text, marked at its place."""

import re

import polars as pl

from dpa.columns._rowwise import check_rowwise
from dpa.columns.query import Sql
from dpa.errors import ConfigError

_UNTYPED = re.compile(r"^(\w+) cannot determine the type of")
_ALIAS = re.compile(r'(.*\S)\s+as\s+(?:"([^"]+)"|(\w+))\s*', re.IGNORECASE | re.DOTALL)
_PLACE = re.compile(r" ?at Line: (\d+), Column: (\d+)")
_QUOTED = re.compile(r"['\"`]([^'\"`]+)['\"`]")


def expression_of(text: str) -> pl.Expr | Sql:
    """What a SQL text says. Raises ConfigError, with a mark under the place, if it says nothing, or looks at other
    rows."""
    looked_at, typed = text, False
    while True:
        try:
            made = pl.sql_expr(looked_at)
            break
        except pl.exceptions.PolarsError as error:
            message = str(error).partition("\n")[0]
            untyped = _UNTYPED.match(message)
            if untyped is None:
                raise ConfigError(marked(text, message)) from None
            # The rest of the text is looked at with a function in its place that takes any types.
            looked_at, typed = re.sub(rf"\b{untyped[1]}\s*\(", "concat(", looked_at, flags=re.IGNORECASE), True
    try:
        check_rowwise(made)
    except ConfigError as error:
        raise ConfigError(f"{error.message}\n    {text}") from None
    if not typed:
        return made
    alias = _ALIAS.fullmatch(text)
    if alias is None:
        # Of a function, SQL names what it makes by the first column, even if a literal comes before.
        return Sql(text, next(iter(made.meta.root_names()), made.meta.output_name()))
    return Sql(alias[1], alias[2] or alias[3])


def marked(text: str, message: str) -> str:
    shown = text.splitlines() or [""]
    found, before = message, 0
    for query in (f"SELECT\n{text}\nFROM self", f"SELECT (\n{text}\n) FROM self"):
        if _PLACE.search(found) is not None:
            break
        found, before = _error_of(query), 1  # the parser of whole queries names the place
    place = _PLACE.search(found)
    if place is None:
        what, line, column = message, 0, _named_in(text, message)
    else:
        what = _PLACE.sub("", found).removeprefix("sql parser error: ")
        line, column = int(place[1]) - 1 - before, int(place[2]) - 1
        if line >= len(shown):
            line, column = len(shown) - 1, len(shown[-1])
            what = re.sub("found: .*", "found: the end", what)
    marked = [f"    {each}" for each in shown]
    if column >= 0:
        marked.insert(line + 1, f"    {' ' * column}^")
    return "\n".join([f"this is no SQL expression: {what}", *marked])


def _error_of(query: str) -> str:
    try:
        pl.LazyFrame().sql(query)
    except pl.exceptions.PolarsError as error:
        return str(error).partition("\n")[0]
    return ""


def marked_name(text: str, message: str) -> str:
    """A message with a mark in its text, where that has the first name which the message quotes."""
    column = _named_in(text, message)
    return message if column < 0 else f"{message}\n    {text}\n    {' ' * column}^"


def _named_in(text: str, message: str) -> int:
    """Where the text has what a message names; -1 where it is not found on its only line."""
    if "\n" in text:
        return -1
    names = (re.split(r"\W", name)[0] for name in _QUOTED.findall(message))
    return next((text.lower().find(name.lower()) for name in names if name and name.lower() in text.lower()), -1)
