"""Aggregates of `agg` in Spark's SQL, with the values that `dpa.columns` gives them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import polars as pl

from dpa.columns.aggregation import Aggregation
from dpa.columns.query import of_tree, tree_of
from dpa.spark._translation import Node, Translation, refusal
from dpa.spark.expressions import translation

_ESTIMATED = 0.04  # five times the standard error of a sketch that estimates how many values are different


class Aggregates(NamedTuple):
    """What a step of aggregates makes of a group: SQL of each column, and how far an estimated one may be off."""

    columns: dict[str, str]
    tolerances: dict[str, float]


def aggregates(expressions: Mapping[str, pl.Expr], values: pl.Schema) -> Aggregates:
    """Expressions of aggregates, of rows with these values. UntranslatableError names the part that has no
    counterpart."""
    rows, found, tolerances = translation(values), dict[str, str](), dict[str, float]()
    for name, expression in expressions.items():
        parts = _Parts(rows, values)
        around = parts.replaced(tree_of(expression))
        found[name] = parts.around(around)
        if parts.is_estimated:
            tolerances[name] = _ESTIMATED
    return Aggregates(found, tolerances)


class _Parts:
    """The aggregates in an expression, each a column of what stands around them."""

    def __init__(self, rows: Translation, values: pl.Schema) -> None:
        self.texts: dict[str, str] = {}
        self.is_estimated = False
        self._nodes: dict[str, Node] = {}
        self._rows = rows
        self._values = values

    def around(self, node: Node) -> str:
        """What stands around the aggregates, as SQL with these in it."""
        if isinstance(node, dict) and "Column" in node:
            return self.texts[node["Column"]]
        whole = Aggregation({name: of_tree(each) for name, each in self._nodes.items()})
        made = translation(whole.result_of(self._values), self.texts)
        return made.conditions([of_tree(node)])[0]

    def replaced(self, node: Any) -> Any:
        rule = _rule(node)
        if rule is not None:
            name = f"dpa.part.{len(self._nodes)}"
            self.is_estimated |= "ApproxNUnique" in json.dumps(node)
            self.texts[name] = rule(self._rows, node)
            self._nodes[name] = node
            return {"Column": name}
        if isinstance(node, list):
            return [self.replaced(each) for each in node]
        if isinstance(node, dict):
            return {key: value if key == "Literal" else self.replaced(value) for key, value in node.items()}
        return node


class _Of(NamedTuple):
    """What an aggregate is of.

    Attributes:
        node: the expression of a row.
        text: the same as SQL.
        where: the rows that count, as SQL; empty: all.
        has_nulls: whether nulls count.
    """

    node: Node
    text: str
    where: str = ""
    has_nulls: bool = True

    def filtered(self, aggregate: str, *also: str) -> str:
        conditions = [each for each in (self.where, *also) if each]
        return f"{aggregate} FILTER (WHERE {' AND '.join(conditions)})" if conditions else aggregate


def _of(made: Translation, node: Node) -> _Of:
    conditions, has_nulls = [], True
    while isinstance(node, dict):
        match node:
            case {"Filter": {"input": inner, "by": by}}:
                conditions.append(made.sql(by))
            case {"Function": {"input": [inner], "function": "DropNulls"}}:
                has_nulls = False
            case {"Function": {"input": [inner], "function": "DropNans"}}:
                conditions.append(f"NOT isnan({made.sql(inner)})")
            case _:
                break
        node = inner
    return _Of(node, made.sql(node), " AND ".join(conditions), has_nulls)


_Rule = Callable[[Translation, Node], str]


def _rule(node: Any) -> _Rule | None:
    match node:
        case "Len":
            return lambda made, node: "count(*)"
        case {"Agg": dict(inner)}:
            [(word, given)] = inner.items()
            rule = _AGGREGATES.get(word)
            return _refused if rule is None else lambda made, node: rule(made, given)
        case {"Function": {"input": list(given), "function": function}}:
            word, options = next(iter(function.items())) if isinstance(function, dict) else (function, None)
            if word == "Boolean" and isinstance(options, dict):
                word, options = next(iter(options.items()))
            if word in _REFUSED:
                return _refused
            named = _FUNCTIONS.get(word)
            return None if named is None else lambda made, node: named(made, given, options)
    return None


def _refused(made: Translation, node: Node) -> str:
    raise refusal(node)


def _folded(form: str, *, as_floats: bool = False) -> Callable[[Translation, Any], str]:
    def rule(made: Translation, given: Any) -> str:
        of = _of(made, given["input"] if isinstance(given, dict) and "propagate_nans" in given else given)
        kind = made.kind(of.node)
        text = of.text
        if as_floats and not isinstance(kind, pl.Decimal):
            text = made.as_kind(of.node, pl.Float64())
        elif form == "sum({})" and (kind.is_float() or kind == pl.Boolean):
            text = made.as_kind(of.node, pl.Float64() if kind.is_float() else pl.Int64())
        return of.filtered(form.format(text))

    return rule


def _counted(made: Translation, given: Mapping[str, Any]) -> str:
    of = _of(made, given["input"])
    return of.filtered("count(*)" if given["include_nulls"] and of.has_nulls else f"count({of.text})")


def _spread(word: str) -> Callable[[Translation, Any], str]:
    def rule(made: Translation, given: Any) -> str:
        node, ddof = given
        if ddof not in (0, 1):
            raise refusal(node, f"with ddof={ddof} has no counterpart in Spark")
        of = _of(made, node)
        return of.filtered(f"{word}_{('pop', 'samp')[ddof]}({made.as_kind(of.node, pl.Float64())})")

    return rule


def _different(made: Translation, given: Any) -> str:
    of = _of(made, given)
    found = of.filtered(f"count(DISTINCT {of.text})")
    null = of.filtered("count(*)", f"{of.text} IS NULL")
    return f"({found} + least({null}, 1))" if of.has_nulls else found


def _values(made: Translation, given: Any) -> str:
    of = _of(made, given["input"] if isinstance(given, dict) and "maintain_order" in given else given)
    listed = of.filtered(f"collect_list(struct({of.text} AS v))", "" if of.has_nulls else f"{of.text} IS NOT NULL")
    return f"transform(sort_array({listed}), each -> each.v)"


def _end(last: bool) -> Callable[[Translation, Any], str]:
    """The value of the first or last row in an order; of rows that tie the least or greatest value."""

    def rule(made: Translation, given: Any) -> str:
        match given:
            case {"SortBy": {"expr": value, "by": by, "sort_options": {"descending": falls, "nulls_last": ends}}}:
                return _at_end(made, value, by, [falls, ends], last=last)
        raise refusal(given, "takes whatever row comes first or last")

    return rule


def _at_end(made: Translation, value: Node, by: list[Node], options: list[list[bool]], *, last: bool) -> str:
    of, keys, word = _of(made, value), [made.sql(each) for each in by], "max" if last else "min"
    if not any(map(any, options)):
        fields = ", ".join(f"{key} AS k{place}" for place, key in enumerate(keys))
        return f"({of.filtered(f'{word}(struct({fields}, {of.text} AS v))')}).v"
    if len(keys) > 1:
        raise refusal(value, "in an order by several columns that falls has no counterpart in Spark")
    falls, ends = (any(each) for each in options)
    listed = of.filtered(f"collect_list(struct({keys[0]} AS k, {of.text} AS v))")
    extreme = f"array_{'max' if last != falls else 'min'}(transform({listed}, each -> each.k))"
    if last == ends:
        extreme = f"CASE WHEN NOT exists({listed}, each -> each.k IS NULL) THEN {extreme} END"
    ties = f"filter({listed}, each -> each.k <=> {extreme})"
    return f"(array_{word}({ties})).v"


def _by(last: bool) -> Callable[[Translation, Any, Any], str]:
    def rule(made: Translation, given: Any, _: Any) -> str:
        value, by = given
        of, key = _of(made, value), made.sql(by)
        found = f"{'max' if last else 'min'}(struct({key} AS k, {of.text} AS v))"
        return f"({of.filtered(found, f'{key} IS NOT NULL')}).v"

    return rule


def _truth(word: str, otherwise: str) -> Callable[[Translation, Any, Any], str]:
    def rule(made: Translation, given: Any, options: Any) -> str:
        of = _of(made, given[0])
        found = of.filtered(f"{word}({of.text})")
        if options["ignore_nulls"]:
            return f"coalesce({found}, {otherwise})"
        nulls = of.filtered("count(*)", f"{of.text} IS NULL")
        decided = "TRUE" if otherwise == "FALSE" else "FALSE"
        return f"CASE WHEN {found} = {decided} THEN {decided} WHEN {nulls} = 0 THEN {otherwise} END"

    return rule


def _extremes(made: Translation, given: Any, options: Any) -> str:
    of, number = _of(made, given[0]), made.value(given[1])
    least = str(bool(options["descending"])).lower()
    return f"slice(sort_array({of.filtered(f'collect_list({of.text})')}, {least}), 1, {number})"


_AGGREGATES: dict[str, Callable[[Translation, Any], str]] = {
    "Count": _counted,
    "Sum": _folded("sum({})"),
    "Mean": _folded("avg({})", as_floats=True),
    "Min": _folded("min({})"),
    "Max": _folded("max({})"),
    "Var": _spread("var"),
    "Std": _spread("stddev"),
    "NUnique": _different,
    "Implode": _values,
    "First": _end(last=False),
    "Last": _end(last=True),
}

_REFUSED = {"Quantile", "Mode"}
"""A quantile's sketch bounds the rank of what it gives, which says nothing of how near its value is to Spark's."""

_FUNCTIONS: dict[str, Callable[[Translation, Any, Any], str]] = {
    "NullCount": lambda made, given, _: (of := _of(made, given[0])).filtered("count(*)", f"{of.text} IS NULL"),
    "ApproxNUnique": lambda made, given, _: _different(made, given[0]),
    "Any": _truth("bool_or", "FALSE"),
    "All": _truth("bool_and", "TRUE"),
    "MaxBy": _by(last=True),
    "MinBy": _by(last=False),
    "TopK": _extremes,
}
