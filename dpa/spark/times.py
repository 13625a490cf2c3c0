"""Functions of times, dates and durations in Spark's SQL."""

import re

from dpa.spark._literals import text
from dpa.spark._translation import NO_COUNTERPART, Call, Function


def local(of: Call) -> str:
    """A time as its calendar and clock show it where its time zone is."""
    time, zone = of.sql(0), of.zone_of(0)
    return time if zone is None else f"convert_timezone('{zone}', CAST({time} AS TIMESTAMP_NTZ))"


def _part(form: str) -> Function:
    return lambda of: of.cast(form.format(local(of)))


_EPOCH = "TIMESTAMP_NTZ'1970-01-01'"


def since_epoch(time: str, zone: str | None) -> str:
    """Microseconds since 1970 of a time without a zone, a date, or a moment, which has one."""
    moment = f"CAST({time} AS TIMESTAMP_NTZ)"
    moment = moment if zone is None else f"convert_timezone('UTC', {moment})"
    return f"timestampdiff(MICROSECOND, {_EPOCH}, {moment})"


_UNITS = {
    "us": 1,
    "ms": 10**3,
    "s": 10**6,
    "m": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
    "w": 7 * 86400 * 10**6,
}

_MONTHS = {"mo": ("MONTH", 1), "q": ("QUARTER", 3), "y": ("YEAR", 12)}

_MONDAY = 4 * 86400 * 10**6  # 1970-01-05 in microseconds: weeks begin on Mondays


def _every(of: Call) -> tuple[int, str]:
    found = re.fullmatch(r"(-?\d+)(us|ms|s|m|h|d|w|mo|q|y)", str(of.value(1)))
    if found is None:
        raise of.refusal(f"is a duration that {NO_COUNTERPART}")
    return int(found[1]), found[2]


def _without_zone(of: Call) -> str:
    if of.zone_of(0) not in (None, "UTC"):
        raise of.refusal(f"in a time zone {NO_COUNTERPART}")
    return f"CAST({local(of)} AS TIMESTAMP_NTZ)"


def _truncated(of: Call) -> str:
    value, (number, unit) = _without_zone(of), _every(of)
    if unit in _MONTHS:
        if number != 1:
            raise of.refusal()
        return of.cast(f"date_trunc('{_MONTHS[unit][0]}', {value})")
    origin = f" - {_MONDAY}" if unit == "w" else ""
    past = f"pmod({since_epoch(of.sql(0), of.zone_of(0))}{origin}, {number * _UNITS[unit]})"
    return of.cast(f"timestampadd(MICROSECOND, - {past}, {value})")


def _moved_by(of: Call) -> str:
    value, (number, unit) = _without_zone(of), _every(of)
    if unit in _MONTHS:
        return of.cast(f"({value} + make_ym_interval(0, {number * _MONTHS[unit][1]}))")
    return of.cast(f"timestampadd(MICROSECOND, {number * _UNITS[unit]}, {value})")


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
    "T": "HH:mm:ss",
    "%": "%",
}


def _format(of: Call, given: str) -> str:
    """A format of `strftime` as one of Spark's."""
    found = ""
    for each in re.findall(r"%.|[^%]+", given):
        if each[0] != "%":
            found += each if not re.search("[A-Za-z'\\[\\]#{}]", each) else "'" + each.replace("'", "''") + "'"
        elif each[1] in _LETTERS:
            found += _LETTERS[each[1]]
        else:
            raise of.refusal(f"has `{each}`, which {NO_COUNTERPART}")
    return text(found)


def _parsed(of: Call) -> str:
    known = of.options[1]
    if known["format"] is None or not known["exact"] or getattr(of.kind, "time_zone", None):
        raise of.refusal()
    word = "to_timestamp" if known["strict"] else "try_to_timestamp"
    return of.cast(f"CAST({word}({of.sql(0)}, {_format(of, known['format'])}) AS TIMESTAMP_NTZ)")


def _total(micros: int) -> Function:
    """A duration in whole units, towards zero."""

    def rule(of: Call) -> str:
        if of.options and of.options.get("fractional"):
            raise of.refusal()
        value = of.sql(0)
        parts = f"extract(DAY FROM {value}) * 86400 + extract(HOUR FROM {value}) * 3600"
        rest = f"extract(MINUTE FROM {value}) * 60 + extract(SECOND FROM {value})"
        return f"CAST(({parts} + {rest}) * 1000000 AS BIGINT) div {micros}"

    return rule


def _timestamp(of: Call) -> str:
    by = {"Microseconds": 1, "Milliseconds": 1000}.get(of.options)
    if by is None or of.zone_of(0) not in (None, "UTC"):
        raise of.refusal()
    value = since_epoch(of.sql(0), of.zone_of(0))
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
    "TemporalExpr.ToString": lambda of: f"date_format({local(of)}, {_format(of, of.options)})",
    "TemporalExpr.TimeStamp": _timestamp,
    "TemporalExpr.TotalDays": _total(_UNITS["d"]),
    "TemporalExpr.TotalHours": _total(_UNITS["h"]),
    "TemporalExpr.TotalMinutes": _total(_UNITS["m"]),
    "TemporalExpr.TotalSeconds": _total(_UNITS["s"]),
    "TemporalExpr.TotalMilliseconds": _total(_UNITS["ms"]),
    "TemporalExpr.TotalMicroseconds": _total(_UNITS["us"]),
    "StringExpr.Strptime": _parsed,
}
