"""Several aggregates of a key in one step: a batch reducer put together of parts.

An expression such as `pl.col("a").sum() / pl.len()` is taken apart: each aggregate in it becomes a part with a state,
and what stands around them is computed of their results in the end."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl
import pyarrow as pa

from dpa._util.inference import no_rows, require_name
from dpa._util.words import suggestion
from dpa.columns._parts import MOST_VALUES, Aggregate
from dpa.columns._taking_apart import taken_apart
from dpa.columns._text import aggregate_of, in_integers, marked_name
from dpa.columns.arrow import panics_as_errors, to_batch, to_frame
from dpa.errors import ConfigError, TableError
from dpa.executors import BatchReducer, Groups, SelfNamed

_GROUP = "dpa group"  # the column of the positions of groups; longer where values have such a column

_MANY = 65_536
"""From this number of rows on, polars' streaming engine groups in about half the time; it takes longer to begin."""

_TOO_LARGE = re.compile(r"overflow: it does not fit in (\w+)|from `decimal\[38,0\]` to `i64` failed")
"""How polars says that a result does not fit in the type that it should have."""


class Aggregation(SelfNamed, BatchReducer):
    """Expressions of aggregates, by the names of the result columns. States have a column for each aggregate, so two
    expressions with the same one share it.

    Attributes:
        expressions: as they are given.
        texts: those that were given as SQL texts.
        written: for messages, each as its user has written it.
    """

    def __init__(
        self, expressions: Mapping[str, pl.Expr], texts: Mapping[str, str] | None = None, step: str = ""
    ) -> None:
        """Raises ConfigError where an expression is not one of aggregates, or has one that there is not."""
        if not expressions:
            raise ConfigError("name an aggregate at least, such as n=pl.len()")
        self.expressions = dict(expressions)
        self.texts = dict(texts or {})
        self.step = step
        self.written = {name: str(expression) for name, expression in expressions.items()} | self.texts
        self._parts: dict[str, Aggregate] = {}
        self._first_in: dict[str, str] = {}
        self._finals: dict[str, pl.Expr] = {}
        self._made: dict[tuple[Any, ...], list[pl.Expr]] = {}
        for name, expression in expressions.items():
            with self._naming(name):
                require_name(name)
                self._finals[name] = taken_apart(expression, self._parts)
            self._first_in |= {label: name for label in self._parts if label not in self._first_in}

    def __reduce__(self) -> tuple[Any, ...]:
        return Aggregation, (self.expressions, self.texts, self.step)

    def __str__(self) -> str:
        return f"agg({', '.join(f'{name} = {text}' for name, text in self.written.items())})"

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self._parts.values() for name in part.of.meta.root_names()))

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(self.expressions)

    def partials(self, values: pl.Schema) -> list[pl.Expr]:
        """The states of groups of rows with these columns, for `group_by(...).agg(...)`. Raises ConfigError if a column
        is missing, or has a type without such an aggregate."""
        return self._once("partials", values, self._partials)

    def merging(self, states: pl.Schema) -> list[pl.Expr]:
        """The states of groups of states, for `group_by(...).agg(...)`."""
        return self._once(
            "merging",
            states,
            lambda kinds: [part.merge(pl.col(label), kinds[label]).alias(label) for label, part in self._parts.items()],
        )

    def final(self, states: pl.Schema) -> list[pl.Expr]:
        """The results of the aggregates, row by row, each named as its state."""
        return self._once(
            "final",
            states,
            lambda kinds: [part.final(pl.col(label), kinds[label]).alias(label) for label, part in self._parts.items()],
        )

    def check_values(self, values: pa.Schema) -> None:
        rows = to_frame(no_rows(values))
        if not any(rows.schema.get(name) == pl.Null for name in self.reads):
            self.result_of(rows.schema)
            in_numbers = {name: text for name, each in self.texts.items() if (text := in_integers(each)) != each}
            if in_numbers:  # polars' SQL would compare texts with the digits of decimals
                Aggregation({name: aggregate_of(text) for name, text in in_numbers.items()}).result_of(rows.schema)
            return
        for label, part in self._parts.items():  # null stands for a type that is not known yet
            with self._naming(self._first_in[label], rows.schema):
                rows.select(set(part.of.meta.root_names()))

    def result_of(self, values: pl.Schema) -> pl.Schema:
        """The result columns of rows with these. Raises ConfigError as `partials`, or where a type does not fit."""
        states = pl.DataFrame(schema=values).group_by(pl.lit(0)).agg(self.partials(values))
        aggregated = states.select(self.final(states.schema))
        found = {}
        for name, expression in self._finals.items():
            with self._naming(name):
                result = aggregated.select(expression)
                to_batch(result, pa.schema([]))
                [found[name]] = result.dtypes
        return pl.Schema(found)

    def of_no_rows(self, values: pa.Schema) -> pa.RecordBatch:
        """The results of no row with these columns, one row."""
        frame = to_frame(no_rows(values))
        return self.finish(to_batch(frame.select(self.partials(frame.schema)), pa.schema([])))

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        if [*self._parts] == ["len()"]:  # groups are numbered already
            return pa.record_batch({"len()": pa.array(groups.sizes(), pa.int64())})
        frame = to_frame(groups.values)
        states = self.partials(frame.schema)
        like = [
            groups.values.schema.field(part.of.meta.root_names()[0]).with_name(label)
            for label, part in self._parts.items()
            if part.of.meta.is_column()
        ]
        return self._grouped(groups, frame, states, pa.schema(like))

    def merge(self, groups: Groups) -> pa.RecordBatch:
        frame = to_frame(groups.values)
        return self._grouped(groups, frame, self.merging(frame.schema), groups.values.schema)

    def finish(self, states: pa.RecordBatch) -> pa.RecordBatch:
        frame = to_frame(states)
        try:
            with panics_as_errors():
                results = frame.select(self.final(frame.schema))
        except (pl.exceptions.PolarsError, OverflowError) as error:
            raise self._overflow(error, frame) from None
        found = results.select(expression.alias(name) for name, expression in self._finals.items())
        like = [
            states.schema.field(expression.meta.root_names()[0]).with_name(name)
            for name, expression in self._finals.items()
            if expression.meta.is_column()
        ]
        return to_batch(found, pa.schema(like))

    def _grouped(self, groups: Groups, frame: pl.DataFrame, states: list[pl.Expr], like: pa.Schema) -> pa.RecordBatch:
        name = _GROUP
        while name in frame.columns:
            name += "_"
        ids = pl.DataFrame({name: pl.Series(groups.ids, dtype=pl.Int32)})
        rows = ids.hstack(frame) if frame.width else ids
        with panics_as_errors():
            grouped = rows.lazy().group_by(name).agg(states)
            found = grouped.collect(engine="streaming" if rows.height >= _MANY else "in-memory")
        self._check_bounds(found)
        return to_batch(found.sort(name).drop(name), like)

    def _overflow(self, error: Exception, states: pl.DataFrame) -> Exception:
        """What polars raises of all results as an error of the one that is too large, if it is of one."""
        for label, final in zip(self._parts, self.final(states.schema), strict=True):
            try:
                states.select(final)
            except (pl.exceptions.PolarsError, OverflowError) as own:
                if found := _TOO_LARGE.search(str(own)):
                    return OverflowError(f"overflow: {label} does not fit in {'38 digits' if found[1] else 'int64'}")
        return error

    def _check_bounds(self, states: pl.DataFrame) -> None:
        for label, part in self._parts.items():
            if part.lists and (states[label].list.len() > MOST_VALUES).any():
                raise ValueError(
                    f"{label} lists more than {MOST_VALUES:,} values of a key: use `approx_n_unique`, or keep fewer"
                )

    def _partials(self, values: pl.Schema) -> list[pl.Expr]:
        rows, found = pl.DataFrame(schema=values), []
        for label, part in self._parts.items():
            with self._naming(self._first_in[label], values):
                [kind] = rows.select(part.of).dtypes
                found.append(part.partial(part.of, kind).alias(label))
                to_batch(rows.group_by(pl.lit(0)).agg(found[-1]), pa.schema([]))
        return found

    def _once(self, what: str, schema: pl.Schema, make: Any) -> list[pl.Expr]:
        key = (what, *schema.items())
        if key not in self._made:
            self._made[key] = make(schema)
        return self._made[key]

    @contextmanager
    def _naming(self, name: str, columns: pl.Schema | None = None) -> Iterator[None]:
        """A block in which errors are of one expression, of rows with these columns."""
        at = f"`{self.written[name]}`"
        try:
            with panics_as_errors():
                yield
        except (ConfigError, TableError) as error:
            what = error.message
        except pl.exceptions.ColumnNotFoundError as error:
            what = _missing(str(error), columns)
        except pl.exceptions.PolarsError as error:
            what = str(error).partition("\n")[0]
        else:
            return
        what = marked_name(self.texts[name], what) if name in self.texts else what
        raise ConfigError(f"{at}: {what}", name)


def aggregation_of(unnamed: Sequence[pl.Expr | str], named: Mapping[str, pl.Expr | str], step: str = "") -> Aggregation:
    """Of expressions and SQL texts. One without a name has that which polars gives its column. Raises ConfigError."""
    found, texts = dict[str, pl.Expr](), dict[str, str]()
    for keyword, given in [*((None, each) for each in unnamed), *named.items()]:
        if not isinstance(given, pl.Expr | str):
            raise ConfigError(f"an aggregate is a polars expression or a SQL text, not {given!r}", keyword)
        try:
            expression = aggregate_of(given) if isinstance(given, str) else given
        except ConfigError as error:
            raise ConfigError(f"`{given}`: {error.message}", keyword) from None
        name = expression.meta.output_name(raise_if_undetermined=False) if keyword is None else keyword
        if name is None and expression.meta.has_multiple_outputs():
            raise ConfigError(f"`{given}` stands for several columns: write an aggregate for each")
        if name is None:
            raise ConfigError(f"`{given}` has no name: give it one, as total={given}")
        if name in found:
            raise ConfigError(f"there are two aggregates named {name!r}: name one by a keyword or `alias`")
        found[name] = expression
        if isinstance(given, str):
            texts[name] = given
    return Aggregation(found, texts, step)


def _missing(error: str, columns: pl.Schema | None) -> str:
    """An error of polars that no column has a name, with the names that there are."""
    names = [] if columns is None else columns.names()
    found = re.search(r'"(.*?)"', error)
    name = found[1] if found else error
    hint = suggestion(name, names, before="; ")
    there_are = f"the columns of the values are {', '.join(names)}" if names else "there are no values"
    return f"there is no column {name!r}; {there_are}{hint}"
