"""What functions of polars are in Spark's SQL, by the names that polars serializes them under."""

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from dpa.columns.query import of_tree
from dpa.spark._literals import literal, name_of_type, text
from dpa.spark._translation import (
    FLOOR,
    NO_COUNTERPART,
    RULES,
    Call,
    Function,
    Node,
    Translation,
    is_literal,
    operation,
    refusal,
)
from dpa.spark.times import TIMES


def _template(form: str, gives: str | None = None) -> Function:
    """A function whose arguments stand in a text. Where Spark `gives` another type than polars, it is cast."""

    def rule(of: Call) -> str:
        found = form.format(*of.all_sql())
        return found if gives in (None, name_of_type(of.kind)) else of.cast(found)

    return rule


def _of_floats(form: str) -> Function:
    """A function of a float64; integers are unchanged by those that round."""

    def rule(of: Call) -> str:
        kind = of.kind_of(0)
        if kind.is_integer() and of.kind == kind:
            return of.sql(0)
        if isinstance(kind, pl.Decimal):
            raise of.refusal(f"of decimals {NO_COUNTERPART}")
        return of.cast(form.format(of.as_kind(0, pl.Float64())))

    return rule


def _test_of_float(form: str) -> Function:
    """A test of a number that is null for null, unlike Spark's; `form` is for floats, and false of integers."""

    def rule(of: Call) -> str:
        value = of.sql(0)
        test = form.format(value) if of.kind_of(0).is_float() else form.format("0D")
        return f"CASE WHEN {value} IS NOT NULL THEN {test} END"

    return rule


_INFINITE = "abs({0}) = CAST('Infinity' AS DOUBLE)"


def _is_in(of: Call) -> str:
    if not is_literal(of.given[1]):
        raise of.refusal(f"is in a column, which {NO_COUNTERPART}")
    values, kind = of.made.constants(of.given[1]), of.kind_of(0)
    known = values.drop_nulls().to_list()
    if known and kind.is_numeric() and kind != values.dtype:
        kind = pl.select(pl.when(True).then(pl.lit(None, kind)).otherwise(pl.lit(None, values.dtype))).dtypes[0]
    sql = of.as_kind(0, kind)
    found = f"({sql} IN ({', '.join(literal(value, kind) for value in known)}))" if known else None
    found = found or f"CASE WHEN {sql} IS NOT NULL THEN FALSE END"
    if of.options and of.options.get("nulls_equal"):
        return f"coalesce({found}, {str(len(known) < len(values)).upper()})"
    return found


_BOUNDS = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}


def _is_between(of: Call) -> str:
    value, low, high = of.given
    above, below = _BOUNDS[of.options["closed"]]
    return f"({operation(of.made, of.node, above, value, low)} AND {operation(of.made, of.node, below, value, high)})"


def _extreme(word: str) -> Function:
    """The greatest or least of columns: polars passes over NaN, which Spark has as the greatest."""

    def rule(of: Call) -> str:
        texts = of.alike()
        if len(texts) == 1:
            return texts[0]
        plain = f"{word}({', '.join(texts)})"
        if not of.kind.is_float() or word == "least":
            return plain
        numbers = ", ".join(f"nullif({each}, {literal(float('nan'), of.kind)})" for each in texts)
        return f"coalesce({word}({numbers}), {plain})"

    return rule


def _clip(of: Call) -> str:
    value, *bounds = of.alike()
    found = value
    if of.options["has_min"]:
        low = bounds.pop(0)
        found = f"CASE WHEN {found} < {low} THEN {low} ELSE {found} END"
    if of.options["has_max"]:
        high = bounds.pop(0)
        not_nan = f" AND NOT isnan({value})" if of.kind.is_float() else ""
        found = f"CASE WHEN {value} > {high}{not_nan} THEN {high} ELSE {found} END"
    return found


def _round(of: Call) -> str:
    kind, digits = of.kind_of(0), of.options["decimals"]
    half_even = of.options.get("mode", "HalfToEven" if kind.is_float() else "HalfAwayFromZero") == "HalfToEven"
    if kind.is_integer():
        return of.sql(0)
    if isinstance(kind, pl.Decimal):
        return of.cast(f"{'bround' if half_even else 'round'}({of.sql(0)}, {digits})")
    value, scale = of.as_kind(0, pl.Float64()), f"{10**digits}D"
    scaled = f"({value} * {scale})" if digits else value
    whole = f"rint({scaled})" if half_even else f"round({scaled}, 0)"
    return of.cast(f"{whole} / {scale}" if digits else whole)


def _power(of: Call) -> str:
    if not of.kind.is_float() and not (of.kind.is_integer() and of.value(1) in (0, 1, 2, 3)):
        raise of.refusal()
    if of.kind.is_integer():
        value, times = of.as_kind(0, of.kind), of.value(1)
        return f"({' * '.join([value] * times)})" if times else f"CASE WHEN {value} IS NOT NULL THEN 1 END"
    return of.cast(f"power({of.as_kind(0, pl.Float64())}, {of.as_kind(1, pl.Float64())})")


def _logarithm(of: Call) -> str:
    value, base = of.as_kind(0, pl.Float64()), of.value(1)
    known = {2.718281828459045: "ln({0})", 10.0: "log10({0})", 2.0: "log2({0})"}
    form = known.get(float(base), f"(ln({{0}}) / ln({float(base)}D))")
    below = "CASE WHEN {0} < 0 THEN CAST('NaN' AS DOUBLE) WHEN {0} = 0 THEN CAST('-Infinity' AS DOUBLE) ELSE "
    return of.cast((below + form + " END").format(value))


def _sql_operation(op: str) -> Function:
    return lambda of: operation(of.made, of.node, op, of.given[0], of.given[1])


def _list_get(of: Call) -> str:
    place = of.constant(1, int)
    return f"try_element_at({of.sql(0)}, {place + 1 if place >= 0 else place})"


def _struct(of: Call) -> str:
    names = (text(of_tree(each).meta.output_name()) for each in of.given)
    return f"named_struct({', '.join(f'{name}, {value}' for name, value in zip(names, of.all_sql(), strict=True))})"


_WHITE = r"(?U)^\s+|\s+\z"


def _stripped(side: str, pattern: str) -> Function:
    def rule(of: Call) -> str:
        value, what = of.sql(0), of.value(1)
        if what is None:
            return f"regexp_replace({value}, {text(pattern)}, '')"
        return f"trim({side} {text(what)} FROM {value})" if what else value

    return rule


def _prefix(form: str, test: str) -> Function:
    def rule(of: Call) -> str:
        value, what = of.sql(0), of.constant(1, str)
        return f"CASE WHEN {test}({value}, {text(what)}) THEN {form.format(value, len(what))} ELSE {value} END"

    return rule


def _slice(of: Call) -> str:
    value, offset, length = of.sql(0), of.constant(1, int), of.value(2)
    start = offset + 1 if offset >= 0 else offset
    return f"substring({value}, {start})" if length is None else f"substring({value}, {start}, {length})"


def _head(of: Call) -> str:
    value, length = of.sql(0), of.constant(1, int)
    return f"left({value}, {length if length >= 0 else f'length({value}) - {-length}'})"


def _tail(of: Call) -> str:
    value, length = of.sql(0), of.constant(1, int)
    return f"right({value}, {length})" if length >= 0 else f"substring({value}, {1 - length})"


def _pattern(of: Call) -> str:
    """A regular expression of Rust's as one of Java's: classes are Unicode's, and lines end at a line feed alone."""
    pattern = of.constant(1, str)
    if re.search(r"\(\?[a-z]*x|\\[pPhHRXQE]|&&|\[\^?\]|\(\?<|\(\?P", pattern):
        raise refusal(of.given[1], "is a regular expression that Java may read differently")
    ended = pattern[:-1] + r"\z" if re.search(r"(^|[^\\])\$$", pattern) and "(?m" not in pattern else pattern
    return text("(?dU)" + ended)


def _contains(of: Call) -> str:
    if of.options["literal"]:
        return f"contains({of.sql(0)}, {of.sql(1)})"
    return f"({of.sql(0)} RLIKE {_pattern(of)})"


def _replaced(of: Call) -> str:
    value, what, by, options = of.sql(0), of.constant(1, str), of.constant(2, str), of.options
    if options["n"] not in (1, -1) or not what:
        raise of.refusal()
    if options["literal"] and options["n"] == -1:
        return f"replace({value}, {text(what)}, {text(by)})"
    if options["literal"]:
        at = f"instr({value}, {text(what)})"
        rest = f"concat(substring({value}, 1, {at} - 1), {text(by)}, substring({value}, {at} + {len(what)}))"
        return f"CASE WHEN {at} > 0 THEN {rest} ELSE {value} END"
    groups = re.sub(r"\$\{(\d+)\}", r"$\1", by)
    if options["n"] == 1 or "\\" in by or "$" in re.sub(r"\$\{\d+\}", "", by):
        raise of.refusal()
    return f"regexp_replace({value}, {_pattern(of)}, {text(groups)})"


def _split(of: Call) -> str:
    by = of.constant(1, str)
    if not by or of.options:
        raise of.refusal()
    return f"split({of.sql(0)}, {text(re.escape(by))}, -1)"


def _joined(of: Call) -> str:
    as_text = ({"Cast": {"expr": each, "dtype": {"Literal": "String"}, "options": "Strict"}} for each in of.given)
    texts = [of.made.sql(each) for each in as_text]
    by, found = of.options["delimiter"], list[str]()
    if of.options["ignore_nulls"]:
        return f"concat_ws({text(by)}, {', '.join(texts)})"
    for each in texts:
        found += [text(by), each] if found and by else [each]
    return f"concat({', '.join(found)})"


def _padded(word: str) -> Function:
    def rule(of: Call) -> str:
        value, length = of.sql(0), of.constant(1, int)
        padded = f"{word}({value}, {length}, {text(of.options['fill_char'])})"
        return f"CASE WHEN length({value}) >= {length} THEN {value} ELSE {padded} END"

    return rule


FUNCTIONS: dict[str, Function] = {
    "Boolean.Not": _template("(NOT {})"),
    "Boolean.IsNull": _template("({} IS NULL)"),
    "Boolean.IsNotNull": _template("({} IS NOT NULL)"),
    "Boolean.IsNan": _test_of_float("isnan({0})"),
    "Boolean.IsNotNan": _test_of_float("NOT isnan({0})"),
    "Boolean.IsInfinite": _test_of_float(_INFINITE),
    "Boolean.IsFinite": _test_of_float("abs({0}) < CAST('Infinity' AS DOUBLE)"),
    "Boolean.IsIn": _is_in,
    "Sql.IsIn": _is_in,
    "Boolean.IsBetween": _is_between,
    "Boolean.AnyHorizontal": lambda of: f"({' OR '.join(of.all_sql())})",
    "Boolean.AllHorizontal": lambda of: f"({' AND '.join(of.all_sql())})",
    "Coalesce": lambda of: f"coalesce({', '.join(of.alike())})",
    "FillNull": lambda of: f"coalesce({', '.join(of.alike())})",
    "MaxHorizontal": _extreme("greatest"),
    "MinHorizontal": _extreme("least"),
    "Clip": _clip,
    "Negate": lambda of: f"(- {of.alike()[0]})",
    "Abs": lambda of: f"abs({of.alike()[0]})",
    "Floor": _of_floats(FLOOR),
    "Ceil": _of_floats("(- " + FLOOR.replace("{0}", "(- {0})") + ")"),
    "Sign": _template("sign({})", "DOUBLE"),
    "Round": _round,
    "Sql.Round": _round,
    "Exp": _of_floats("exp({0})"),
    "Log": _logarithm,
    "Pow.Sqrt": _of_floats("sqrt({0})"),
    "Pow.Generic": _power,
    "Sql.ToFloat": lambda of: of.alike()[0],
    **{f"Sql.Binary.{name}": _sql_operation(name) for name in ("Div", "Rem", "IntDiv", "Mul", "Plus", "Minus")},
    "StringExpr.Uppercase": _template("upper({})"),
    "StringExpr.Lowercase": _template("lower({})"),
    "StringExpr.LenChars": _template("length({})", "INT"),
    "StringExpr.LenBytes": _template("octet_length({})", "INT"),
    "StringExpr.StartsWith": _template("startswith({}, {})"),
    "StringExpr.EndsWith": _template("endswith({}, {})"),
    "StringExpr.Reverse": _template("reverse({})"),
    "StringExpr.Contains": _contains,
    "StringExpr.Replace": _replaced,
    "StringExpr.StripChars": _stripped("BOTH", _WHITE),
    "StringExpr.StripCharsStart": _stripped("LEADING", r"(?U)^\s+"),
    "StringExpr.StripCharsEnd": _stripped("TRAILING", r"(?U)\s+\z"),
    "StringExpr.StripPrefix": _prefix("substring({0}, {1} + 1)", "startswith"),
    "StringExpr.StripSuffix": _prefix("left({0}, length({0}) - {1})", "endswith"),
    "StringExpr.Slice": _slice,
    "StringExpr.Head": _head,
    "StringExpr.Tail": _tail,
    "StringExpr.Split": _split,
    "StringExpr.PadStart": _padded("lpad"),
    "StringExpr.PadEnd": _padded("rpad"),
    "StringExpr.ConcatHorizontal": _joined,
    **TIMES,
    "ListExpr.Length": _template("cardinality({})", "INT"),
    "ListExpr.Get": _list_get,
    "ListExpr.Contains": _template("array_contains({}, {})"),
    "ListExpr.Max": _template("array_max({})"),
    "ListExpr.Min": _template("array_min({})"),
    "StructExpr.FieldByName": lambda of: f"{of.sql(0)}.`{of.options}`",
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
    return rule(Call(made, node, content["input"], options))


def translation(schema: pl.Schema, texts: Mapping[str, str] | None = None) -> Translation:
    """What translates expressions over rows of these columns. `texts`: SQL in the place of some of them."""
    return Translation(schema, {**RULES, "Function": _function}, texts or {})
