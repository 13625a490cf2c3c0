"""Takes an expression of aggregates apart: into the aggregates, and what stands around them.

It works on the tree as which polars writes an expression, in which aggregates are replaced by columns of their results.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import polars as pl

from dpa.columns import _parts as parts
from dpa.columns._parts import Aggregate
from dpa.columns._rowwise import FLOATS, check_rowwise, is_separable
from dpa.columns.query import of_tree, tree_of
from dpa.errors import ConfigError

Node: TypeAlias = Any
"""A part of the tree: a mapping with one key, the kind of the node, or the name of a kind that has nothing below it."""

THERE_ARE = (
    "len, count, null_count, sum, mean, min, max, any, all, var, std, n_unique, implode, top_k, bottom_k, mode, "
    "max_by, min_by, sort_by(...).first and .last, approx_n_unique, quantile, median"
)

_AROUND: dict[str, tuple[str, ...]] = {  # what may stand around aggregates, with the keys of its inputs
    "Alias": (),
    "BinaryExpr": ("left", "right"),
    "Cast": ("expr",),
    "Ternary": ("predicate", "truthy", "falsy"),
    "Function": ("input",),
    "StructEval": ("expr",),
    "Eval": ("expr",),
}

_NO_NODES = frozenset({"function", "options", "dtype", "Literal", "sort_options", "op"})
"""Keys of the tree below which there are no expressions."""

_IN_ORDER = {"First", "FirstNonNull", "Last", "LastNonNull", "Item"}
"""Aggregates that take the row that happens to come first or last."""


def taken_apart(expression: pl.Expr, known: dict[str, Aggregate]) -> pl.Expr:
    """What stands around the aggregates, as an expression of columns named by the labels of the parts, which `known`
    gets. Raises ConfigError if there is no aggregate, a column outside of one, or one that cannot be."""
    tree = _tree(expression)
    if expression.meta.has_multiple_outputs():
        raise ConfigError("stands for several columns: write an aggregate for each")
    around = of_tree(_replaced(tree, known))
    if not around.meta.root_names():
        raise ConfigError(f"has no aggregate of the rows of a key; there are {THERE_ARE}")
    check_rowwise(around)
    return around


def with_columns_replaced(expression: pl.Expr, by: Mapping[str, pl.Expr]) -> pl.Expr:
    """The expression with others in place of the columns of these names."""
    trees = {name: _tree(each) for name, each in by.items()}

    def replaced(node: Node) -> Node:
        if isinstance(node, list):
            return [replaced(each) for each in node]
        if not isinstance(node, dict):
            return node
        if node.get("Column") in trees:
            return trees[node["Column"]]
        return {key: value if key in _NO_NODES else replaced(value) for key, value in node.items()}

    return of_tree(replaced(_tree(expression)))


def _tree(expression: pl.Expr) -> Node:
    try:
        return tree_of(expression, _finite)
    except (ModuleNotFoundError, TypeError, pl.exceptions.PolarsError):
        raise ConfigError(_CALLS) from None


def _finite(node: dict[str, Any]) -> dict[str, Any]:
    if any(value is None and key in FLOATS for key, value in node.items()):
        raise ConfigError("compares with infinity or NaN, or gives it: compute that in a step before")
    return node


_CALLS = "calls a Python function: compute what it returns in a step before"


def _replaced(node: Node, known: dict[str, Aggregate]) -> Node:
    node = _without_check(node)
    part = _part(node)
    if part is not None:
        known.setdefault(part.label, part)
        return {"Column": part.label}
    if node == "Element" or "Literal" in node:
        return node
    if "Column" in node:
        raise ConfigError(f"names the column {node['Column']!r} outside of an aggregate: {_MEND}")
    [kind], [inside] = node.keys(), node.values()
    if kind not in _AROUND or (kind == "Function" and not is_separable(node)):
        raise ConfigError(f"{_shown(node)} is no aggregate that can be merged; there are {THERE_ARE}")
    if kind == "Alias":
        return {kind: [_replaced(inside[0], known), inside[1]]}
    return {
        kind: {key: _inputs_replaced(value, known) if key in _AROUND[kind] else value for key, value in inside.items()}
    }


def _inputs_replaced(inputs: Node, known: dict[str, Aggregate]) -> Node:
    return [_replaced(each, known) for each in inputs] if isinstance(inputs, list) else _replaced(inputs, known)


def _without_check(node: Node) -> Node:
    """A sum without the check whether there are values, which SQL texts have: it is null without, anyway."""
    match node:
        case {"Ternary": {"predicate": {"BinaryExpr": check}, "truthy": {"Agg": {"Sum": of}}, "falsy": falsy}}:
            counted = {"Agg": {"Count": {"input": of, "include_nulls": False}}}
            if check == {"left": counted, "op": "Gt", "right": _ZERO} and falsy == _NULL:
                return {"Agg": {"Sum": of}}
    return node


_ZERO = {"Literal": {"Dyn": {"Int": 0}}}
_NULL = {"Literal": {"Scalar": {"Null": "Null"}}}
_MEND = "say what becomes of its values, as by `sum`, or group by it too"


def _shown(node: Node) -> str:
    return f"`{_short(of_tree(node))}`"


def _short(expression: pl.Expr) -> str:
    return re.sub(r'col\("([^"]*)"\)', r"\1", str(expression))


def _part(node: Node) -> Aggregate | None:
    """The aggregate that a node is; None: it is another expression, or an aggregate that there is not."""
    match node:
        case "Len":
            return parts.rows()
        case {"Agg": dict(inner)}:
            [(word, given)] = inner.items()
            return _of_agg(word, given)
        case {"Function": {"input": list(inputs), "function": function}}:
            return _of_function(function, inputs)
    return None


def _of_agg(word: str, given: Any) -> Aggregate | None:
    if word in ("First", "Last") and "SortBy" in given:
        sort = given["SortBy"]
        order = parts.Order(sort["sort_options"]["descending"], sort["sort_options"]["nulls_last"])
        return _at_end(word.lower(), sort["expr"], sort["by"], order)
    if word in _IN_ORDER:
        mend = "name the column to order by, as in `sort_by(...).first()` or `max_by(...)`"
        raise ConfigError(f"`{word.lower()}` depends on the order in which rows come: {mend}")
    of = given
    match word, given:
        case "Min", {"input": of, "propagate_nans": True}:
            return parts.least(_label("nan_min", of), _row_wise(of), nan=True)
        case "Count", {"include_nulls": True}:
            return None
        case (("Var" | "Std"), [of, int(ddof)]):
            label = _label(word.lower(), of, *([] if ddof == 1 else [ddof]))
            return parts.spread(label, _row_wise(of), ddof=ddof, root=word == "Std")
        case "NUnique", {"Function": {"input": [values], "function": "DropNulls"}}:
            return parts.different(_label("n_unique", of), _row_wise(values), nulls=False)
        case (("Min" | "Max" | "Count" | "Implode"), {"input": of}):
            pass
    if word not in _MADE:
        return None
    name, make = _MADE[word]
    return make(_label(name, of), _row_wise(of))


_MADE: dict[str, tuple[str, Callable[[str, pl.Expr], Aggregate]]] = {
    "Count": ("count", parts.count),
    "Implode": ("implode", parts.values_of),
    "Max": ("max", parts.greatest),
    "Mean": ("mean", parts.mean),
    "Median": ("median", lambda label, of: parts.about_quantile(label, of, 0.5)),
    "Min": ("min", parts.least),
    "NUnique": ("n_unique", parts.different),
    "Sum": ("sum", parts.sums),
}
"""The aggregates that have nothing to say but what they are of."""


def _of_function(function: Any, inputs: list[Node]) -> Aggregate | None:
    of, rest = inputs[0], inputs[1:]
    match function:
        case "NullCount":
            return parts.count(_label("null_count", of), _row_wise(of), nulls=True)
        case "ApproxNUnique":
            return parts.about_different(_label("approx_n_unique", of), _row_wise(of))
        case "MaxBy" | "MinBy":
            order = parts.Order([False], [function == "MinBy"], known=True)  # rows without a value never count
            return _at_end("last" if function == "MaxBy" else "first", of, rest, order)
        case {"Mode": _}:
            return parts.commonest(_label("mode", of), _row_wise(of))
        case {"Quantile": _}:
            share = _number("quantile", rest)
            return parts.about_quantile(_label("quantile", of, share), _row_wise(of), share)
        case {"TopK": {"descending": least}}:
            word = "bottom_k" if least else "top_k"
            k = int(_number(word, rest))
            return parts.extremes(_label(word, of, k), _row_wise(of), k, least=least)
        case {"Boolean": {"Any": {"ignore_nulls": ignored}}} | {"Boolean": {"All": {"ignore_nulls": ignored}}}:
            word = next(iter(function["Boolean"])).lower()
            label = _label(word, of, *([] if ignored else ["ignore_nulls=False"]))
            return parts.truth(label, _row_wise(of), every=word == "all", ignore_nulls=ignored)
    return None


def _at_end(end: str, of: Node, by: list[Node], order: parts.Order) -> Aggregate:
    columns = [_row_wise(each) for each in (of, *by)]
    for column in columns:
        if not column.meta.is_length_preserving():
            raise ConfigError(f"`{_short(column)}` does not have one value for each row, which an order of rows needs")
    keys = "" if not any(order.descending) and not any(order.nulls_last) else f", {order.descending, order.nulls_last}"
    label = f"{end}({_short(columns[0])} by {', '.join(map(_short, columns[1:]))}{keys}{', known' * order.known})"
    return parts.at_end(label, columns[0], columns[1:], order, last=end == "last")


def _label(word: str, of: Node, *more: object) -> str:
    return f"{word}({', '.join([_short(of_tree(of)), *map(str, more)])})"


def _row_wise(node: Node) -> pl.Expr:
    """What an aggregate is of. Raises ConfigError unless each of its values follows from one row, which may also give
    none or several of them."""
    expression, inner = of_tree(node), node
    while (found := _less_or_more(inner)) is not None:
        inner, conditions = found
        for condition in conditions:
            check_rowwise(of_tree(condition))
    check_rowwise(of_tree(inner))
    if not expression.meta.root_names():
        raise ConfigError(f"{_shown(node)} names no column; `len()` counts rows")
    return expression


def _less_or_more(node: Node) -> tuple[Node, list[Node]] | None:
    """What rows are left out of, or made of, and the conditions for that."""
    match node:
        case {"Filter": {"input": inner, "by": condition}}:
            return inner, [condition]
        case {"Function": {"input": [inner], "function": "DropNulls" | "DropNans"}} | {"Explode": {"input": inner}}:
            return inner, []
    return None


def _number(word: str, given: list[Node]) -> float:
    try:
        [number] = given
        found = pl.select(of_tree(number)).item()
        if isinstance(found, int | float) and found >= 0:
            return found
    except (ValueError, pl.exceptions.PolarsError):
        pass
    raise ConfigError(f"`{word}` needs a number that is known before rows come")
