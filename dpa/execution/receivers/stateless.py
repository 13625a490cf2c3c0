"""A stage without states: it passes rows on, changed by an operator or as they are."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dpa._util.words import shortened
from dpa.errors import DpaError, ProtocolError
from dpa.execution.block import Block
from dpa.execution.failures import USER_ERRORS
from dpa.execution.receivers.base import NOTHING_KNOWN, Extent, Known, Receiver, as_declared
from dpa.execution.row_operators import Chunk, Limits, apply, schema_after
from dpa.execution.rows import one_batch
from dpa.execution.states import Reduced, StatePart, States
from dpa.execution.windowing import Assign
from dpa.executors import called, name_of
from dpa.operators import MAKING, RowOperator
from dpa.routing.hashing import ALL_HASHES, Interval
from dpa.routing.keys import KeyName
from dpa.routing.table import Owning, RoutingTable
from dpa.tolerance import Origin, Tolerance

_SHOWN = 80  # most characters of expressions in plans and pictures

_ONE_QUANTUM = Limits(rows=2**31 - 1, seconds=math.inf, clock=lambda: 0.0)
"""A block is one quantum, small enough to hand over whole."""


class StatelessReceiver(Receiver):
    """The executor is a `RowOperator`, or None if rows do not change."""

    noun = "an operator on rows"
    word = "from"
    keeps_states = False
    keeps_order = True
    gives_key = False
    may_lack_columns = True

    executor: RowOperator | None

    @property
    def reads(self) -> tuple[str, ...]:
        return () if self._assign is None else (self._assign.time.column,)

    @property
    def operators(self) -> tuple[RowOperator, ...]:
        return () if self.executor is None else (replace(self.executor, tolerance=self.tolerance),)

    def noting(self, outside: Tolerance) -> Receiver:
        if self.executor is None or self._assign is None:
            return self
        return replace(self, executor=replace(self.executor, function=replace(self._assign, untimed=outside)))

    @property
    def _assign(self) -> Assign | None:
        function = None if self.executor is None else self.executor.function
        return function if isinstance(function, Assign) else None

    def does(self, by: str) -> str:
        if self.executor is None:
            return "union"
        if self._assign is not None:
            return self._assign.windows.describe()
        if self.executor.query is not None:
            return shortened(name_of(self.executor), _SHOWN)
        return f"{self.executor.kind.value} {name_of(self.executor).rpartition('.')[2]}"

    def columns(self, key: KeyName, blocks: Sequence[Block], extent: Extent) -> Known:
        try:
            schema = schema_after(self.operators, blocks[0].columns.schema)
        except (DpaError, pa.ArrowException, *USER_ERRORS):
            schema = None
        if schema is not None and extent is Extent.NAMES and any(each.kind in MAKING for each in self.operators):
            schema = pa.schema([(name, pa.null()) for name in schema.names])  # they go by types that are not known
        found = NOTHING_KNOWN if schema is None else Known(schema, extent)
        for operator in self.operators:
            found = as_declared(found, operator.declared, called(operator, operator.kind.value))
        return found

    def own_store(self) -> States[Any]:
        return NoStates(self.operators)


class NoStates(States[StatePart]):
    """A store without states: applies the stage's operators to rows."""

    def __init__(self, operators: Sequence[RowOperator] = ()) -> None:
        self._operators = operators

    @property
    def size(self) -> int:
        return 0

    @property
    def nbytes(self) -> int:
        return 0

    def reduce(self, block: Block) -> pa.RecordBatch | None:
        if not self._operators:
            return block.columns
        chunks = apply(self._operators, iter([Chunk(block.columns, block.rows, Origin(0, block.rows))]), _ONE_QUANTUM)
        made = [(chunk.batch, chunk.batch.num_rows) for chunk in chunks if chunk.batch.num_rows]
        return one_batch(made) if made else None

    def merge(self, part: StatePart) -> None:
        raise ProtocolError("a stage without state received states")

    def pieces(self, table: RoutingTable, keep: int, most: int) -> list[Interval]:
        return [ALL_HASHES]

    def pack(self, table: Owning, keep: int, interval: Interval = ALL_HASHES) -> dict[int, StatePart]:
        return {}

    def snapshot(self) -> StatePart | None:
        return None

    def finish(self, key: KeyName) -> Reduced:
        return Reduced.of_nobody(pa.table({}))
