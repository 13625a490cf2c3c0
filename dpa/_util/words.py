"""Words that messages share."""

from collections.abc import Iterable


def alternatives(names: Iterable[str]) -> str:
    """Names in a sentence, as `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def plural(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def converted(sql: str, python: str) -> str:
    """How to derive a column: by SQL where Spark reads the input, or by Python for any row."""
    return f"`{sql}` in the `select` of an input that Spark reads, or `{python}` in a function of a record"


def text_hint(column: str) -> str:
    return converted(f"cast({column} AS string) AS {column}", f'str(row["{column}"])')
