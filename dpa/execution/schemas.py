"""The one schema of a result, to which every share is cast before any is written.

A per-record reducer returns Python objects, so each share's column types are inferred from its values: all may be null
on one reducer and integers on another. Types are promoted if Arrow can do so without loss; otherwise the job fails with
an error that names a key of either side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpa._util.inference import array_of, as_type, no_rows, promoted
from dpa.errors import ExecutorError
from dpa.execution.arrivals import Arrived, check, merged
from dpa.execution.keys import cast, key_column
from dpa.routing.keys import Key, KeyName, in_words, names_of, one_type, to_python

_RULE = "`finish` must return values of one Arrow type, or dicts with the same keys, for every key"


@dataclass(frozen=True, eq=False)
class ShareSchema:
    """The columns of one reducer's share, which has at least one row.

    Attributes:
        schema: as inferred from this share alone.
        key: name of the key column, or the names of the columns of a composite key.
        examples: for each column a key with a value in it (any key if all values are null), for error messages; shape
            (columns,).
        may_lack: whether the share may lack columns that others have, which are null in it.
        arrived: the columns of the rows that its task took, by the inputs that they came from; None where nobody notes
            them.
    """

    schema: pa.Schema
    key: KeyName
    examples: tuple[Key, ...]
    may_lack: bool = False
    arrived: Arrived | None = None

    @staticmethod
    def of(
        share: pa.Table, key: KeyName, *, may_lack: bool = False, arrived: Arrived | None = None
    ) -> ShareSchema | None:
        """None for an empty share, whose types mean nothing; with `arrived`, only that and no columns."""
        if not share.num_rows:
            return ShareSchema(pa.schema([]), key, (), arrived=arrived) if arrived else None
        valid = (pc.index(pc.is_valid(column), True).as_py() for column in share.columns)
        rows = pa.array([max(row, 0) for row in valid])
        return ShareSchema(share.schema, key, tuple(to_python(key_column(share, key).take(rows))), may_lack, arrived)


def agreed(shares: Iterable[ShareSchema | None]) -> pa.Schema | None:
    """The schema that all shares can be cast to, in the column order of the first; None if all are empty. Raises
    ExecutorError if shares have different columns, types have no common type, or inputs do not go together;
    KeyTypeError if the keys have no one type."""
    given = [share for share in shares if share is not None]
    check(merged(share.arrived or {} for share in given), is_all=True)
    filled = [share for share in given if share.examples]
    if not filled:
        return None
    first = filled[0]
    found = dict(zip(first.schema.names, zip(first.schema.types, first.examples, strict=True), strict=True))
    for share in filled[1:]:
        if set(share.schema.names) != set(found) and not share.may_lack:
            raise differs("columns", _names(first), first.examples[0], _names(share), share.examples[0])
        for name, kind, example in zip(share.schema.names, share.schema.types, share.examples, strict=True):
            known, key = found.get(name, (pa.null(), example))
            both = one_type([known, kind]) if name in names_of(first.key) else promoted(known, kind)
            if both is None:
                raise differs(f"column {name!r}", known, key, kind, example)
            found[name] = (both, example if pa.types.is_null(known) else key)
    return pa.schema([(name, found[name][0]) for name in found])


def as_agreed(share: pa.Table, schema: pa.Schema, key: KeyName) -> pa.Table:
    """Reorder the share's columns to `schema`; missing columns become null. An empty share gets all. Raises
    ExecutorError if a value does not fit its column's type, KeyTypeError if a key does not."""
    if not share.num_rows:
        return pa.Table.from_batches([no_rows(schema)])
    columns = []
    for field in schema:
        if field.name not in share.column_names:
            columns.append(pa.nulls(share.num_rows, field.type))
            continue
        if field.name in names_of(key):
            columns.append(cast(share[field.name], field.type))
            continue
        try:
            columns.append(as_type(share[field.name], field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            here = f"{share.schema.field(field.name).type} on one reducer and {field.type} on another"
            raise ExecutorError(f"column {field.name!r} of the result is {here}: {error}; {_RULE}") from None
    return pa.table(columns, schema=schema)


def result_column(name: str, keys: list[Key], values: list[Any]) -> pa.Array:
    """The values that `finish` returned; keys and values have shape (keys,). Raises ExecutorError if types have no
    common type, or no Arrow type holds a value."""
    try:
        return array_of(values)
    except _UNFIT as error:
        raise _unfit(name, keys, values) or ExecutorError(f"column {name!r} of the result: {error}; {_RULE}") from None


_UNFIT = (pa.ArrowException, OverflowError, TypeError, UnicodeError)


def _unfit(name: str, keys: list[Key], values: list[Any]) -> ExecutorError | None:
    """The error for a column that Arrow cannot make: the first key that does not fit those before."""
    known, known_key = pa.null(), keys[0]
    for key, value in zip(keys, values, strict=True):
        try:
            kind = array_of([value]).type
        except _UNFIT as error:
            return ExecutorError(f"column {name!r} of the result, for key {in_words(key)}: {error}; {_RULE}")
        both = promoted(known, kind)
        if both is None:
            return differs(f"column {name!r}", known, known_key, kind, key)
        known, known_key = both, key if pa.types.is_null(known) else known_key
    return None


def differs(what: str, left: object, left_key: Key, right: object, right_key: Key) -> ExecutorError:
    difference = f"{left} for key {in_words(left_key)} and {right} for key {in_words(right_key)}"
    return ExecutorError(f"the results of this job differ in {what}: {difference}; {_RULE}")


def _names(share: ShareSchema) -> str:
    return ", ".join(name for name in share.schema.names if name not in names_of(share.key))
