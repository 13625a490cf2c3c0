"""What a source task does to a piece of a split, as one query of polars: from the scan up to the first function of the
user's, or to the partial states of the edge that it sends to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpa._util.inference import known_schema
from dpa.execution.block import Block
from dpa.execution.keys import encode, key_column
from dpa.execution.mapping import MapTask
from dpa.execution.row_operators import Chunk
from dpa.execution.rows import ScannedRows, whole_of
from dpa.executors import Groups
from dpa.operators import RowKind, RowOperator
from dpa.routing.hashing import hash_column
from dpa.routing.keys import names_of

if TYPE_CHECKING:
    import polars as pl

    from dpa.columns.query import Query

_KEY, _WEIGHT = "\ue000key", "\ue000rows"
"""Columns of a query. The first letter is of those that Unicode leaves to programs, so no column of a user has it."""

_FOLDED = 1_048_576  # rows whose states a query computes at least, if there are as many: that takes about 0.02 s
_MANY_FOLDED = 2 * _FOLDED  # the same, once folding has paid
_OTHER_ROWS = frozenset({"filter", "explode", "join"})  # verbs after which rows are not one for each row before

_LEAST = 65_536
"""Where fewer rows are asked for, batches are read one after the other: a query begins anew within a row group."""


@dataclass(frozen=True)
class ScanQuery:
    """What of a task's work one query does.

    Attributes:
        verbs: the work of its first operators; None: it has none that a query does.
        operators: how many these are.
        edge: whose partial states end the query; None: it gives rows.
        is_traced: whether rows of it may become dead letters, whose places are looked for in batches.
    """

    verbs: Query | None
    operators: int
    edge: MapTask | None
    is_traced: bool = False

    @staticmethod
    def of(operators: Sequence[RowOperator], outputs: Sequence[object]) -> ScanQuery | None:
        """None if there is nothing for it to do."""
        first = list(takewhile(bool, (operator.query for operator in operators)))
        verbs = reduce(lambda left, right: left.then(right), filter(None, first)) if first else None
        match outputs:
            case [MapTask() as edge] if _folds(edge) and len(first) == len(operators):
                return ScanQuery(verbs, len(first), edge)
        makes_others = any(verb.word in _OTHER_ROWS for verb in verbs.verbs) if verbs is not None else False
        is_traced = makes_others and any(map(tolerates_calls, (*operators[len(first) :], *outputs)))
        return ScanQuery(verbs, len(first), None, is_traced) if first else None

    def wanted(self, at_once: int, left: int) -> int:
        """How many of `left` rows it reads next, where about `at_once` are asked for; 0: some are read without it."""
        if self.edge is not None and self.edge.combines(left):
            return max(at_once, _MANY_FOLDED if self.edge.has_folded else _FOLDED)  # their states are few
        return at_once if self.verbs is not None and at_once >= _LEAST and not self.is_traced else 0

    def collect(self, rows: ScannedRows, most: int) -> Block | Iterator[Chunk]:
        """A block of partial states, or chunks of at most `most` rows."""
        from dpa.columns.arrow import to_batch

        frame, same, origin = rows.frame, rows.schema, rows.origin
        assert frame is not None
        if self.verbs is not None:
            frame, same = self.verbs.lazy(frame), self.verbs.passed_on(same)
        if self.edge is not None and self.edge.combines(origin.rows):
            if self.verbs is None and 0 < len(same) == len(rows.dictionary):  # keys alone, which the file has numbered
                batches = rows.split.batches(origin.rows)
                return self.edge.sent(self.edge.block_of(whole_of(pa.Table.from_batches(batches))))
            block = folded(self.edge, frame, same)
            self.edge.note(block)
            return block
        batch = to_batch(frame.collect(), same)
        whole = Chunk(batch, origin.rows, origin)
        return (
            whole.part(start, min(start + most, batch.num_rows), 0 if start else origin.rows)
            for start in range(0, max(batch.num_rows, 1), most)
        )


def only(columns: Sequence[str], after: RowOperator) -> RowOperator:
    """Leaves other columns out, after an operator with the same tolerance."""
    import polars as pl

    from dpa.columns.query import Query, Verb

    select = Verb("select", tuple(map(pl.col, columns)), text=", ".join(columns))
    return replace(after, kind=RowKind.MAP, function=Query((select,)))


def tolerates_calls(node: object) -> bool:
    """Whether a row becomes a dead letter where a function of the user's raises on it."""
    match node:
        case MapTask():
            return node.tolerance is not None and (node.mapper is not None or node.key_function is not None)
        case RowOperator():
            return node.tolerance is not None
    return any(map(tolerates_calls, (*node.operators, *node.outputs)))  # type: ignore[attr-defined]


def _folds(edge: MapTask) -> bool:
    """Whether a query may end in states of an edge's records."""
    as_they_are = edge.mapper is None and edge.key_function is None and not edge.inputs
    return bool(edge.combine) and as_they_are and edge.receiver.windowing is None and edge.receiver.has_partials


def folded(edge: MapTask, rows: pl.LazyFrame, schema: pa.Schema) -> Block:
    """The states of the keys of rows, which are read and grouped by one query; `schema` as of `to_batch`."""
    import polars as pl

    from dpa.columns.arrow import to_batch

    names = {f"{_KEY}{place}": name for place, name in enumerate(names_of(edge.key))}  # states may have their names
    parts = (pl.len().alias(_WEIGHT), *edge.receiver.partials(rows.collect_schema()))
    if names:
        found = rows.group_by(pl.col(name).alias(key) for key, name in names.items()).agg(*parts)
    else:
        found = rows.select(*parts).filter(pl.col(_WEIGHT) > 0)
    typed = [schema.field(name).with_name(key) for key, name in names.items() if name in schema.names]
    batch = to_batch(found.collect(), pa.schema([*_states_of(edge, schema), *typed]))
    column = key_column(batch, next(iter(names)) if isinstance(edge.key, str) else tuple(names))
    if pa.types.is_struct(column.type):
        column = pa.StructArray.from_arrays(column.flatten(), names=list(names.values()))
    is_text = pa.types.is_string(column.type)
    keys, codes = (column, np.arange(len(column), dtype=np.int32)) if is_text else encode(column)  # texts are distinct
    states = batch.drop_columns([*names, _WEIGHT])
    if len(keys) < len(codes):  # some are one key here, and several to polars
        states = edge.receiver.merged(Groups(keys, codes, states))
    elif not is_text:
        states = states.take(pa.array(np.argsort(codes)))  # composite keys come in another order than their rows
    weights = np.bincount(codes, batch.column(_WEIGHT).to_numpy(), len(keys)).astype(np.int64)
    own = np.arange(len(keys), dtype=np.int32)
    return Block(keys, hash_column(keys, edge.seed), own, states, weights, combined=True).weighed()


def _states_of(edge: MapTask, schema: pa.Schema) -> pa.Schema:
    """The columns of states as the reducer itself makes them: polars holds several types of Arrow as one."""
    states = edge.receiver.combined(edge.empty_block(known_schema(schema)))
    assert isinstance(states, pa.RecordBatch)
    return states.schema
