"""Functions of times, dates and durations in Spark's SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpa.spark._rules import Function
from dpa.spark._translation import Node, Translation, refusal
from dpa.spark.literals import text


def local(made: Translation, node: Node) -> str:
    """A time as its calendar and clock show it where its time zone is."""
    kind = made.kind(node)
    zone = getattr(kind, "time_zone", None)
    return made.sql(node) if zone is None else f"convert_timezone('{zone}', CAST({made.sql(node)} AS TIMESTAMP_NTZ))"


def _part(form: str) -> Function:
    def rule(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
        return made.cast(form.format(local(made, given[0])), node)

    return rule


_EPOCH = "TIMESTAMP_NTZ'1970-01-01'"


def since_epoch(time: str, zone: str | None) -> str:
    """Microseconds since 1970 of a time without a zone, a date, or a moment, which has one."""
    moment = f"CAST({time} AS TIMESTAMP_NTZ)"
    moment = moment if zone is None else f"convert_timezone('UTC', {moment})"
    return f"timestampdiff(MICROSECOND, {_EPOCH}, {moment})"


def _since_epoch(made: Translation, node: Node) -> str:
    return since_epoch(made.sql(node), getattr(made.kind(node), "time_zone", None))


_UNITS = {
    "us": 1,
    "ms": 10**3,
    "s": 10**6,
    "m": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
    "w": 7 * 86400 * 10**6,
}

_MONTHS = {"mo": "MONTH", "q": "QUARTER", "y": "YEAR"}

_MONDAY = 4 * 86400 * 10**6
"""1970-01-05 in microseconds: weeks begin on Mondays."""


def _every(made: Translation, node: Node) -> tuple[int, str]:
    found = re.fullmatch(r"(-?\d+)(us|ms|s|m|h|d|w|mo|q|y)", str(made.value(node)))
    if found is None:
        raise refusal(node, "is a duration that has no counterpart in Spark that dpa knows")
    return int(found[1]), found[2]


def _without_zone(made: Translation, node: Node, given: Node) -> str:
    if getattr(made.kind(given), "time_zone", None) not in (None, "UTC"):
        raise refusal(node, "in a time zone has no counterpart in Spark that dpa knows")
    return f"CAST({local(made, given)} AS TIMESTAMP_NTZ)"


def _truncated(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
    value, (number, unit) = _without_zone(made, node, given[0]), _every(made, given[1])
    if unit in _MONTHS:
        if number != 1:
            raise refusal(node)
        return made.cast(f"date_trunc('{_MONTHS[unit]}', {value})", node)
    origin = f" - {_MONDAY}" if unit == "w" else ""
    past = f"pmod({_since_epoch(made, given[0])}{origin}, {number * _UNITS[unit]})"
    return made.cast(f"timestampadd(MICROSECOND, - {past}, {value})", node)


def _moved_by(made: Translation, node: Node, given: Sequence[Node], _: Any) -> str:
    value, (number, unit) = _without_zone(made, node, given[0]), _every(made, given[1])
    if unit in _MONTHS:
        months = number * {"mo": 1, "q": 3, "y": 12}[unit]
        return made.cast(f"({value} + make_ym_interval(0, {months}))", node)
    return made.cast(f"timestampadd(MICROSECOND, {number * _UNITS[unit]}, {value})", node)


_LETTERS = {
    "Y": "yyyy",
    "m": "MM",
    "d": "dd",
    "H": "HH",
    "M": "mm",
    "S": "ss",
    "y": "yy",
    "j": "DDD",
    "F": "yyyy-MM-dd",
}
_LETTERS |= {"T": "HH:mm:ss", "%": "%"}


def _format(made: Translation, node: Node, given: str) -> str:
    """A format of `strftime` as one of Spark's."""
    found = ""
    for each in re.findall(r"%.|[^%]+", given):
        if each[0] != "%":
            found += each if not re.search("[A-Za-z'\\[\\]#{}]", each) else "'" + each.replace("'", "''") + "'"
        elif each[1] in _LETTERS:
            found += _LETTERS[each[1]]
        else:
            raise refusal(node, f"has `{each}`, which has no counterpart in Spark that dpa knows")
    return text(found)


def _formatted(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    return f"date_format({local(made, given[0])}, {_format(made, node, options)})"


def parsed(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    kind, known = made.kind(node), options[1]
    if known["format"] is None or not known["exact"] or getattr(kind, "time_zone", None):
        raise refusal(node)
    word = "to_timestamp" if known["strict"] else "try_to_timestamp"
    found = f"{word}({made.sql(given[0])}, {_format(made, node, known['format'])})"
    return made.cast(f"CAST({found} AS TIMESTAMP_NTZ)", node)


def _total(micros: int) -> Function:
    """A duration in whole units, towards zero."""

    def rule(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
        if options and options.get("fractional"):
            raise refusal(node)
        value = made.sql(given[0])
        parts = f"extract(DAY FROM {value}) * 86400 + extract(HOUR FROM {value}) * 3600"
        rest = f"extract(MINUTE FROM {value}) * 60 + extract(SECOND FROM {value})"
        return f"CAST(({parts} + {rest}) * 1000000 AS BIGINT) div {micros}"

    return rule


def _timestamp(made: Translation, node: Node, given: Sequence[Node], options: Any) -> str:
    by = {"Microseconds": 1, "Milliseconds": 1000}.get(options)
    zone = getattr(made.kind(given[0]), "time_zone", None)
    if by is None or zone not in (None, "UTC"):
        raise refusal(node)
    value = _since_epoch(made, given[0])
    return value if by == 1 else f"CAST(floor({value} / {by}BD) AS BIGINT)"


TIMES: dict[str, Function] = {
    "TemporalExpr.Year": _part("year({})"),
    "TemporalExpr.IsoYear": _part("extract(YEAROFWEEK FROM {})"),
    "TemporalExpr.Quarter": _part("quarter({})"),
    "TemporalExpr.Month": _part("month({})"),
    "TemporalExpr.Week": _part("weekofyear({})"),
    "TemporalExpr.Day": _part("day({})"),
    "TemporalExpr.WeekDay": _part("weekday({}) + 1"),
    "TemporalExpr.OrdinalDay": _part("dayofyear({})"),
    "TemporalExpr.Hour": _part("hour({})"),
    "TemporalExpr.Minute": _part("minute({})"),
    "TemporalExpr.Second": _part("second({})"),
    "TemporalExpr.Millisecond": _part("floor((extract(SECOND FROM {}) % 1) * 1000)"),
    "TemporalExpr.Microsecond": _part("(extract(SECOND FROM {}) % 1) * 1000000"),
    "TemporalExpr.Date": _part("{}"),
    "TemporalExpr.MonthStart": _part("date_trunc('MONTH', {})"),
    "TemporalExpr.Truncate": _truncated,
    "TemporalExpr.OffsetBy": _moved_by,
    "TemporalExpr.ToString": _formatted,
    "TemporalExpr.TimeStamp": _timestamp,
    "TemporalExpr.TotalDays": _total(86400 * 10**6),
    "TemporalExpr.TotalHours": _total(3600 * 10**6),
    "TemporalExpr.TotalMinutes": _total(60 * 10**6),
    "TemporalExpr.TotalSeconds": _total(10**6),
    "TemporalExpr.TotalMilliseconds": _total(10**3),
    "TemporalExpr.TotalMicroseconds": _total(1),
}
