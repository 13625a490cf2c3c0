"""What rules for functions are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from dpa.spark._translation import Node, Translation, refusal
from dpa.spark.literals import name_of_type

Function = Callable[[Translation, Node, Sequence[Node], Any], str]


def template(form: str, gives: str | None = None, kind: pl.DataType | None = None) -> Function:
    """A function whose arguments stand in a text. Where Spark `gives` another type than polars, it is cast; `kind`: the
    type of all arguments, if not their own."""

    def rule(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
        texts = [made.sql(each) if kind is None else made.as_kind(each, kind) for each in given]
        found = form.format(*texts)
        return found if gives in (None, name_of_type(made.kind(node))) else made.cast(found, node)

    return rule


def constant(made: Translation, node: Node, what: type) -> Any:
    value = made.value(node)
    if not isinstance(value, what):
        raise refusal(node, f"should be a constant of type {what.__name__} for Spark")
    return value
