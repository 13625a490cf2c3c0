"""SQL texts as expressions of polars, also of aggregates, some of which only Spark's SQL has; and what is wrong with a
text, marked at its place."""

import re
from collections.abc import Callable, Iterator

import polars as pl

from dpa.columns._rowwise import check_rowwise
from dpa.columns._taking_apart import with_columns_replaced
from dpa.columns.query import Sql
from dpa.errors import ConfigError

_UNTYPED = re.compile(r"^(\w+) cannot determine the type of")
_ALIAS = re.compile(r'(.*\S)\s+as\s+(?:"([^"]+)"|(\w+))\s*', re.IGNORECASE | re.DOTALL)
_AS = re.compile(r"\bas\b", re.IGNORECASE)
_DECIMAL = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|(?<![\w.])(?:\d+\.\d*|\.\d+)(?:e[+-]?\d+)?(?![\w.])""", re.IGNORECASE
)
_PLACE = re.compile(r" ?at Line: (\d+), Column: (\d+)")
_QUOTED = re.compile(r"['\"`]([^'\"`]+)['\"`]")
_WORD_OF_SQL = re.compile(r"(?:unsupported function|found) '(\w+)'")


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
    if str(made) != str(made.meta.undo_aliases()) and not _AS.search(text):
        mend = 'name a column by `AS`, and write a column whose name is no word as "two words"'
        raise ConfigError(f"`{text}` is {made}: {mend}")
    if not typed:
        return made
    alias = _ALIAS.fullmatch(text)
    if alias is None:
        # Of a function, SQL names what it makes by the first column, even if a literal comes before.
        return Sql(text, next(iter(made.meta.root_names()), made.meta.output_name()))
    return Sql(alias[1], alias[2] or alias[3])


def in_integers(text: str) -> str:
    """A SQL text with 1 for each number that has a point."""
    return _DECIMAL.sub(lambda found: found[1] or "1", text)


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
    what += _as_column(text, message)
    marked = [f"    {each}" for each in shown]
    if column >= 0:
        marked.insert(line + 1, f"    {' ' * column}^")
    return "\n".join([f"this is no SQL expression: {what}", *marked])


def _as_column(text: str, message: str) -> str:
    """How to write a column that the message takes for a word of SQL, where the text has that in a column's place."""
    word = _WORD_OF_SQL.search(message)
    if word is None or re.search(rf"\b{word[1]}\s*[(.]", text, re.IGNORECASE):
        return ""
    name = re.search(
        rf"(?<![.\w])({word[1]})\s*(?:$|[-+*/%<>=!,)|]|(?:is|in|as|and|or|between)\b)", text, re.IGNORECASE
    )
    return f'; a column of this name is written "{name[1]}"' if name else ""


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
