"""polars expressions as SQL of Spark: the same values, whatever Spark's own functions of the same names give.

Where the meaning of an expression depends on types, polars says which they are. Every text has the type in Spark that
the expression has in polars, unsigned integers the next wider one. What has no counterpart is refused by name. Integers
that overflow are an error in Spark, and wrap around in polars."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import polars as pl

from dpa.columns.query import Sql, of_tree, tree_of
from dpa.errors import TableError
from dpa.spark._errors import quoted
from dpa.spark._literals import literal, name_of_type

Node: TypeAlias = "str | dict[str, Any]"
"""A part of an expression, as polars serializes it: a name, or one with what belongs to it."""

Rule: TypeAlias = "Callable[[Translation, Node, Any], str]"
"""Makes SQL of a node and what belongs to its name."""

_INFINITE = re.compile(r'"Float(32|64)?": null')  # what JSON makes of such constants


class UntranslatableError(TableError):
    """An expression has a part that has no counterpart in Spark; the message begins with the part."""


class Translation:
    """Expressions over rows of some columns, as SQL of Spark."""

    def __init__(self, schema: pl.Schema, rules: Mapping[str, Rule], texts: Mapping[str, str]) -> None:
        """`texts`: SQL in the place of columns, by their names."""
        self._rows = pl.LazyFrame(schema=schema)
        self._rules = rules
        self.texts = texts
        self._kinds: dict[str, pl.DataType] = {}

    def columns(self, expressions: Sequence[pl.Expr | Sql]) -> dict[str, str]:
        """The columns that expressions make, by name. UntranslatableError if a part has no counterpart."""
        return dict(pair for each in expressions for pair in self._made_by(each))

    def conditions(self, expressions: Sequence[pl.Expr | Sql]) -> list[str]:
        """What all must be true of, in the order of the expressions."""
        return [text for each in expressions for _, text in self._made_by(each)]

    def _made_by(self, expression: pl.Expr | Sql) -> Iterator[tuple[str, str]]:
        if isinstance(expression, Sql):
            yield expression.name, self.sql(_tree_of_text(expression.text))
            return
        tree = tree_of(expression)
        if _INFINITE.search(json.dumps(tree)):
            raise UntranslatableError(f"`{expression}` has a constant that is infinite or no number")
        names = self._rows.select(expression).collect_schema().names()
        for name, node in zip(names, self._expanded(tree, len(names)), strict=True):
            yield name, self.sql(_named(node))

    def sql(self, node: Node) -> str:
        name, content = (node, None) if isinstance(node, str) else next(iter(node.items()))
        rule = self._rules.get(name)
        if rule is None:
            raise refusal(node)
        return rule(self, node, content)

    def kind(self, node: Node) -> pl.DataType:
        text = json.dumps(node)
        if text not in self._kinds:
            self._kinds[text] = self._rows.select(of_tree(node).alias("of")).collect_schema()["of"]
        return self._kinds[text]

    def common(self, *nodes: Node) -> pl.DataType:
        """The type in which polars brings expressions together."""
        both = nodes[0]
        for node in nodes[1:]:
            both = {"Ternary": {"predicate": TRUE, "truthy": both, "falsy": node}}
        return self.kind(both)

    def as_kind(self, node: Node, kind: pl.DataType) -> str:
        if is_literal(node):
            return literal(self.value(node), kind)
        return self.sql(node) if self.kind(node) == kind else f"CAST({self.sql(node)} AS {name_of_type(kind)})"

    def cast(self, text: str, node: Node) -> str:
        """A text of Spark's, of another type than the node's, cast to that."""
        return f"CAST({text} AS {name_of_type(self.kind(node))})"

    def value(self, node: Node) -> Any:
        """The value of a literal, or of one that is cast; UntranslatableError if it is none."""
        if not is_literal(node):
            raise UntranslatableError(f"{shown(node)}: Spark needs a constant here")
        found = self.constants(node)
        return found[0] if len(found) == 1 else found.to_list()

    @staticmethod
    def constants(node: Node) -> pl.Series:
        """The values of a constant: of a list those in it."""
        found = pl.select(of_tree(node)).to_series()
        return found.explode() if isinstance(found.dtype, pl.List) else found

    def _expanded(self, tree: Any, times: int) -> list[Any]:
        """The tree with each of the columns that its selectors stand for."""
        if isinstance(tree, dict) and "Selector" in tree:
            chosen = self._rows.select(of_tree(tree)).collect_schema().names()
            return [{"Column": name} for name in chosen]
        if isinstance(tree, dict):
            parts = {key: self._expanded(value, times) for key, value in tree.items()}
            return [{key: values[each] for key, values in parts.items()} for each in range(times)]
        if isinstance(tree, list) and any(isinstance(each, dict | list) for each in tree):
            rows = [self._expanded(value, times) for value in tree]
            return [[values[each] for values in rows] for each in range(times)]
        return [tree] * times


_TRUNCATED = re.compile(r"\bdate_trunc\s*\(\s*'(\w+)'\s*,", re.IGNORECASE)

_EVERY = {"minute": "1m", "month": "1mo", "quarter": "1q"}
"""Units of SQL whose first letter is not polars' name of them."""


def _tree_of_text(text: str) -> Node:
    """A SQL text that polars translates only where it knows types: one that truncates times."""
    found: Node = _with_times_truncated(tree_of(pl.sql_expr(_TRUNCATED.sub(r"concat_ws('dpa.date_trunc.\1',", text))))
    return found


def _with_times_truncated(node: Any) -> Any:
    match node:
        case {"Function": {"input": [time], "function": {"StringExpr": {"ConcatHorizontal": {"delimiter": str(by)}}}}}:
            if by.startswith("dpa.date_trunc."):
                unit = by.rpartition(".")[2].lower()
                every = {"Literal": {"Scalar": {"String": _EVERY.get(unit, f"1{unit[0]}")}}}
                inputs = [_with_times_truncated(time), every]
                return {"Function": {"input": inputs, "function": {"TemporalExpr": "Truncate"}}}
    if isinstance(node, dict):
        return {key: _with_times_truncated(value) for key, value in node.items()}
    return [_with_times_truncated(each) for each in node] if isinstance(node, list) else node


def _named(node: Node) -> Node:
    """The expression without the names that it gets."""
    while isinstance(node, dict) and ({"Alias", "RenameAlias"} & {*node}):
        node = node["Alias"][0] if "Alias" in node else node["RenameAlias"]["expr"]
    return node


def shown(node: Node) -> str:
    try:
        return f"`{of_tree(node)}`"
    except pl.exceptions.PolarsError:
        return f"`{node}`"


NO_COUNTERPART = "has no counterpart in Spark that dpa knows"


def refusal(node: Node, why: str = NO_COUNTERPART) -> UntranslatableError:
    return UntranslatableError(f"{shown(node)} {why}")


@dataclass(frozen=True)
class Call:
    """A function in an expression, with its arguments and options."""

    made: Translation
    node: Node
    given: Sequence[Node]
    options: Any

    @property
    def kind(self) -> pl.DataType:
        return self.made.kind(self.node)

    def kind_of(self, place: int) -> pl.DataType:
        return self.made.kind(self.given[place])

    def zone_of(self, place: int) -> str | None:
        return _zone(self.kind_of(place))

    def sql(self, place: int) -> str:
        return self.made.sql(self.given[place])

    def all_sql(self) -> list[str]:
        return [self.made.sql(each) for each in self.given]

    def as_kind(self, place: int, kind: pl.DataType) -> str:
        return self.made.as_kind(self.given[place], kind)

    def alike(self) -> list[str]:
        """The arguments, each of the type of the result."""
        return [self.made.as_kind(each, self.kind) for each in self.given]

    def cast(self, text: str) -> str:
        return self.made.cast(text, self.node)

    def value(self, place: int) -> Any:
        return self.made.value(self.given[place])

    def constant(self, place: int, what: type) -> Any:
        value = self.value(place)
        if not isinstance(value, what):
            raise refusal(self.given[place], f"should be a constant of type {what.__name__} for Spark")
        return value

    def refusal(self, why: str = NO_COUNTERPART) -> UntranslatableError:
        return refusal(self.node, why)


Function: TypeAlias = Callable[[Call], str]
"""What a function of polars is in SQL."""

TRUE: Node = {"Literal": {"Scalar": {"Boolean": True}}}


def is_literal(node: Node) -> bool:
    if isinstance(node, str):
        return False
    name, content = next(iter(node.items()))
    return name == "Literal" or (name == "Cast" and is_literal(content["expr"]))


def _literal(made: Translation, node: Node, _: Any) -> str:
    return literal(made.value(node), made.kind(node))


def _column(made: Translation, node: Node, name: str) -> str:
    made.kind(node)  # polars' own error, if there is none
    return made.texts.get(name) or quoted(name)


_COMPARED = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=", "EqValidity": "<=>"}

_LOGICAL = {"And": ("AND", "&"), "Or": ("OR", "|"), "Xor": ("<>", "^")}  # operators on booleans, and on bits

_ADDED = {"Plus": "+", "Minus": "-", "Multiply": "*", "Mul": "*"}


def operation(made: Translation, node: Node, op: str, left: Node, right: Node) -> str:
    if op in _COMPARED:
        kind = made.common(left, right)
        return f"({made.as_kind(left, kind)} {_COMPARED[op]} {made.as_kind(right, kind)})"
    if op == "NotEqValidity":
        return f"(NOT {operation(made, node, 'EqValidity', left, right)})"
    kind = made.kind(node)
    if op in _LOGICAL:
        signs = _LOGICAL[op]
        sign = signs[0] if kind == pl.Boolean else signs[1]
        return f"({made.as_kind(left, kind)} {sign} {made.as_kind(right, kind)})"
    if kind == pl.String:
        return f"concat({made.as_kind(left, kind)}, {made.as_kind(right, kind)})"
    if kind.is_temporal():
        return _moved(made, node, op, left, right)
    if isinstance(kind, pl.Decimal):
        return _of_decimals(made, node, op, left, right)
    if not kind.is_numeric():
        raise refusal(node)
    one, other = made.as_kind(left, kind), made.as_kind(right, kind)
    if op in _ADDED:
        return f"({one} {_ADDED[op]} {other})"
    quotients = _OF_FLOATS if kind.is_float() else _OF_INTEGERS
    if op not in quotients:
        raise refusal(node)
    plain = "({one} / {other})" if op in ("TrueDivide", "Div") and is_literal(right) and made.value(right) else None
    text = (plain or quotients[op]).format(one=one, other=other)
    return made.cast(text, node) if kind == pl.Float32 else text


_QUOTIENT = "(CASE WHEN {other} = 0 THEN {one} * power({other}, -1) ELSE {one} / {other} END)"
"""Spark refuses to divide by 0, also floating-point numbers."""

FLOOR = "(CASE WHEN abs({0}) < 4503599627370496 THEN CAST(floor({0}) AS DOUBLE) ELSE {0} END)"
"""Spark's `floor` is a bigint, which holds neither NaN nor numbers beyond 2**63; from 2**52 on all are whole."""

_OF_FLOATS = {
    "TrueDivide": _QUOTIENT,
    "Divide": _QUOTIENT,
    "Div": _QUOTIENT,
    "FloorDivide": FLOOR.format(_QUOTIENT),
    "Modulus": f"({{one}} - {FLOOR.format(_QUOTIENT)} * {{other}})",
    "Rem": "(CASE WHEN {other} = 0 THEN CAST('NaN' AS DOUBLE) ELSE {one} % {other} END)",
}

_OF_INTEGERS = {
    "IntDiv": "({one} div nullif({other}, 0))",
    "Rem": "({one} % nullif({other}, 0))",
    "FloorDivide": (
        "({one} div nullif({other}, 0) - CASE WHEN {one} % nullif({other}, 0) <> 0 AND ({one} < 0) <> ({other} < 0) "
        "THEN 1 ELSE 0 END)"
    ),
    "Modulus": "(({one} % nullif({other}, 0) + {other}) % nullif({other}, 0))",
}


_DIGITS, _KEPT = 38, 6
"""The most digits of Spark's decimals, and how many behind the point they keep where they would have more."""


def _of_decimals(made: Translation, node: Node, op: str, left: Node, right: Node) -> str:
    """Spark rounds half up, polars half to even."""
    kind = made.kind(node)
    assert isinstance(kind, pl.Decimal)
    sign = {**_ADDED, "TrueDivide": "/", "Div": "/"}.get(op)
    if sign is None:
        raise refusal(node, "of decimals has no counterpart in Spark that dpa knows")
    (one, digits, scale), (other, more_digits, more_scale) = (_exact(made, side) for side in (left, right))
    if sign == "/":  # Spark's quotient has more digits behind the point the more its dividend has
        whole = digits - scale
        fits = whole + more_scale + kind.scale + more_digits + 1 <= _DIGITS or kind.scale <= _KEPT
        one = f"CAST({one} AS DECIMAL({whole + kind.scale},{kind.scale}))" if whole + kind.scale <= _DIGITS else one
    else:
        fits = scale + more_scale <= _KEPT or digits + more_digits < _DIGITS
    if not fits:
        raise refusal(node, "may have more digits than Spark's decimals keep")
    return made.cast(f"bround({one} {sign} {other}, {kind.scale})", node)


def _exact(made: Translation, node: Node) -> tuple[str, int, int]:
    """A decimal or integer with as few digits as it is known to have, and how many these are, and their scale."""
    kind = made.kind(node)
    if is_literal(node) and made.value(node) is not None:
        value = Decimal(str(made.value(node)))
        scale = max(-int(value.as_tuple().exponent), 0)
        return f"{value:f}BD", max(len(value.as_tuple().digits), scale), scale
    if isinstance(kind, pl.Decimal):
        return made.sql(node), kind.precision, kind.scale
    return made.as_kind(node, pl.Decimal(20, 0)), 20, 0


def _moved(made: Translation, node: Node, op: str, left: Node, right: Node) -> str:
    both = [made.kind(left), made.kind(right)]
    if op not in ("Plus", "Minus") or any(not kind.is_temporal() for kind in both):
        raise refusal(node)
    sides = [
        f"CAST({made.sql(side)} AS TIMESTAMP_NTZ)" if kind == pl.Date else made.sql(side)
        for side, kind in zip((left, right), both, strict=True)
    ]
    text = f"({sides[0]} {_ADDED[op]} {sides[1]})"
    return made.cast(text, node) if made.kind(node) == pl.Date else text


def _ternary(made: Translation, node: Node, content: Mapping[str, Node]) -> str:
    kind = made.kind(node)
    when, then, other = made.sql(content["predicate"]), content["truthy"], content["falsy"]
    return f"CASE WHEN {when} THEN {made.as_kind(then, kind)} ELSE {made.as_kind(other, kind)} END"


_WHOLE = r"'^[+-]?[0-9]+\\z'"
_NUMBER = r"'^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?\\z'"


def _cast(made: Translation, node: Node, content: Mapping[str, Any]) -> str:
    if is_literal(node):
        return _literal(made, node, None)
    given, to, is_strict = made.kind(content["expr"]), made.kind(node), content["options"] != "NonStrict"
    text = made.sql(content["expr"])
    if given == to:
        return text
    if not _may_cast(given, to):
        raise refusal(node, f"from {given} to {to} has no counterpart in Spark that dpa knows")
    if isinstance(to, pl.Decimal) and (given.is_float() or isinstance(given, pl.Decimal)):
        text = f"bround({text}, {to.scale})"
    cast = f"{'CAST' if is_strict else 'try_cast'}({text} AS {name_of_type(to)})"
    if given == pl.String and not is_strict and to.is_numeric():
        return f"CASE WHEN {text} RLIKE {_WHOLE if to.is_integer() else _NUMBER} THEN {cast} END"
    return cast


def _may_cast(given: pl.DataType, to: pl.DataType) -> bool:
    texts = (pl.String, pl.Categorical, pl.Enum)
    if isinstance(given, texts):
        return isinstance(to, texts) or (to.is_numeric() and not isinstance(to, pl.Decimal))
    if to == pl.String:
        return given.is_integer() or isinstance(given, pl.Decimal) or given in (pl.Boolean, pl.Date)
    if given.is_temporal() or to.is_temporal():
        both = {given.base_type(), to.base_type()}
        return both == {pl.Date, pl.Datetime} or (both == {pl.Datetime} and _zone(given) == _zone(to))
    return all(kind.is_numeric() or kind == pl.Boolean for kind in (given, to)) or given == pl.Null


def _zone(kind: pl.DataType) -> str | None:
    return getattr(kind, "time_zone", None)


RULES: dict[str, Rule] = {
    "Column": _column,
    "Literal": _literal,
    "Alias": lambda made, node, content: made.sql(content[0]),
    "BinaryExpr": lambda made, node, of: operation(made, node, of["op"], of["left"], of["right"]),
    "Ternary": _ternary,
    "Cast": _cast,
}
"""Rules for what expressions are made of but for functions."""
