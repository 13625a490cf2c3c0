"""The columns that the inputs of a union or a join must share, and those that came from each input, if they are known
only at run time.

Senders note them beside each block. A task finds incompatible types as soon as it has both. A missing column is found
when the stage ends, over all its tasks: until then it may still come, since functions may give each row other
columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import pyarrow as pa

from dpa._util.inference import as_type, promoted
from dpa._util.words import text_hint
from dpa.errors import ConfigError, ExecutorError, KeyTypeError
from dpa.routing.keys import key_type, one_type


def united(schemas: Mapping[str, pa.Schema], *, fills: bool) -> pa.Schema:
    """The columns of several steps' rows, by step, in the order of the first. `fills`: missing columns become null.
    Raises ConfigError if they are incompatible."""
    found: dict[str, tuple[pa.DataType, str]] = {}
    for step, schema in schemas.items():
        for field in schema:
            known, first = found.get(field.name, (field.type, step))
            both = promoted(known, field.type)
            if both is None:
                raise ConfigError(_two_types(field.name, known, first, field.type, step))
            found[field.name] = (both, step if pa.types.is_null(known) else first)
    lacking = {step: [name for name in found if name not in schema.names] for step, schema in schemas.items()}
    if not fills and any(lacking.values()):
        raise ConfigError(_missing(lacking))
    return pa.schema([(name, kind) for name, (kind, _) in found.items()])


def require_one_key(sides: Sequence[tuple[str, pa.Schema]]) -> None:
    """`sides`: each step's name, and its key columns in order. Raises ConfigError if the keys of two steps have no
    common type."""
    for (of_left, left), (of_right, right) in combinations(sides, 2):
        for mine, other in zip(left, right, strict=True):
            try:
                one_type([key_type(mine.type), key_type(other.type)])
            except KeyTypeError:
                both = f"{mine.name!r} of {of_left!r} is {mine.type} and {other.name!r} of {of_right!r} is {other.type}"
                text, step = (other.name, of_right) if pa.types.is_string(mine.type) else (mine.name, of_left)
                mend = _alike(text, step, mine.type, other.type)
                raise ConfigError(f"keys must be of one type, but {both}; {mend}") from None


@dataclass(frozen=True)
class Aligned:
    """Gives a batch the columns of all steps that are united; the type null means unknown."""

    schema: pa.Schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Missing columns become null; a dictionary stays one. Raises TypeError if a column of unknown type has another
        type than in other rows."""
        columns = {}
        for field in self.schema:
            if field.name not in batch.schema.names:
                columns[field.name] = pa.nulls(batch.num_rows, field.type)
                continue
            column = batch.column(field.name)
            is_encoded = pa.types.is_dictionary(column.type)
            kind = column.type.value_type if is_encoded else column.type
            both = promoted(kind, field.type)
            if both is None:
                raise TypeError(f"the column {field.name!r} is {kind} here and {field.type} in the rows of other steps")
            columns[field.name] = column if is_encoded and both == kind else as_type(column, both)
        return pa.record_batch(columns)


def _two_types(column: str, left: pa.DataType, of_left: str, right: pa.DataType, of_right: str) -> str:
    text = of_right if pa.types.is_string(left) else of_left
    both = f"the column {column!r} is {left} in the rows of {of_left!r} and {right} in those of {of_right!r}"
    return f"{both}; {_alike(column, text, left, right)}"


def _alike(column: str, step: str, left: pa.DataType, right: pa.DataType) -> str:
    """How to make both types one."""
    if pa.types.is_temporal(left) and pa.types.is_temporal(right):  # whose texts differ though the times are equal
        ways = '`.dt.replace_time_zone("UTC")`, `.dt.convert_time_zone(...)` or `.dt.date()`'
        return f"give one of them the other's type in a step `with_columns`, by polars' {ways}"
    return f"make text of {column!r} in {step!r}: {text_hint(column)}"


def _missing(lacking: Mapping[str, list[str]]) -> str:
    """By the names of the steps whose rows lack columns."""
    each = [
        f"of {step!r} {'have ' if number == 0 else ''}no column {', '.join(map(repr, names))}"
        for number, (step, names) in enumerate((step, names) for step, names in lacking.items() if names)
    ]
    mend = "give all the same columns, or set `allow_missing_columns`, and they are null there"
    return f"the rows {', and those '.join(each)}; {mend}"


@dataclass(frozen=True)
class Input:
    """One of several inputs whose columns must go together.

    Attributes:
        place: the key path of what names them.
        step: whose rows they are.
        fills: whether rows of a union may lack columns.
        is_side: whether only keys must go together, as those of the sides of a join.
    """

    place: str
    step: str
    fills: bool = False
    is_side: bool = False


Arrived = Mapping[Input, pa.Schema]
"""The columns of each input; of the sides of a join, those of the key."""


def merged(parts: Iterable[Arrived]) -> dict[Input, pa.Schema]:
    """Incompatible types of one input are left to the receiver."""
    found: dict[Input, pa.Schema] = {}
    for part in parts:
        for given, schema in part.items():
            known = found.get(given)
            if known is None or known.equals(schema):
                found[given] = schema
                continue
            try:
                found[given] = united({"before": known, "now": schema}, fills=True)
            except ConfigError:
                continue
    return found


def check(arrived: Arrived, *, is_all: bool) -> None:
    """Raises ExecutorError, with the place and the inputs, if the columns are incompatible. `is_all`: nothing else will
    come, so a missing column is an error."""
    by_place: dict[str, list[Input]] = {}
    for given in arrived:
        by_place.setdefault(given.place, []).append(given)
    for place, inputs in by_place.items():
        schemas = {given.step: arrived[given] for given in inputs}
        try:
            if inputs[0].is_side:
                require_one_key(list(schemas.items()))
            else:
                united(schemas, fills=inputs[0].fills or not is_all)
        except ConfigError as error:
            raise ExecutorError(f"{place}: {error}") from None
