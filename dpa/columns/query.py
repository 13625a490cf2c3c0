"""Verbs on columns, and several of them as one lazy query of polars, which works on a batch or on a scanned split."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from typing import Any

import polars as pl
import pyarrow as pa

from dpa._util.inference import no_rows
from dpa._util.words import suggestion
from dpa.columns.arrow import panics_as_errors, to_batch, to_frame, unordered
from dpa.errors import TableError
from dpa.executors import SelfNamed


@dataclass(frozen=True)
class Sql:
    """A SQL text that polars translates only where it knows the types of columns, and the name of what it makes."""

    text: str
    name: str = ""


def tree_of(expression: pl.Expr, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """An expression as the structure that polars sends; `hook` is called with each mapping in it, inner ones first."""
    return json.loads(_quietly(expression.meta.serialize), object_hook=hook)


def of_tree(node: Any) -> pl.Expr:
    made: pl.Expr = _quietly(pl.Expr.deserialize, StringIO(json.dumps(node)))
    return made


def _quietly(function: Callable[..., Any], *args: Any) -> Any:
    """Without what polars says of JSON, which may change with its version: tests hold what is used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, format="json")


@dataclass(frozen=True, eq=False)
class Verb:
    """One step on columns.

    Attributes:
        word: the method of `polars.LazyFrame`: `filter`, `with_columns`, `select`, `drop`, `rename`, `explode` or
            `unnest`.
        expressions: of the first three, named where they make columns.
        columns: of the others, the names of columns; of `rename`, the old ones.
        new: of `rename`, the new name of each.
        text: what the user wrote, for messages and reports.
        texts: each SQL text in it; one that has decimals with what it is in integers, which polars refuses beside
            texts. Its SQL would compare these with the decimals' digits.
    """

    word: str
    expressions: tuple[pl.Expr | Sql, ...] = ()
    columns: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    text: str = ""
    texts: tuple[tuple[str, pl.Expr | None], ...] = ()

    def __str__(self) -> str:
        return f"{self.word}({self.text})"

    def lazy(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        if self.word == "rename":
            return frame.rename(dict(zip(self.columns, self.new, strict=True)))
        if self.columns:
            done: pl.LazyFrame = getattr(frame, self.word)(*self.columns)
            return done
        texts = [each for each in self.expressions if isinstance(each, Sql)]
        if not texts:
            done = getattr(frame, self.word)(*self.expressions)
            return done
        made = [f"dpa.sql.{number}" for number in range(len(texts))]
        listed = ", ".join(f'{each.text}\n AS "{name}"' for each, name in zip(texts, made, strict=True))
        names = dict(zip(texts, made, strict=True))
        expressions = [
            pl.col(names[each]).alias(each.name or names[each]) if isinstance(each, Sql) else each
            for each in self.expressions
        ]
        done = getattr(frame.sql(f"SELECT *, {listed} FROM self"), self.word)(*expressions)
        return done.drop(made, strict=False)

    def passes_on(self, columns: Mapping[str, pa.Field], frame: pl.LazyFrame) -> dict[str, pa.Field]:
        """Those of `columns` that rows still have as they were, under their new names; `frame` has the rows before."""
        self._check_columns(frame)
        self._check_texts(frame)
        if self.word == "filter":
            return dict(columns)
        if self.word == "rename":
            new = dict(zip(self.columns, self.new, strict=True))
            return {new.get(name, name): field for name, field in columns.items()}
        kept = {} if self.word == "select" else {name: columns[name] for name in columns if name not in self.columns}
        for each in self.expressions:
            if isinstance(each, Sql):
                kept.pop(each.name, None)
                continue
            made = frame.select(each).collect_schema().names()
            source = each.meta.undo_aliases()
            is_passed = source.meta.is_column_selection()
            of = frame.select(source).collect_schema().names() if is_passed else [""] * len(made)
            for name, old in zip(made, of, strict=True):
                kept.pop(name, None)
                if old in columns:
                    kept[name] = columns[old]
        return kept

    def _check_texts(self, frame: pl.LazyFrame) -> None:
        names = frame.collect_schema().names() if self.texts else []
        for text, in_integers in self.texts:
            if text in names and not text.isidentifier():
                raise TableError(f'`{text}` is computed, and a column has this name, which is written "{text}"')
            if in_integers is not None:
                frame.select(in_integers).collect()

    def _check_columns(self, frame: pl.LazyFrame) -> None:
        schema = frame.collect_schema() if self.columns else pl.Schema()
        for name in self.columns:
            if name not in schema:
                hint = suggestion(name, schema.names(), before="; ")
                raise TableError(f"there is no column {name!r} among {', '.join(schema.names())}{hint}")
            if self.word == "explode" and not isinstance(schema[name], pl.List | pl.Array):
                raise TableError(f"the column {name!r} is {schema[name]}, and `explode` needs lists")


@dataclass(frozen=True, eq=False)
class Query(SelfNamed):
    """Verbs in order, which polars optimizes as a whole. Called with a batch it returns another."""

    verbs: tuple[Verb, ...]
    step: str = ""

    def then(self, other: Query) -> Query:
        return Query((*self.verbs, *other.verbs))

    def lazy(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        for verb in self.verbs:
            frame = unordered(verb.lazy(frame))
        return frame

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises polars.exceptions.PolarsError, or what a function inside of an expression raises; TableError where a
        column is missing, or is no list."""
        like = self.passed_on(batch.schema)  # which also looks for what is wrong with the columns
        with panics_as_errors():
            return to_batch(self.lazy(to_frame(batch).lazy()).collect(), like)

    def passed_on(self, columns: pa.Schema) -> pa.Schema:
        """The columns of its rows, under their new names, that are those of its input as they were."""
        return _passed_on(self, columns)

    def __str__(self) -> str:
        return ".".join(map(str, self.verbs))


@lru_cache(maxsize=256)
def _passed_on(query: Query, columns: pa.Schema) -> pa.Schema:
    frame, kept = to_frame(no_rows(columns)).lazy(), {field.name: field for field in columns}
    for verb in query.verbs:
        kept = verb.passes_on(kept, frame)
        frame = unordered(verb.lazy(frame))
    return pa.schema([field.with_name(name) for name, field in kept.items()])
