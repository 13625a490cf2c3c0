"""The rows of a flow's steps, and what can be done to them: each call adds a step to the flow's job file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from dpa._looks import Looks, WrittenFlow
from dpa.config import MADE_IN_PYTHON, ExecutorConfig
from dpa.config.stages import INSTEAD, OF_KEYED
from dpa.errors import ConfigError, traced_from_caller
from dpa.job import Runnable
from dpa.windows.options import Windows

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

    from dpa.config import keywords as kw
    from dpa.driver.spec import JobSpec


_INSTEAD_OF_GROUPS = {  # as `INSTEAD`
    'agg(n="count(*)")': "count len size",
    'agg("sum(NAME)")': "sum mean avg min max first last median std var quantile n_unique nunique aggregate",
    "reduce(...)": "apply map_groups applyInPandas",
    "agg(...)` or `reduce(...)": "run show head collect filter map select with_columns",
}


@traced_from_caller
class Stream(Looks, Runnable):
    """The rows of one step of a flow. Calls such as `map` add a step and return its rows. `run`, `check`, `validate`,
    `forecast` are of the job that has these rows as its only result: `orders.filter("id = 1").run().table()`.

    Calls that add a step take its `name`, and most take other keys of a step (docs/job-files.md): `parallelism` gives
    it tasks of its own. The examples are of these rows:

    >>> shop = Flow("shop")
    >>> tea = {"id": 1, "at": 0, "cents": 150, "items": ["tea", "jam"], "to": {"town": "Bonn"}}
    >>> orders = shop.read([tea, {**tea, "id": 2, "at": 90, "cents": 50}], time={"column": "at", "unit": "s"})

    Attributes:
        flow: the flow.
        step: the name of the step.
    """

    def __init__(self, flow: WrittenFlow, step: str) -> None:
        self.flow = flow
        self.step = step

    if not TYPE_CHECKING:  # else checkers would take any name

        def __getattr__(self, name: str) -> Any:
            raise _lacks(self, "the rows of a step", name, INSTEAD)

    def map(self, function: kw.AnyFunction, *, name: str | None = None, **options: Unpack[kw.Map]) -> Stream:
        """Make a row of each row, by a function of a dict, or of Arrow batches if it is marked `batch_mapper`.

        `schema` declares the columns of its rows: an Arrow schema, or Arrow types or their names by column.

        >>> orders.map(lambda row: {"euros": row["cents"] / 100}).head(1).to_pylist()
        [{'euros': 1.5}]
        """
        return self._changed("map", function, name, options)

    def flat_map(self, function: kw.AnyFunction, *, name: str | None = None, **options: Unpack[kw.Map]) -> Stream:
        """Make any number of rows of each row by a function that returns or yields dicts; options as for `map`:
        `orders.flat_map(lambda row: [{"item": item} for item in row["items"]])`."""
        return self._changed("flat_map", function, name, options)

    def filter(
        self,
        condition: kw.Expressions | kw.AnyFunction,
        *more: kw.Expressions | kw.AnyFunction,
        name: str | None = None,
        **options: Unpack[kw.Filter],
    ) -> Stream:
        """Keep the rows for which a condition, and `more`, are true: a polars expression, a SQL text, or a function of
        a row. A function that is marked `batch_filter` gets an Arrow batch and returns a boolean for each row.

        >>> orders.filter("cents > 100").count()
        1
        """
        first, *others = _one_by_one([condition, *more])
        if others:
            return self.filter(first, **options).filter(*others, name=name, **options)
        names_function = isinstance(first, str) and re.fullmatch(r"[\w.]+:[\w.]+", first)
        if names_function or not (isinstance(first, str) or _is_expression(first)):
            return self._changed("filter", first, name, options)
        return self._on_columns("filter", [first], {}, name, options)

    def with_columns(self, *expressions: kw.Expressions, **named: kw.Expression) -> Stream:
        """Add or change columns by polars expressions or SQL texts. A keyword names the column that it makes.

        >>> orders.with_columns(euros="cents / 100").select("id", "euros").head(1).to_pylist()
        [{'id': 1, 'euros': 1.5}]
        """
        return self._on_columns("with_columns", expressions, named)

    def select(self, *expressions: kw.Expressions, **named: kw.Expression) -> Stream:
        """Keep only these columns, otherwise as `with_columns`: `orders.select("id", pl.col("items").list.len())`."""
        return self._on_columns("select", expressions, named)

    def drop(self, *columns: str | Sequence[str], name: str | None = None, **options: Unpack[kw.Filter]) -> Stream:
        """Leave out columns: `orders.drop("items", "cents")`."""
        return self._on_columns("drop", columns, {}, name, options)

    def rename(self, columns: Mapping[str, str], *, name: str | None = None, **options: Unpack[kw.Filter]) -> Stream:
        """Rename columns, old names to new ones: `orders.rename({"id": "order"})`."""
        return self._on_columns("rename", (), columns, name, options)

    def explode(self, *columns: str | Sequence[str], name: str | None = None, **options: Unpack[kw.Filter]) -> Stream:
        """Make a row of each element of a list column: `orders.explode("items")`. The lists of several columns must be
        equally long in each row."""
        return self._on_columns("explode", columns, {}, name, options)

    def unnest(self, *columns: str | Sequence[str], name: str | None = None, **options: Unpack[kw.Filter]) -> Stream:
        """Make columns of the fields of struct columns: `orders.unnest("to")`."""
        return self._on_columns("unnest", columns, {}, name, options)

    def window(self, windows: Windows | None, *, name: str | None = None, **options: Unpack[kw.Filter]) -> Stream:
        """Put each row into windows of its time: `orders.window(dpa.tumbling("1m"))`. The window is part of every key
        from here on, and rows have the columns `window_start` and `window_end`. With None, rows leave their windows."""
        if windows is not None and not isinstance(windows, Windows):
            raise ConfigError(f"windows are made as `dpa.tumbling('1m')`, and this is {windows!r}")
        given = "none" if windows is None else asdict(windows)
        return Stream(self.flow, self.flow._add(name, "window", {"from": [self.step], "window": given}, options))

    def union(
        self,
        *others: Stream | Sequence[Stream],
        allow_missing_columns: bool = False,
        name: str | None = None,
        **options: Unpack[kw.Union],
    ) -> Stream:
        """The rows of all, in no order: `orders.union(orders.filter("id = 1"))`. Columns go together by name, and must
        be of one type. With `allow_missing_columns`, columns that the rows of one step lack are null there."""
        given: list[Stream] = [self, *_one_by_one(others)]
        for rows in given:
            if not isinstance(rows, Stream):
                raise ConfigError(
                    f"a union is of rows of a flow, as `read` and `map` return, not of {type(rows).__name__}"
                )
            self._require_same_flow(rows)
        section: dict[str, Any] = {"from": [rows.step for rows in given]}
        if allow_missing_columns and len(given) > 1:
            section["allow_missing_columns"] = True
        return Stream(self.flow, self.flow._add(name, "union", section, options))

    def key_by(self, *key: kw.Key, value: str | Sequence[str] | None = None) -> KeyedRows:
        """Group the rows by a column, several, a function of a row that returns the key, or None: all have one key.
        Then call what is done to each group: `orders.key_by("id").reduce("count")`. `value` names the columns that it
        gets, by default all but the key."""
        if not key:
            raise ConfigError("key_by needs a column, several, or a function of a record; None is one key of all rows")
        only: Any = key[0] if len(key) == 1 else list(key)
        only = [*map(_column, only)] if isinstance(only, list | tuple) else _column(only)
        return KeyedRows(self, only, [value] if isinstance(value, str) else None if value is None else [*value])

    def top_k(
        self, k: int, *, by: str, descending: bool = True, name: str | None = None, **options: Unpack[kw.TopK]
    ) -> Stream:
        """The first `k` of all rows in the order of the column `by`, with their `rank` from 1 on:
        `orders.top_k(1, by="cents")`."""
        return self.key_by(None).top_k(k, by=by, descending=descending, name=name, **options)

    def join(
        self,
        other: Stream,
        on: str | Sequence[str] | None = None,
        how: kw.How = "inner",
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        broadcast_mb: float | None = None,
        name: str | None = None,
        **options: Unpack[kw.Join],
    ) -> Stream:
        """Join with the rows of `other`, the right side, where the columns `on` are equal, or `left_on` here and
        `right_on` there. The rest is as for `KeyedRows.join`.

        >>> paid = shop.read([{"order": 2, "paid": True}], name="paid")
        >>> orders.select("id").join(paid, left_on="id", right_on="order").head().to_pylist()
        [{'id': 2, 'paid': True}]
        """
        if not isinstance(other, Stream):
            raise ConfigError(f"a join is with rows, not with {type(other).__name__}; rows by key join each other")
        if (on is None) is (left_on is None and right_on is None) or (left_on is None) is not (right_on is None):
            raise ConfigError("name the key columns: `on`, or both `left_on` and `right_on`")
        left, right = (left_on, right_on) if on is None else (on, on)
        return self.key_by(left).join(other.key_by(right), how, broadcast_mb=broadcast_mb, name=name, **options)

    def write(self, path: str | PathLike[str], *, mode: kw.Mode = "error", **options: Unpack[kw.Write]) -> Stream:
        """Write the rows to a directory: `orders.drop("items").write("out/orders.csv", mode="overwrite")`. They are
        Parquet unless its name ends in `.csv` or `.jsonl`. Another call adds a place. `options` are the other keys of
        `output` in a job file, such as `publish` or `partition_by`."""
        text = fspath(path) if isinstance(path, PathLike) else path
        return self._written({"path": text, "mode": mode, **options})

    def results(
        self, callback: Callable[[pa.Table, int], object], *, publish: kw.Publishes = "final", every: float | str = 1.0
    ) -> Stream:
        """Call a function in this process with the rows of each epoch and its number while the flow runs, at least
        once: `orders.drop("id").results(lambda rows, epoch: print(epoch, rows))`. Each function, and each `write`, gets
        all rows. What the function raises fails the flow. `publish` is as in a job file. `every` is the time from one
        epoch to the next, in seconds or as a text such as `500ms`."""
        if not isinstance(publish, str):
            raise ConfigError(f"`publish` is 'final', 'changes' or 'table', not {publish!r}; give `every` beside it")
        section = {"use": ExecutorConfig.of(callback).use, "publish": {"mode": publish, "every": every}}
        return self._written(section, callback)

    def reference(self, sql: str | None = None, **options: Unpack[kw.Reference]) -> Stream:
        """Check the rows against what Spark computes from the inputs, once a step:
        `orders.drop("items").reference("SELECT id, cents FROM read")`. `sql` sees each input under the name of the step
        that reads it, or is `auto`: the query that the steps say. `options` are the other keys of `reference` in a job
        file, such as `tolerance`."""
        self.flow._give(self.step, {"reference": {**({} if sql is None else {"sql": sql}), **options}})
        return self

    def _now(self) -> JobSpec:
        return self._looking().job

    def _written(self, section: Mapping[str, Any], given: Any = None) -> Stream:
        """Add an output to those of the step; `given` stands for the function that it names."""
        step, objects, key = self.flow._stages[self.step], self.flow._objects, f"stages.{self.step}.write"
        before = step.get("write", [])
        before = before if isinstance(before, list) else [before]
        if len(before) == 1 and key in objects:
            objects[f"{key}.0"] = objects.pop(key)
        step["write"] = [*before, section] if before else section
        if given is not None:
            objects[f"{key}.{len(before)}" if before else key] = given
        return self

    def _changed(self, word: str, function: Any, name: str | None, options: Mapping[str, Any]) -> Stream:
        step = self.flow._add(name, word, {"from": [self.step]}, options)
        self.flow._give(step, {word: self.flow._section(step, word, function)})
        return Stream(self.flow, step)

    def _on_columns(
        self,
        word: str,
        given: Sequence[Any],
        named: Mapping[str, Any],
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Stream:
        from dpa.columns.verbs import query_of  # polars, which no program without expressions needs

        given = _one_by_one(given)
        try:
            made = query_of(word, given, named)
        except ConfigError as error:
            raise ConfigError(f"the step {name or word!r}: {error.message}") from None
        step = self.flow._add(name, word, {"from": [self.step]}, options or {})
        texts = [each if isinstance(each, str) else f"{MADE_IN_PYTHON}{each}" for each in given]
        by_name = {key: each if isinstance(each, str) else f"{MADE_IN_PYTHON}{each}" for key, each in named.items()}
        listed = [*texts, *(f'{text} AS "{key}"' for key, text in by_name.items())]
        self.flow._give(step, {word: texts[0] if word == "filter" else listed if texts else by_name})
        self.flow._objects[f"stages.{step}.{word}"] = made
        return Stream(self.flow, step)

    def _require_same_flow(self, other: Stream | KeyedRows) -> None:
        if other.flow is not self.flow:
            raise ConfigError(f"rows of flow {other.flow.name!r} cannot be used in {self.flow.name!r}: make one flow")


@traced_from_caller
class KeyedRows:
    """Rows grouped by key: the next call says what becomes of each group. The examples are of these rows:

    >>> shop = Flow("shop")
    >>> by_item = shop.read([{"item": "tea", "cents": 150}, {"item": "tea", "cents": 50}]).key_by("item")
    """

    def __init__(self, rows: Stream, key: Any, value: Sequence[str] | None) -> None:
        self.flow = rows.flow
        self.rows = rows
        self.key = key
        self.value = value

    def __repr__(self) -> str:
        return f"<KeyedRows by {self.key!r} of {self.rows!r}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _lacks(self, "rows by key", name, _INSTEAD_OF_GROUPS)

    def reduce(self, reducer: kw.AnyReducer, *, name: str | None = None, **options: Unpack[kw.Reduce]) -> Stream:
        """Fold the values of each key into one row of key and result columns, by a `Reducer`, a `BatchReducer`, a
        function of two values, or the name of a ready-made reducer. `schema` may leave out key columns.

        >>> by_item.reduce(Sum("cents")).head().to_pylist()
        [{'item': 'tea', 'cents': 200}]
        """
        return self._add("reduce", reducer, name, options)

    if TYPE_CHECKING:
        agg: kw.AggCall  # its keywords are options or aggregates
    else:

        def agg(self, *aggregates: Any, name: str | None = None, **named: Any) -> Stream:
            """Aggregate the values of each key into one row of key and result columns, by polars expressions or SQL
            texts. A keyword names the column that it makes, or is another key of the step.

            >>> by_item.agg(total=pl.col("cents").sum(), n="count(*)").head().to_pylist()
            [{'item': 'tea', 'total': 200, 'n': 2}]
            """
            import polars as pl

            from dpa.columns.aggregation import aggregation_of

            if isinstance(name, pl.Expr):
                named, name = {"name": name, **named}, None
            options = {key: each for key, each in named.items() if key in OF_KEYED and not isinstance(each, pl.Expr)}
            by_name = {key: each for key, each in named.items() if key not in options}
            made = aggregation_of(_one_by_one(aggregates), by_name)
            written = {key: each if key in made.texts else MADE_IN_PYTHON + each for key, each in made.written.items()}
            rows = self._made(name, "agg", options, {"agg": written})
            if len(made.texts) < len(written):
                self.flow._objects[f"stages.{rows.step}.agg"] = made
            return rows

    def process(self, process: kw.AnyProcess, *, name: str | None = None, **options: Unpack[kw.Process]) -> Stream:
        """Process the values of each key in order, one task a key: `by_item.process(Running())`. The rows are those
        that a `dpa.Process` emits."""
        return self._add("process", process, name, options)

    def join(
        self,
        other: KeyedRows,
        how: kw.How = "inner",
        *,
        broadcast_mb: float | None = None,
        name: str | None = None,
        **options: Unpack[kw.Join],
    ) -> Stream:
        """Join with other rows, whose key has as many columns: `inner`, `left`, `right`, `full`, `semi` or `anti`.

        The result has the key under its names here, the value columns of this side, and those of the other. A name
        that both sides have ends in `_right` on the other side.

        Every task gets a side of at most `broadcast_mb` MiB, 32 by default. An `inner`, `left`, `semi` or `anti` join
        then sends no row to another task. With 0 both sides are shuffled.

        >>> kinds = shop.read([{"name": "tea", "kind": "drink"}], name="kinds").key_by("name")
        >>> by_item.join(kinds, "semi").count(whole=True)
        2
        """
        if not isinstance(other, KeyedRows):
            raise ConfigError("a join is with rows by key: give those of `key_by`")
        self.rows._require_same_flow(other)
        for side in (self, other):
            if callable(side.key) or side.key is None:
                raise ConfigError("a join is by columns: make one with `map` and name it in `key_by`")
        join = {"with": [other.rows.step], "how": how, "key_by": other.key}
        more = {"broadcast_mb": broadcast_mb, "value": other.value}
        join |= {key: each for key, each in more.items() if each is not None}
        return self._made(name, "join", {"join": join}, options)

    def top_k(
        self, k: int, *, by: str, descending: bool = True, name: str | None = None, **options: Unpack[kw.TopK]
    ) -> Stream:
        """The first `k` rows of each key in the order of the column `by`, with their `rank` from 1 on:
        `by_item.top_k(1, by="cents", descending=False)`."""
        return self._made(name, "top_k", {"top_k": {"k": k, "by": _column(by), "descending": descending}}, options)

    def _add(self, word: str, executor: Any, name: str | None, options: Mapping[str, Any]) -> Stream:
        rows = self._made(name, word, options)
        self.flow._give(rows.step, {word: self.flow._section(rows.step, word, executor)})
        return rows

    def _made(self, name: str | None, word: str, *sections: Mapping[str, Any]) -> Stream:
        step = self.flow._add(name, word, {"from": [self.rows.step]})
        key = self.flow._section(step, "key_by", self.key) if callable(self.key) else self.key
        self.flow._give(step, {"key_by": key, **({} if self.value is None else {"value": self.value})})
        for section in sections:
            self.flow._give(step, section)
        return Stream(self.flow, step)


def _lacks(rows: object, what: str, name: str, instead: Mapping[str, str]) -> AttributeError:
    right = next((right for right, words in instead.items() if name in words.split()), None)
    meant = "" if right is None else f": write `{right}`"
    return AttributeError(f"{what} have no {name!r}{meant}", name=name, obj=rows)


def _is_expression(given: object) -> bool:
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(given, polars.Expr)


def _one_by_one(given: Sequence[Any]) -> list[Any]:
    """What was given, some of it perhaps in lists, as polars takes it."""
    return [each for one in given for each in (one if isinstance(one, list | tuple) else (one,))]


def _column(given: Any) -> Any:
    """What names a column, also of an expression that is no more than one. ConfigError for other expressions."""
    if not _is_expression(given):
        return given
    if not given.meta.is_column():
        raise ConfigError(f"a column is named here, and this is {given}: make it before, `.with_columns(NAME=...)`")
    return given.meta.output_name()
