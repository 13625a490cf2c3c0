"""SQL texts as expressions, and the mark under what is wrong in one."""

import polars as pl
import pytest
from random_columns import TRUNCATES

from dpa.columns._text import expression_of
from dpa.columns.query import Sql
from dpa.errors import ConfigError

WRONG = {
    "cents >": ("found: the end", 7),
    "cents > > 3": ("Expected: an expression, found: >", 8),
    "cents > 1 adn name = 'x'": ("found: name", 14),
    "name = 'x": ("Unterminated string literal", 7),
    "(cents": ("found: the end", 6),
    "cents) > 1": ("found: )", 5),
    "cents is nul": ("found: nul", 9),
    "cents in ()": ("found: )", 10),
    "no_such(cents)": ("unsupported function 'no_such'", 0),
    "cast(cents as money)": ('datatype "money" is not currently supported', 14),
    "extract(foo from day)": ("does not support 'foo' part", 8),
    "length(a, b, c)": ("no function matches the given name", 0),
    "cents > (select max(cents) from other)": ("relation 'other' was not found", 32),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mark_stands_under_the_place_where_a_text_is_wrong(text: str) -> None:
    said, place = WRONG[text]
    with pytest.raises(ConfigError) as error:
        expression_of(text)
    first, shown, mark = str(error.value).splitlines()
    assert first.startswith("this is no SQL expression: ") and said in first
    assert shown == f"    {text}"
    assert mark == f"    {' ' * place}^"


@pytest.mark.skipif(not TRUNCATES, reason="polars has no `date_trunc` in SQL")
def test_a_text_whose_types_are_looked_up_has_the_name_of_its_first_column() -> None:
    assert expression_of("date_trunc('month', day)") == Sql("date_trunc('month', day)", "day")


def test_the_mark_of_several_lines_stands_under_the_one_that_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"found: >\n    cents\n    > >\n      \^\n    3$"):
        expression_of("cents\n> >\n3")


def test_a_text_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="this is no SQL expression"):
        expression_of("")


@pytest.mark.parametrize(
    "text", ["sum(cents)", "count(*)", "rank() over (order by cents)", "lag(cents) over (order by day)"]
)
def test_a_text_that_looks_at_other_rows_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        expression_of(text)
    assert "other rows" in str(error.value) and str(error.value).endswith(f"\n    {text}")


@pytest.mark.skipif(not TRUNCATES, reason="polars has no `date_trunc`")
def test_what_needs_types_is_looked_at_as_well() -> None:
    assert expression_of("date_trunc('day', d) AS day") == Sql("date_trunc('day', d)", "day")
    with pytest.raises(ConfigError, match="`max` in"):
        expression_of("date_trunc('day', max(d))")
    with pytest.raises(ConfigError, match="found: the end"):
        expression_of("date_trunc('day', d")


def test_a_text_says_what_polars_makes_of_it() -> None:
    made = expression_of("cents / 100 AS euros")
    assert isinstance(made, pl.Expr)
    assert pl.DataFrame({"cents": [150]}).select(made).rows(named=True) == [{"euros": 1.5}]
