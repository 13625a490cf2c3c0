"""Refuses expressions whose value in a row depends on other rows: a step on rows sees a part of them at a time.

An expression is walked as polars serializes it. Of a function polars itself says whether it may be computed in parts;
any other node must be one of those listed here."""

import json
import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from dpa.columns.query import of_tree, tree_of
from dpa.errors import ConfigError

_MOST_BYTES = 2**20  # of an expression with its literals, which is sent to every task

_INPUTS = {
    "Alias": (),
    "KeepName": (),
    "RenameAlias": ("expr",),
    "BinaryExpr": ("left", "right"),
    "Cast": ("expr",),
    "Ternary": ("predicate", "truthy", "falsy"),
    "Function": ("input",),
    "AnonymousFunction": ("input",),
    "StructEval": ("expr", "evaluation"),
    "Eval": ("expr",),
}
"""The kinds of nodes that may make a row's value, with the keys of their inputs; none: a list, or the only input."""

_LEAVES = {"Column", "Selector", "Field", "Element"}
FLOATS = ("Float", "Float32", "Float64")
"""Keys of numbers, as which polars writes null for infinity and NaN."""

_OF_A_ROW = ("List", "Array", "ListAgg", "ArrayAgg")  # variants of `Eval` that look at the elements of one row

_MEMBERS = re.compile(r'^\{?"Replace(Strict)?"|"(IsIn|ContainsAny|ReplaceMany|ExtractMany|FindMany)"')
"""Functions that take all values of their second and third input as one set."""

_TYPED = re.compile(r'^\{"(Sql|Reinterpret)"')
"""Functions of a row of which polars says nothing without the types of their inputs."""

_STEPS = {"explode": "explode", "filter": "filter", "drop_nulls": "filter", "drop_nans": "filter"}
"""What makes another number of rows, and the step that may."""

_RANDOM = ("sample", "shuffle")
_UNTYPED = bytes([*b"PLPYFN", 0x94, 0xC0])  # how polars writes a Python function without a return type


def check_rowwise(expression: pl.Expr) -> None:
    """Raises ConfigError, with what is wrong, where a row's value depends on other rows, or may do so."""
    size = len(expression.meta.serialize())
    if size > _MOST_BYTES:
        large = f"it holds literals of {size / 2**20:.1f} MB, and at most 1 MB of them is sent to every task"
        raise ConfigError(f"{large}: make a table of them, and join it")
    _check(tree_of(expression, _finite))


def has_rows(expression: pl.Expr) -> bool:
    """Whether it has a value for each row, rather than one for all."""
    return _has_rows(tree_of(expression, _finite))


def _has_rows(node: Any) -> bool:
    kind, inside = _parts(node)
    return kind in _LEAVES or any(map(_has_rows, _inputs(kind, inside)))


def _check(node: Any, *, is_member: bool = False) -> None:
    kind, inside = _parts(node)
    if is_member and kind != "Literal":
        values = f"{of_tree(node)} stands for its values in all rows there"
        raise ConfigError(f"{values}: give literals, or use `list.contains`")
    if kind in _LEAVES or (kind == "Literal" and (is_member or _parts(inside)[0] in ("Scalar", "Dyn"))):
        return
    if kind == "Literal":
        raise ConfigError("a Series has a value for each row of a whole table, and a step sees a part: join it instead")
    if kind == "AnonymousFunction" and bytes(inside["function"][: len(_UNTYPED)]) == _UNTYPED:
        raise ConfigError("a Python function needs `return_dtype`: types must be known before there are rows")
    word = _word(kind, node)
    _check_steady(word, node)
    if word in _STEPS:
        raise ConfigError(f"{_shown(word, node)} makes another number of rows: use the step `{_STEPS[word]}`")
    is_of_a_row = kind != "Eval" or inside["variant"] in _OF_A_ROW or "Array" in inside["variant"]
    if kind not in _INPUTS or not is_of_a_row:
        mend = "; aggregate by key" if kind in ("Agg", "Len") else ""
        raise ConfigError(f"{_shown(word, node)} looks at other rows, and a step on rows sees each by itself{mend}")
    if kind in ("Function", "AnonymousFunction") and not is_separable(node):
        raise ConfigError(f"{_shown(word, node)} looks at other rows, and a step on rows sees each by itself")
    if kind == "Eval":
        _check_inside(inside["evaluation"])
    members = range(1, 3) if kind == "Function" and _MEMBERS.search(json.dumps(inside["function"])) else ()
    for position, each in enumerate(_inputs(kind, inside)):
        _check(each, is_member=position in members)


def _check_steady(word: str, node: Any) -> None:
    if word.startswith(_RANDOM):
        raise ConfigError(f"{_shown(word, node)} is random, and a row that is read again must give the same")
    if word == "to_physical":
        raise ConfigError(f"{_shown(word, node)} may give other numbers in every task: use `cast`")


def _check_inside(tree: Any) -> None:
    """What is computed of the elements of one row may look at all of them."""
    if isinstance(tree, dict) and len(tree) == 1 and "Function" in tree:
        _check_steady(_word("Function", tree), tree)
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        _check_inside(part)


def _parts(node: Any) -> tuple[str, Any]:
    return (node, {}) if isinstance(node, str) else next(iter(node.items()))


def _inputs(kind: str, inside: Any) -> Iterator[Any]:
    if kind == "Alias":
        yield inside[0]
    elif kind == "KeepName":
        yield inside
    for key in _INPUTS.get(kind, ()):
        yield from inside[key] if isinstance(inside[key], list) else [inside[key]]


def is_separable(node: Any) -> bool:
    """Whether polars computes a function in parts, whatever its inputs are."""
    kind, inside = _parts(node)
    bare = [each if _parts(each)[0] == "Literal" else {"Column": "x"} for each in inside["input"]]
    try:
        return of_tree({kind: {**inside, "input": bare}}).meta.is_row_separable()
    except pl.exceptions.PolarsError:
        if kind == "Function" and not _TYPED.search(json.dumps(inside["function"])):
            return False
    typed = [{"Literal": {"Dyn": {"Int": 1}}}] * len(bare)
    try:
        return of_tree({kind: {**inside, "input": typed}}).meta.is_row_separable()
    except pl.exceptions.PolarsError:
        return False


def _word(kind: str, node: Any) -> str:
    """The method that made a node, as polars writes it last."""
    if kind == "AnonymousFunction":
        return "map_batches"
    text, depth = str(of_tree(node)), 0
    for position in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[position], 0)
        if depth == 0 and text[-1] == ")":
            return re.split(r"\W", text[:position])[-1]
    return kind.lower()


def _shown(word: str, node: Any) -> str:
    return f"`{word}` in {of_tree(node)}"


def _finite(node: dict[str, Any]) -> dict[str, Any]:
    """JSON has neither infinity nor NaN; which number a literal is makes no difference here."""
    return {key: 0.0 if value is None and key in FLOATS else value for key, value in node.items()}
