"""A flow as one query of Spark's: what `reference: auto` stands for.

Each step is a common table expression of its name, over those whose rows it takes; inputs are views. A step that calls
a function of the user's has no counterpart."""

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from dpa._util.inference import no_rows
from dpa.aggregates import Count, Distinct, Max, Mean, Min, Sum, TopK, TopRows
from dpa.columns.arrow import to_frame
from dpa.columns.query import Query, Verb
from dpa.errors import TableError
from dpa.execution.windowing import Assign
from dpa.executors import name_of
from dpa.logical.columns import Columns
from dpa.logical.step import Keying, Step, StepInput, with_feeding
from dpa.operators import JoinOptions, RowOperator
from dpa.routing.keys import names_of
from dpa.spark import quoted
from dpa.spark.aggregates import aggregates
from dpa.spark.comparison import ROUNDING
from dpa.spark.expressions import translation
from dpa.spark.times import since_epoch
from dpa.windows.options import END, MICROS, START

_JOINS = {"semi": "LEFT SEMI", "anti": "LEFT ANTI"}


class TranslatedFlow:
    """What Spark is asked for each step."""

    def __init__(self, steps: Sequence[Step], columns: Columns) -> None:
        """Of steps, each after all whose rows it takes, and the columns of their rows."""
        self._steps = {step.name: step for step in steps}
        self._columns = columns
        self._estimated: dict[str, float] = {}

    def query(self, name: str) -> str:
        """Spark's query for the rows of a step, over views of the inputs. TableError names the step, and the part of it
        that has no counterpart in Spark."""
        tables = []
        for step in with_feeding(self._steps.values(), name):
            if not step.feeds:
                continue
            try:
                tables.append(f"{quoted(step.name)} AS (\n  {self._of(step)}\n)")
            except TableError as error:
                raise TableError(f"the step {step.name!r}: {error}; give a query of your own in `sql`") from None
        return f"WITH {', '.join(tables)}\nSELECT * FROM {quoted(name)}"

    def tolerances(self, name: str) -> dict[str, float]:
        """How far numbers of a step's columns may be off, relatively: floating-point numbers, and what is estimated."""
        columns = self._columns.empty(name)
        floats = {field.name: ROUNDING for field in columns if _has_floats(field.type)}
        return floats | {column: off for column, off in self._estimated.items() if column in columns.names}

    def _of(self, step: Step) -> str:
        rows = self._united(step.feeds, side=0, fills=step.fills)
        if not step.receiver.keeps_states:
            for operator in step.receiver.operators:
                rows = self._changed(rows, operator, self._schema(step.feeds[0].step))
            return rows.removeprefix("(").removesuffix(")") if rows.startswith("(") else f"SELECT * FROM {rows}"
        if any(feed.keying.mapper or feed.keying.function for feed in step.feeds):
            called = next(filter(None, (feed.keying.mapper or feed.keying.function for feed in step.feeds)))
            raise TableError(f"calls {name_of(called)}, and Spark does not run Python functions of a flow")
        executor = self._columns.receiver(step).executor
        if isinstance(executor, JoinOptions):
            right = self._united(step.feeds, side=1, fills=step.fills)
            return _joined(executor, rows, right)
        keying = step.feeds[0].keying
        values = _values(self._schema(step.feeds[0].step), keying)
        if isinstance(executor, TopRows):
            return _ranked(executor, rows, keying, values)
        return self._reduced(executor, rows, keying, values)

    def _schema(self, name: str) -> pa.Schema:
        found = self._columns.of(name)
        if found is None:
            raise TableError(f"the columns of {name!r} are not known before the job runs")
        return found

    def _united(self, feeds: Sequence[StepInput], *, side: int, fills: bool) -> str:
        """The rows of all feeds of a side, as what may stand after FROM."""
        names = [feed.step for feed in feeds if feed.side == side]
        if len(names) == 1:
            return quoted(names[0])
        columns = dict.fromkeys(column for name in names for column in self._schema(name).names)
        parts = []
        for name in names:
            own = self._schema(name).names
            listed = (quoted(column) if column in own else f"NULL AS {quoted(column)}" for column in columns)
            parts.append(f"SELECT {', '.join(listed)} FROM {quoted(name)}")
        return f"({' UNION ALL '.join(parts)})"

    def _changed(self, rows: str, operator: RowOperator, columns: pa.Schema) -> str:
        function = operator.function
        if isinstance(function, Assign):
            return f"({_in_windows(function, rows, columns)})"
        if not isinstance(function, Query):
            raise TableError(f"calls {name_of(operator)}, and Spark does not run Python functions of a flow")
        schema = _polars(columns)
        for verb in function.verbs:
            after = verb.lazy(pl.LazyFrame(schema=schema)).collect_schema()
            rows, schema = f"({_done(verb, rows, schema, after)})", after
        return rows

    def _reduced(self, executor: Any, rows: str, keying: Keying, values: pa.Schema) -> str:
        keys = [quoted(name) for name in names_of(keying.key)]
        if type(executor) in (Distinct, TopK):
            columns = _of_one_value(executor, values)
        else:
            found = aggregates(_expressions(executor), _polars(values))
            self._estimated |= found.tolerances
            columns = found.columns
        listed = ", ".join([*keys, *(f"{text} AS {quoted(name)}" for name, text in columns.items())])
        without_rows = "" if hasattr(executor, "of_no_rows") else "HAVING count(*) > 0"
        groups = f"GROUP BY {', '.join(keys)}" if keys else without_rows
        return f"SELECT {listed} FROM {rows} {groups}"


def _polars(columns: pa.Schema) -> pl.Schema:
    return to_frame(no_rows(columns)).schema


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(_has_floats(kind.field(each).type) for each in range(kind.num_fields))


def _values(columns: pa.Schema, keying: Keying) -> pa.Schema:
    names = names_of(keying.key)
    if keying.values is None:
        return pa.schema([field for field in columns if field.name not in names])
    return pa.schema([columns.field(name) for name in keying.values])


def _expressions(executor: Any) -> dict[str, pl.Expr]:
    kind = type(executor)
    if kind is Count:
        return {"count": pl.len()}
    words = {Sum: "sum", Mean: "mean", Min: "min", Max: "max"}
    if kind in words:
        return {executor.column: getattr(pl.col(executor.column), words[kind])()}
    found = getattr(executor, "expressions", None)
    if not isinstance(found, dict):
        raise TableError(f"folds by {name_of(executor)}, which Spark does not have")
    return found


def _of_one_value(executor: Distinct | TopK, values: pa.Schema) -> dict[str, str]:
    if len(values) != 1:
        what = "the whole value, which is several columns here"
        raise TableError(f"{name_of(executor)} is of {what}: name one of them in `value`")
    value = quoted(values.names[0])
    if isinstance(executor, TopK):
        return {"top": f"slice(sort_array(collect_list({value}), false), 1, {executor.k})"}
    return {"distinct": f"count(DISTINCT {value})"}


def _ranked(top: TopRows, rows: str, keying: Keying, values: pa.Schema) -> str:
    """Rows that tie are ranked by their other columns, lists and structs last."""
    keys, by = [quoted(name) for name in names_of(keying.key)], quoted(top.by)
    others = sorted((field for field in values if field.name != top.by), key=lambda each: pa.types.is_nested(each.type))
    order = [f"{by} {'DESC' if top.descending else 'ASC'}", *(f"{quoted(each.name)} NULLS LAST" for each in others)]
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    listed = ", ".join([*keys, *map(quoted, values.names)])
    rank = f"CAST(row_number() OVER ({partition}ORDER BY {', '.join(order)}) AS BIGINT) AS `rank`"
    ranked = f"SELECT {listed}, {rank} FROM {rows} WHERE {by} IS NOT NULL"
    return f"SELECT * FROM ({ranked}) WHERE `rank` <= {top.k}"


def _joined(join: JoinOptions, left: str, right: str) -> str:
    columns = join.columns
    if columns[0] is None or (join.names_sides and columns[1] is None):
        raise TableError("the columns of both sides are not known before the job runs")
    on = list(zip(*join.on, strict=True))
    outer = join.how in ("right", "full")
    keys = [
        f"coalesce(l.{quoted(one)}, r.{quoted(other)}) AS {quoted(one)}" if outer else f"l.{quoted(one)}"
        for one, other in on
    ]
    listed = [*keys, *(f"l.{quoted(name)}" for name in columns[0].names)]
    if join.names_sides:
        listed += [f"r.{quoted(name)} AS {quoted(new)}" for name, new in join.right_names.items()]
    word = _JOINS.get(join.how, join.how.upper())
    equal = " AND ".join(f"l.{quoted(one)} = r.{quoted(other)}" for one, other in on)
    return f"SELECT {', '.join(listed)} FROM {left} l {word} JOIN {right} r ON {equal}"


def _in_windows(assign: Assign, rows: str, columns: pa.Schema) -> str:
    windows, time = assign.windows, assign.time
    if windows.is_session:
        raise TableError("makes sessions, which the query would have to fold")
    column, kind = quoted(time.column), columns.field(time.column).type
    if pa.types.is_temporal(kind):
        micros = since_epoch(column, getattr(kind, "tz", None))
    elif pa.types.is_integer(kind) and time.unit is not None:
        micros = f"CAST({column} AS BIGINT) * {MICROS[time.unit]}"
    else:
        raise TableError(f"has times of the type {kind}, which are not translated")
    micros = f"({micros} - 1)" if time.is_end else micros
    size, slide = windows.size_us, windows.slide_us
    last = f"({micros} - pmod({micros} - {windows.offset_us}, {slide}))"
    first = f"{last} - (({size - 1} - ({micros} - {last})) div {slide}) * {slide}"
    zone = "TIMESTAMP_NTZ" if time.zone(columns) is None else "TIMESTAMP"
    kept = ", ".join(quoted(name) for name in columns.names if name not in (START, END))
    bounds = (
        f"CAST(timestampadd(MICROSECOND, `dpa start` + {more}, TIMESTAMP_NTZ'1970-01-01') AS {zone}) AS {quoted(name)}"
        for name, more in ((START, 0), (END, size))
    )
    starts = f"SELECT *, explode(sequence({first}, {last}, {slide})) AS `dpa start` FROM {rows}"
    return f"SELECT {kept}, {', '.join(bounds)} FROM ({starts} WHERE {column} IS NOT NULL)"


def _done(verb: Verb, rows: str, before: pl.Schema, after: pl.Schema) -> str:
    if verb.word == "filter":
        return f"SELECT * FROM {rows} WHERE {' AND '.join(translation(before).conditions(verb.expressions))}"
    if verb.word in ("select", "with_columns"):
        texts = translation(before).columns(verb.expressions)
        return f"SELECT {', '.join(_listed(after, texts))} FROM {rows}"
    if verb.word == "rename":
        old = dict(zip(verb.new, verb.columns, strict=True))
        return f"SELECT {', '.join(_listed(after, {new: quoted(name) for new, name in old.items()}))} FROM {rows}"
    if verb.word == "unnest":
        fields = {
            field: f"{quoted(name)}.{quoted(field)}"
            for name in verb.columns
            for field in pl.DataFrame(schema={name: before[name]}).unnest(name).columns
        }
        return f"SELECT {', '.join(_listed(after, fields))} FROM {rows}"
    if verb.word == "explode":
        return _exploded(verb, rows, after)
    return f"SELECT {', '.join(_listed(after, {}))} FROM {rows}"


def _listed(columns: pl.Schema, texts: dict[str, str]) -> Iterator[str]:
    for name in columns:
        plain = quoted(name)
        text = texts.get(name, plain)
        yield plain if text == plain else f"{text} AS {plain}"


def _exploded(verb: Verb, rows: str, after: pl.Schema) -> str:
    """A list that is empty gives no row in polars, and null gives one."""
    first = quoted(verb.columns[0])
    filled = f"SELECT * FROM {rows} WHERE {first} IS NULL OR cardinality({first}) > 0"
    if len(verb.columns) == 1:
        return f"SELECT {', '.join(_listed(after, {verb.columns[0]: f'explode_outer({first})'}))} FROM ({filled})"
    zipped = (
        f"SELECT *, explode_outer(arrays_zip({', '.join(map(quoted, verb.columns))})) AS `dpa each` FROM ({filled})"
    )
    fields = {name: f"`dpa each`.{quoted(name)}" for name in verb.columns}
    return f"SELECT {', '.join(_listed(after, fields))} FROM ({zipped})"
