"""Verbs on columns, made of what users write: expressions of polars, SQL texts, names of columns."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from dpa.columns._rowwise import check_rowwise, has_rows
from dpa.columns._text import expression_of, in_integers
from dpa.columns.query import Query, Sql, Verb
from dpa.errors import ConfigError

_OF_NAMES = ("drop", "explode", "unnest")


def query_of(word: str, given: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> Query:
    """A query of one verb. Raises ConfigError if something else is given, or none, or an expression that cannot be one
    of a row.

    Args:
        word: one of those of `Verb`.
        given: of `filter`, `with_columns` and `select` expressions or SQL texts; of others names of columns.
        named: of `with_columns` and `select` expressions by the names of what they make; of `rename` new names by old.
    """
    named = named or {}
    if word == "rename":
        return Query((_rename(given, named),))
    if word in _OF_NAMES:
        names = tuple(given)
        if not names or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"`{word}` needs names of columns, and this is {_listed(given)}")
        return Query((Verb(word, columns=names, text=", ".join(names)),))
    if not given and not named:
        raise ConfigError(f"`{word}` needs an expression")
    expressions = [_expression(word, each) for each in given]
    expressions += [_aliased(_expression(word, each), name) for name, each in named.items()]
    if word == "select" and not any(isinstance(each, Sql) or has_rows(each) for each in expressions):
        raise ConfigError("`select` needs a column, as a value alone is no row: use `with_columns` before")
    plain = [each for each in expressions if not isinstance(each, Sql)]
    if len(plain) < len(expressions) and any(each.meta.has_multiple_outputs() for each in plain):
        what = "SQL that depends on column types, such as `date_trunc`, cannot share a step with a column selector"
        raise ConfigError(f"{what}: make two steps of `{word}`")
    shown = [*map(_text, given), *(f"{name} = {_text(each)}" for name, each in named.items())]
    texts = tuple((each, _in_integers(each)) for each in (*given, *named.values()) if isinstance(each, str))
    return Query((Verb(word, tuple(expressions), text=", ".join(shown), texts=texts),))


def _in_integers(text: str) -> pl.Expr | None:
    """None of a text without decimals, or that depends on types of columns."""
    made = None if (other := in_integers(text)) == text else expression_of(other)
    return made if isinstance(made, pl.Expr) else None


def _rename(given: Sequence[Any], named: Mapping[str, Any]) -> Verb:
    if given or not named or not all(isinstance(name, str) for pair in named.items() for name in pair):
        raise ConfigError(f"`rename` needs new names by old ones, as {{'old': 'new'}}, and this is {_listed(given)}")
    return Verb(
        "rename", columns=(*named,), new=(*named.values(),), text=", ".join(f"{old} = {named[old]}" for old in named)
    )


def _expression(word: str, given: Any) -> pl.Expr | Sql:
    if isinstance(given, str):
        return expression_of(given)
    if not isinstance(given, pl.Expr):
        raise ConfigError(f"`{word}` needs expressions of polars or SQL texts, and this is {_listed([given])}")
    try:
        check_rowwise(given)
    except pl.exceptions.PolarsError as error:
        raise ConfigError(f"{given} cannot be sent to tasks: {error}") from None
    return given


def _text(given: Any) -> str:
    """As polars writes it, without the types of literals."""
    return re.sub(r"\bdyn (int|float): ", "", str(given))


def _aliased(expression: pl.Expr | Sql, name: str) -> pl.Expr | Sql:
    return replace(expression, name=name) if isinstance(expression, Sql) else expression.alias(name)


def _listed(given: Sequence[Any]) -> str:
    return ", ".join(map(repr, given)) or "none"
