"""SQL texts as expressions of aggregates: what polars' SQL knows, and some aggregates of Spark's that it does not."""

import re
from collections.abc import Callable, Iterator

import polars as pl

from dpa.columns._taking_apart import with_columns_replaced
from dpa.columns._text import marked
from dpa.errors import ConfigError


def _some(values: pl.Expr, found: pl.Expr) -> pl.Expr:
    return pl.when(values.count() > 0).then(found)


_ONE: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "approx_count_distinct": lambda values: values.drop_nulls().approx_n_unique(),
    "bool_and": lambda values: _some(values, values.all()),
    "bool_or": lambda values: _some(values, values.any()),
    "every": lambda values: _some(values, values.all()),
}
_TWO: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "max_by": lambda values, by: values.max_by(by),
    "min_by": lambda values, by: values.min_by(by),
}
_MEANT = {"avg": "mean average", "stddev": "std", "count": "len size", "quantile_cont": "quantile percentile"}
_MEANT |= {"count(distinct ...)": "n_unique nunique count_distinct countdistinct"}
_MEANT |= {"array_agg": "collect_list list", "array_agg(distinct ...)": "collect_set"}
_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|\s+|.""", re.DOTALL)


def aggregate_of(text: str) -> pl.Expr:
    """Raises ConfigError if the text is no SQL expression that polars knows."""
    made: dict[str, pl.Expr] = {}
    tokens = _TOKEN.findall(text)
    found = "".join(_rewritten(tokens, made))
    try:
        expression = pl.sql_expr(found)
    except (pl.exceptions.PolarsError, ValueError) as error:
        why = str(error).partition("\n")[0]
        unknown = why.removeprefix("unsupported function ").strip("'")
        meant = (f"; did you mean `{right}`?" for right, words in _MEANT.items() if unknown in words.split())
        raise ConfigError(marked(text, why + next(meant, ""))) from None
    return with_columns_replaced(expression, made) if made else expression


def _rewritten(tokens: list[str], made: dict[str, pl.Expr]) -> Iterator[str]:
    """The text with a column, which `made` gets, in place of each aggregate that polars' SQL lacks."""
    place = 0
    while place < len(tokens):
        word, opens = tokens[place].lower(), _next(tokens, place + 1)
        if word == "over" and tokens[opens : opens + 1] == ["("]:  # polars takes an empty one for none
            raise ConfigError("`over` looks at other rows: an aggregate is of the rows of a key, so leave it out")
        if (word not in _ONE and word not in _TWO) or opens >= len(tokens) or tokens[opens] != "(":
            yield tokens[place]
            place += 1
            continue
        arguments, place = _arguments(tokens, opens)
        values = [aggregate_of(argument) for argument in arguments]
        wanted = 1 if word in _ONE else 2
        if len(values) != wanted:
            raise ConfigError(f"`{word}` takes {wanted} argument{'s' * (wanted > 1)}, not {len(values)}")
        name = f"dpa.aggregate.{len(made)}"
        made[name] = _ONE[word](*values) if word in _ONE else _TWO[word](*values)
        yield f'"{name}"'


def _next(tokens: list[str], place: int) -> int:
    return place + 1 if place < len(tokens) and tokens[place].isspace() else place


def _arguments(tokens: list[str], opens: int) -> tuple[list[str], int]:
    """The arguments in parentheses, of which the first stands at `opens`, and the place after them."""
    found, depth = [""], 0
    for place in range(opens, len(tokens)):
        token = tokens[place]
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0:
            return [each for each in found if each.strip()], place + 1
        if depth == 1 and token == ",":
            found.append("")
        elif place > opens:
            found[-1] += token
    raise ConfigError("a parenthesis is not closed")
