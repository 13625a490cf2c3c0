"""What functions of polars are in Spark's SQL, by the names that polars serializes them under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dpa.spark._rules import Function, constant, template
from dpa.spark._texts import TEXTS
from dpa.spark._translation import FLOOR, RULES, Node, Translation, is_literal, operation, output_name, refusal
from dpa.spark.literals import literal, text
from dpa.spark.times import TIMES


def _alike(form: str) -> Function:
    """A function of any number of arguments of the type of its result."""

    def rule(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
        kind = made.kind(node)
        return form.format(", ".join(made.as_kind(each, kind) for each in given))

    return rule


def _of_floats(form: str) -> Function:
    """A function of a float64; integers are unchanged by those that round."""

    def rule(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
        kind = made.kind(given[0])
        if kind.is_integer() and made.kind(node) == kind:
            return made.sql(given[0])
        if isinstance(kind, pl.Decimal):
            raise refusal(node, "of decimals has no counterpart in Spark that dpa knows")
        return made.cast(form.format(made.as_kind(given[0], pl.Float64())), node)

    return rule


def _test_of_float(form: str) -> Function:
    """A test of a number that is null for null, unlike Spark's; `form` is for floats, and false of integers."""

    def rule(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
        value = made.sql(given[0])
        test = form.format(value) if made.kind(given[0]).is_float() else form.format("0D")
        return f"CASE WHEN {value} IS NOT NULL THEN {test} END"

    return rule


_INFINITE = "abs({0}) = CAST('Infinity' AS DOUBLE)"


def _is_in(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    if not is_literal(given[1]):
        raise refusal(node, "is in a column, which has no counterpart in Spark that dpa knows")
    values, kind = made.constants(given[1]), made.kind(given[0])
    known = values.drop_nulls().to_list()
    if known and kind.is_numeric() and kind != values.dtype:
        kind = pl.select(pl.when(True).then(pl.lit(None, kind)).otherwise(pl.lit(None, values.dtype))).dtypes[0]
    sql = made.as_kind(given[0], kind)
    found = f"({sql} IN ({', '.join(literal(value, kind) for value in known)}))" if known else None
    found = found or f"CASE WHEN {sql} IS NOT NULL THEN FALSE END"
    if options and options.get("nulls_equal"):
        return f"coalesce({found}, {str(len(known) < len(values)).upper()})"
    return found


_BOUNDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}


def _is_between(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    value, low, high = given
    words = {">=": "GtEq", "<=": "LtEq", ">": "Gt", "<": "Lt"}
    above, below = (words[sign] for sign in _BOUNDS[options["closed"]])
    return f"({operation(made, node, above, value, low)} AND {operation(made, node, below, value, high)})"


def _horizontal(word: str) -> Function:
    def rule(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
        return f"({f' {word} '.join(made.sql(each) for each in given)})"

    return rule


def _extreme(word: str) -> Function:
    """The greatest or least of columns: polars passes over NaN, which Spark has as the greatest."""

    def rule(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
        kind = made.kind(node)
        texts = [made.as_kind(each, kind) for each in given]
        if len(texts) == 1:
            return texts[0]
        plain = f"{word}({', '.join(texts)})"
        if not kind.is_float() or word == "least":
            return plain
        numbers = ", ".join(f"nullif({each}, {literal(float('nan'), kind)})" for each in texts)
        return f"coalesce({word}({numbers}), {plain})"

    return rule


def _clip(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    kind, bounds = made.kind(node), list(given[1:])
    value = found = made.as_kind(given[0], kind)
    if options["has_min"]:
        low = made.as_kind(bounds.pop(0), kind)
        found = f"CASE WHEN {found} < {low} THEN {low} ELSE {found} END"
    if options["has_max"]:
        high = made.as_kind(bounds.pop(0), kind)
        not_nan = f" AND NOT isnan({value})" if kind.is_float() else ""
        found = f"CASE WHEN {value} > {high}{not_nan} THEN {high} ELSE {found} END"
    return found


def _round(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    kind, digits = made.kind(given[0]), options["decimals"]
    half_even = options.get("mode", "HalfToEven" if kind.is_float() else "HalfAwayFromZero") == "HalfToEven"
    value = made.sql(given[0])
    if kind.is_integer():
        return value
    if isinstance(kind, pl.Decimal):
        return made.cast(f"{'bround' if half_even else 'round'}({value}, {digits})", node)
    value, scale = made.as_kind(given[0], pl.Float64()), f"{10**digits}D"
    scaled = f"({value} * {scale})" if digits else value
    whole = f"rint({scaled})" if half_even else f"round({scaled}, 0)"
    return made.cast(f"{whole} / {scale}" if digits else whole, node)


def _power(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
    kind = made.kind(node)
    texts = [made.as_kind(each, pl.Float64()) for each in given]
    if not kind.is_float() and not (kind.is_integer() and made.value(given[1]) in (0, 1, 2, 3)):
        raise refusal(node)
    if kind.is_integer():
        value, times = made.as_kind(given[0], kind), made.value(given[1])
        return f"({' * '.join([value] * times)})" if times else f"CASE WHEN {value} IS NOT NULL THEN 1 END"
    return made.cast(f"power({texts[0]}, {texts[1]})", node)


def _logarithm(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
    value, base = made.as_kind(given[0], pl.Float64()), made.value(given[1])
    known = {2.718281828459045: "ln({0})", 10.0: "log10({0})", 2.0: "log2({0})"}
    form = known.get(float(base), f"(ln({{0}}) / ln({float(base)}D))")
    below = "CASE WHEN {0} < 0 THEN CAST('NaN' AS DOUBLE) WHEN {0} = 0 THEN CAST('-Infinity' AS DOUBLE) ELSE "
    return made.cast((below + form + " END").format(value), node)


def _negated(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
    return f"(- {made.as_kind(given[0], made.kind(node))})"


def _sql_operation(op: str) -> Function:
    return lambda made, node, given, _: operation(made, node, op, given[0], given[1])


def _list_get(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    place = constant(made, given[1], int)
    return f"try_element_at({made.sql(given[0])}, {place + 1 if place >= 0 else place})"


def _field(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    return f"{made.sql(given[0])}.`{options}`"


def _struct(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    return f"named_struct({', '.join(f'{text(output_name(each))}, {made.sql(each)}' for each in given)})"


FUNCTIONS: dict[str, Function] = {
    "Boolean.Not": template("(NOT {})"),
    "Boolean.IsNull": template("({} IS NULL)"),
    "Boolean.IsNotNull": template("({} IS NOT NULL)"),
    "Boolean.IsNan": _test_of_float("isnan({0})"),
    "Boolean.IsNotNan": _test_of_float("NOT isnan({0})"),
    "Boolean.IsInfinite": _test_of_float(_INFINITE),
    "Boolean.IsFinite": _test_of_float("abs({0}) < CAST('Infinity' AS DOUBLE)"),
    "Boolean.IsIn": _is_in,
    "Sql.IsIn": _is_in,
    "Boolean.IsBetween": _is_between,
    "Boolean.AnyHorizontal": _horizontal("OR"),
    "Boolean.AllHorizontal": _horizontal("AND"),
    "Coalesce": _alike("coalesce({})"),
    "FillNull": _alike("coalesce({})"),
    "MaxHorizontal": _extreme("greatest"),
    "MinHorizontal": _extreme("least"),
    "Clip": _clip,
    "Negate": _negated,
    "Abs": _alike("abs({})"),
    "Floor": _of_floats(FLOOR),
    "Ceil": _of_floats("(- " + FLOOR.replace("{0}", "(- {0})") + ")"),
    "Sign": template("sign({})", "DOUBLE"),
    "Round": _round,
    "Sql.Round": _round,
    "Exp": _of_floats("exp({0})"),
    "Log": _logarithm,
    "Pow.Sqrt": _of_floats("sqrt({0})"),
    "Pow.Generic": _power,
    "Sql.ToFloat": lambda made, node, given, _: made.as_kind(given[0], made.kind(node)),
    **{f"Sql.Binary.{name}": _sql_operation(name) for name in ("Div", "Rem", "IntDiv", "Mul", "Plus", "Minus")},
    **TEXTS,
    **TIMES,
    "ListExpr.Length": template("cardinality({})", "INT"),
    "ListExpr.Get": _list_get,
    "ListExpr.Contains": template("array_contains({}, {})"),
    "ListExpr.Max": template("array_max({})"),
    "ListExpr.Min": template("array_min({})"),
    "StructExpr.FieldByName": _field,
    "AsStruct": _struct,
}

_FAMILIES = {name.partition(".")[0] for name in FUNCTIONS if "." in name}


def _function(made: Translation, node: Node, content: Mapping[str, Any]) -> str:
    """A function by its name, or by that of its family and its own; some have options."""
    name, path, options = content["function"], list[str](), None
    while isinstance(name, dict):
        word, options = next(iter(name.items()))
        path.append(word)
        name = options if word in _FAMILIES or path == ["Sql", "Binary"] else None
    rule = FUNCTIONS.get(".".join([*path, *([] if name is None else [name])]))
    if rule is None:
        raise refusal(node)
    return rule(made, node, content["input"], options)


def translation(schema: pl.Schema, texts: Mapping[str, str] | None = None) -> Translation:
    """What translates expressions over rows of these columns. `texts`: SQL in the place of some of them."""
    return Translation(schema, {**RULES, "Function": _function}, texts or {})
