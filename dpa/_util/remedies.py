"""What to write where the type of a column does not do, in words."""

from __future__ import annotations


def converted(sql: str, python: str) -> str:
    """How to make another column of a column: an expression for inputs that Spark reads, and one for all rows."""
    return f"`{sql}` in the `select` of an input that Spark reads, or `{python}` in a function of a record"


def as_text(column: str) -> str:
    """How to make text of a column."""
    return converted(f"cast({column} AS string) AS {column}", f'str(row["{column}"])')
