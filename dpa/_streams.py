"""The rows of a flow's steps, and what can be done to them: each call adds a step to the flow's job file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias

from dpa._looks import Looks
from dpa.config import MADE_IN_PYTHON, ExecutorConfig
from dpa.config.stages import OF_KEYED
from dpa.errors import ConfigError
from dpa.windows.options import Windows

if TYPE_CHECKING:
    import pyarrow as pa

    from dpa._written_flow import WrittenFlow

KeyBy: TypeAlias = "str | Sequence[str] | Callable[[dict[str, Any]], Any] | None"
"""A column, several, a function of a record that gives the key, or None: all records have one key."""


class Stream(Looks):
    """The rows of one step of a flow. Every call adds a step and returns its rows.

    Attributes:
        flow: the flow.
        step: the name of the step.
    """

    def __init__(self, flow: WrittenFlow, step: str) -> None:
        """Made by a `Flow`."""
        self.flow = flow
        self.step = step

    def map(self, function: Any, *, name: str | None = None, **options: Any) -> Stream:
        """Make a row of each row.

        Args:
            function: of a record, a dict by column name, to another; or of Arrow batches, marked `batch_mapper`.
            name: of the step, by default `map`.
            options: other keys of the step; `parallelism` gives it tasks of its own. `schema` says which columns its
                rows have, as an Arrow schema, or as a dict of Arrow types or their names.
        """
        return self._changed("map", function, name, options)

    def flat_map(self, function: Any, *, name: str | None = None, **options: Any) -> Stream:
        """Make any number of rows of each row; `function` returns or yields records. Otherwise as `map`."""
        return self._changed("flat_map", function, name, options)

    def filter(self, condition: Any, *, name: str | None = None, **options: Any) -> Stream:
        """Keep the rows for which a condition is true: an expression of polars, a SQL text such as `cents > 0`, or a
        function. A function of batches, marked `batch_filter`, returns an array of booleans. Otherwise as `map`."""
        names_function = isinstance(condition, str) and re.fullmatch(r"[\w.]+:[\w.]+", condition)
        if names_function or not (isinstance(condition, str) or _is_expression(condition)):
            return self._changed("filter", condition, name, options)
        return self._on_columns("filter", [condition], {}, name, options)

    def with_columns(self, *expressions: Any, **named: Any) -> Stream:
        """Add columns, or change those of the same names.

        Args:
            expressions: of polars, or SQL texts such as `cents / 100 AS euros`.
            named: expressions by the name of the column that each makes.
        """
        return self._on_columns("with_columns", expressions, named)

    def select(self, *expressions: Any, **named: Any) -> Stream:
        """Make rows of these columns alone; otherwise as `with_columns`."""
        return self._on_columns("select", expressions, named)

    def drop(self, *columns: str, name: str | None = None, **options: Any) -> Stream:
        """Leave out columns."""
        return self._on_columns("drop", columns, {}, name, options)

    def rename(self, columns: Mapping[str, str], *, name: str | None = None, **options: Any) -> Stream:
        """Give columns other names; `columns` has the new ones by the old ones."""
        return self._on_columns("rename", (), columns, name, options)

    def explode(self, *columns: str, name: str | None = None, **options: Any) -> Stream:
        """Make a row of each element of a list column. Those of several must be as long as each other in each row."""
        return self._on_columns("explode", columns, {}, name, options)

    def unnest(self, *columns: str, name: str | None = None, **options: Any) -> Stream:
        """Make columns of the fields of struct columns."""
        return self._on_columns("unnest", columns, {}, name, options)

    def window(self, windows: Windows | None, *, name: str | None = None, **options: Any) -> Stream:
        """Put each row into windows of its time, which is a part of every key from here on: what follows by key works
        on each window for itself, and its rows have the columns `window_start` and `window_end`.

        Args:
            windows: such as `dpa.tumbling("1m")`, `dpa.sliding("1m", every="10s")` or `dpa.session("30m")`; None: rows
                are in no windows from here on, and keep the columns.
            name: of the step, by default `window`.
            options: other keys of the step; `parallelism` gives it tasks of its own.
        """
        if windows is not None and not isinstance(windows, Windows):
            raise ConfigError(f"windows are made as `dpa.tumbling('1m')`, and this is {windows!r}")
        given = "none" if windows is None else asdict(windows)
        return Stream(self.flow, self.flow._add(name, "window", {"from": [self.step], "window": given}, options))

    def union(
        self,
        *others: Stream | Sequence[Stream],
        allow_missing_columns: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> Stream:
        """The rows of all, in no order. Columns go together by name, and must be of one type.

        Args:
            others: rows of other steps, or lists of them; of none it passes on the rows.
            allow_missing_columns: whether some may lack columns that others have: they are null there.
            name: of the step, by default `union`.
            options: other keys of the step; `parallelism` gives it tasks of its own.
        """
        all_rows: list[Stream] = [self]
        for other in others:
            all_rows += [other] if isinstance(other, Stream) or not isinstance(other, Sequence) else other
        for rows in all_rows:
            if not isinstance(rows, Stream):
                raise ConfigError(
                    f"a union is of rows of a flow, such as `read` and `map` return, not of {_kind(rows)}"
                )
            self._require_same_flow(rows)
        section: dict[str, Any] = {"from": [rows.step for rows in all_rows]}
        if allow_missing_columns and len(all_rows) > 1:
            section["allow_missing_columns"] = True
        return Stream(self.flow, self.flow._add(name, "union", section, options))

    def key_by(self, *key: Any, value: str | Sequence[str] | None = None) -> KeyedRows:
        """Group the rows by key for what is called next.

        Args:
            key: a column's name, several, a function of a record that gives the key, or None for one key of all rows.
            value: the columns that are the value; all but the key by default.
        """
        if not key:
            raise ConfigError("key_by needs a column, several, or a function of a record; None is one key of all rows")
        only = key[0] if len(key) == 1 else list(key)
        return KeyedRows(self, only, [value] if isinstance(value, str) else value)

    def top_k(self, k: int, *, by: str, descending: bool = True, name: str | None = None, **options: Any) -> Stream:
        """The first `k` of all rows in the order of the column `by`, each with its `rank` from 1 on."""
        return self.key_by(None).top_k(k, by=by, descending=descending, name=name, **options)

    def join(
        self,
        other: Stream,
        on: str | Sequence[str] | None = None,
        how: str = "inner",
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Stream:
        """Join with other rows, the right side, where the columns `on` are equal; or `left_on` here, and as many in
        `right_on` there. Otherwise as `KeyedRows.join`."""
        if not isinstance(other, Stream):
            raise ConfigError(f"a join is with rows of a flow, and this is {_kind(other)}; rows by key join each other")
        if (on is None) is (left_on is None and right_on is None) or (left_on is None) is not (right_on is None):
            raise ConfigError("name the key columns: `on`, or both `left_on` and `right_on`")
        left, right = (left_on, right_on) if on is None else (on, on)
        return self.key_by(left).join(other.key_by(right), how, **options)

    def write(self, path: str | PathLike[str], *, mode: str = "error", **options: Any) -> Stream:
        """Write the rows to a directory, as Parquet unless its name ends as `.csv` or `.jsonl`; `mode` is `error` or
        `overwrite`, as in a job file, and `options` are the other keys of `output`, such as `publish` or
        `partition_by`. Another call adds a place."""
        text = fspath(path) if isinstance(path, PathLike) else path
        return self._written({"path": text, "mode": mode, **options})

    def results(
        self, callback: Callable[[pa.Table, int], object], *, publish: str = "final", every: float | str = 1.0
    ) -> Stream:
        """Call a function in this process with the rows of each epoch, and its number, while the flow runs; at least
        once. Each `write`, and each function, gets all rows.

        Args:
            callback: the function; what it raises fails the flow.
            publish: `final`, `changes` or `table`, as in a job file.
            every: seconds from one epoch to the next, or a text as `500ms`.
        """
        if not isinstance(publish, str):
            raise ConfigError(f"`publish` is 'final', 'changes' or 'table', not {publish!r}; give `every` beside it")
        section = {"use": ExecutorConfig.of(callback).use, "publish": {"mode": publish, "every": every}}
        return self._written(section, callback)

    def reference(self, sql: str | None = None, **options: Any) -> Stream:
        """Check the rows against what Spark computes from the inputs: `sql` sees each under the name of the step that
        reads it, or is `auto`: the query that the steps say. `options` are the other keys of the section `reference` of
        a job file. Once a step."""
        self.flow._give(self.step, {"reference": {**({} if sql is None else {"sql": sql}), **options}})
        return self

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
            raise ConfigError(
                f"rows of the flow {other.flow.name!r} cannot be used in {self.flow.name!r}: make one flow"
            )


class KeyedRows:
    """Rows grouped by key: the next call says what becomes of each group."""

    def __init__(self, rows: Stream, key: KeyBy, value: Sequence[str] | None) -> None:
        """Made by `Stream.key_by`."""
        self.flow = rows.flow
        self.rows = rows
        self.key = key
        self.value = value

    def reduce(self, reducer: Any, *, name: str | None = None, **options: Any) -> Stream:
        """Fold the values of each key: a row of key and result columns for each.

        Args:
            reducer: as in a job: a `Reducer` or `BatchReducer`, a function of two values, or the name of a ready-made
                one.
            name: of the step, by default `reduce`.
            options: other keys of the step: `parallelism`, `balance`, `grouping`, `combiner`, `aggregation`, `limits`;
                `schema`, as for `map`, where key columns may be left out.
        """
        return self._add("reduce", reducer, name, options)

    def agg(self, *aggregates: Any, name: str | None = None, **named: Any) -> Stream:
        """Aggregate the values of each key: a row of key and result columns for each.

        Args:
            aggregates: polars expressions of aggregates, such as `pl.col("euros").sum()`, or SQL texts; the result
                column has the name that polars gives it, as `euros`.
            name: of the step, by default `agg`.
            named: the same under names of their own, as `total=pl.col("euros").sum()`; beside other keys of the step,
                as for `reduce`.

        Raises:
            ConfigError: an expression is not one of aggregates that there are.
        """
        import polars as pl

        from dpa.columns.aggregation import aggregation_of

        options = {key: each for key, each in named.items() if key in OF_KEYED and not isinstance(each, pl.Expr)}
        made = aggregation_of(aggregates, {key: each for key, each in named.items() if key not in options})
        written = {key: each if key in made.texts else MADE_IN_PYTHON + each for key, each in made.written.items()}
        rows = self._made(name, "agg", options, {"agg": written})
        if len(made.texts) < len(written):
            self.flow._objects[f"stages.{rows.step}.agg"] = made
        return rows

    def process(self, process: Any, *, name: str | None = None, **options: Any) -> Stream:
        """Process the values of each key in order, one task a key: the rows that a `dpa.Process` emits. Otherwise as
        `reduce`."""
        return self._add("process", process, name, options)

    def join(
        self,
        other: KeyedRows,
        how: str = "inner",
        *,
        broadcast_mb: float | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Stream:
        """Join with other rows, whose key has as many columns: `inner`, `left`, `right`, `full`, `semi` or `anti`.

        The result has the key under its names here, the value columns of this side, and those of the other; a name
        that both have ends with `_right` on the other side.

        A side of at most `broadcast_mb` MiB, 32 by default, goes to every task, and no row is sent to another for an
        `inner`, `left`, `semi` or `anti` join; 0: both sides are shuffled.
        """
        if not isinstance(other, KeyedRows):
            raise ConfigError("a join is with rows by key: give those of `key_by`")
        self.rows._require_same_flow(other)
        for side in (self, other):
            if callable(side.key) or side.key is None:
                raise ConfigError("a join is by columns: make one with `map` and name it in `key_by`")
        join: dict[str, Any] = {"with": [other.rows.step], "how": how, "key_by": other.key}
        if broadcast_mb is not None:
            join["broadcast_mb"] = broadcast_mb
        if other.value is not None:
            join["value"] = list(other.value)
        return self._made(name, "join", {"join": join}, options)

    def top_k(self, k: int, *, by: str, descending: bool = True, name: str | None = None, **options: Any) -> Stream:
        """The first `k` rows of each key in the order of the column `by`, each with its `rank` from 1 on."""
        return self._made(name, "top_k", {"top_k": {"k": k, "by": by, "descending": descending}}, options)

    def _add(self, word: str, executor: Any, name: str | None, options: Mapping[str, Any]) -> Stream:
        rows = self._made(name, word, options)
        self.flow._give(rows.step, {word: self.flow._section(rows.step, word, executor)})
        return rows

    def _made(self, name: str | None, word: str, *sections: Mapping[str, Any]) -> Stream:
        step = self.flow._add(name, word, {"from": [self.rows.step]})
        key = self.flow._section(step, "key_by", self.key) if callable(self.key) else self.key
        self.flow._give(step, {"key_by": key, **({} if self.value is None else {"value": list(self.value)})})
        for section in sections:
            self.flow._give(step, section)
        return Stream(self.flow, step)


def _is_expression(given: object) -> bool:
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(given, polars.Expr)


def _kind(given: object) -> str:
    """What an object is that is not what a call needs."""
    return "rows by key" if isinstance(given, KeyedRows) else type(given).__name__
