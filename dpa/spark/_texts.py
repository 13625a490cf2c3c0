"""Functions of texts in Spark's SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpa.spark._rules import Function, constant, template
from dpa.spark._translation import Node, Translation, refusal
from dpa.spark.literals import text
from dpa.spark.times import parsed

_WHITE = r"(?U)^\s+|\s+\z"


def _stripped(side: str, pattern: str) -> Function:
    def rule(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
        value, what = made.sql(given[0]), made.value(given[1])
        if what is None:
            return f"regexp_replace({value}, {text(pattern)}, '')"
        return f"trim({side} {text(what)} FROM {value})" if what else value

    return rule


def _prefix(form: str, test: str) -> Function:
    def rule(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
        value, what = made.sql(given[0]), constant(made, given[1], str)
        cut = form.format(value, len(what))
        return f"CASE WHEN {test}({value}, {text(what)}) THEN {cut} ELSE {value} END"

    return rule


def _slice(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
    value, offset, length = made.sql(given[0]), constant(made, given[1], int), made.value(given[2])
    start = offset + 1 if offset >= 0 else offset
    return f"substring({value}, {start})" if length is None else f"substring({value}, {start}, {length})"


def _head(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
    value, length = made.sql(given[0]), constant(made, given[1], int)
    return f"left({value}, {length if length >= 0 else f'length({value}) - {-length}'})"


def _tail(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
    value, length = made.sql(given[0]), constant(made, given[1], int)
    return f"right({value}, {length})" if length >= 0 else f"substring({value}, {1 - length})"


def _pattern(made: Translation, node: Node) -> str:
    """A regular expression of Rust's as one of Java's: classes are Unicode's, and lines end at a line feed alone."""
    pattern = constant(made, node, str)
    if re.search(r"\(\?[a-z]*x|\\[pPhHRXQE]|&&|\[\^?\]|\(\?<|\(\?P", pattern):
        raise refusal(node, "is a regular expression that Java may read differently")
    ended = pattern[:-1] + r"\z" if re.search(r"(^|[^\\])\$$", pattern) and "(?m" not in pattern else pattern
    return text("(?dU)" + ended)


def _contains(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    if options["literal"]:
        return f"contains({made.sql(given[0])}, {made.sql(given[1])})"
    return f"({made.sql(given[0])} RLIKE {_pattern(made, given[1])})"


def _replaced(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    value, what, by = made.sql(given[0]), constant(made, given[1], str), constant(made, given[2], str)
    if options["n"] not in (1, -1) or not what:
        raise refusal(node)
    if options["literal"] and options["n"] == -1:
        return f"replace({value}, {text(what)}, {text(by)})"
    if options["literal"]:
        at = f"instr({value}, {text(what)})"
        rest = f"concat(substring({value}, 1, {at} - 1), {text(by)}, substring({value}, {at} + {len(what)}))"
        return f"CASE WHEN {at} > 0 THEN {rest} ELSE {value} END"
    groups = re.sub(r"\$\{(\d+)\}", r"$\1", by)
    if options["n"] == 1 or "\\" in by or "$" in re.sub(r"\$\{\d+\}", "", by):
        raise refusal(node)
    return f"regexp_replace({value}, {_pattern(made, given[1])}, {text(groups)})"


def _split(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    by = constant(made, given[1], str)
    if not by or options:
        raise refusal(node)
    return f"split({made.sql(given[0])}, {text(re.escape(by))}, -1)"


def _joined(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    texts = [made.sql({"Cast": {"expr": each, "dtype": {"Literal": "String"}, "options": "Strict"}}) for each in given]
    by, found = options["delimiter"], list[str]()
    if options["ignore_nulls"]:
        return f"concat_ws({text(by)}, {', '.join(texts)})"
    for each in texts:
        found += [text(by), each] if found and by else [each]
    return f"concat({', '.join(found)})"


def _padded(word: str) -> Function:
    def rule(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
        value, length = made.sql(given[0]), constant(made, given[1], int)
        return f"CASE WHEN length({value}) >= {length} THEN {value} ELSE " + (
            f"{word}({value}, {length}, {text(options['fill_char'])}) END"
        )

    return rule


TEXTS: dict[str, Function] = {
    "StringExpr.Uppercase": template("upper({})"),
    "StringExpr.Lowercase": template("lower({})"),
    "StringExpr.LenChars": template("length({})", "INT"),
    "StringExpr.LenBytes": template("octet_length({})", "INT"),
    "StringExpr.StartsWith": template("startswith({}, {})"),
    "StringExpr.EndsWith": template("endswith({}, {})"),
    "StringExpr.Reverse": template("reverse({})"),
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
    "StringExpr.Strptime": parsed,
}
