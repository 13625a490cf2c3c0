"""What a source task does to a piece of a split, as one query of polars: from the scan up to the first function of the
user's, or to the partial states of the edge that it sends to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import TYPE_CHECKING

from dpa.execution.block import Block
from dpa.execution.mapping import MapTask
from dpa.execution.row_operators import Chunk
from dpa.execution.rows import ScannedRows
from dpa.operators import RowOperator
from dpa.tolerance import Origin

if TYPE_CHECKING:
    from dpa.columns.query import Query


@dataclass(frozen=True)
class PieceQuery:
    """What of a task's work one query does.

    Attributes:
        verbs: the work of its first operators; None: it has none that a query does.
        operators: how many these are.
        edge: whose partial states end the query; None: it gives rows.
    """

    verbs: Query | None
    operators: int
    edge: MapTask | None

    @staticmethod
    def of(operators: Sequence[RowOperator], outputs: Sequence[object]) -> PieceQuery | None:
        """None if there is nothing for it to do."""
        first = list(takewhile(bool, (operator.query for operator in operators)))
        verbs = reduce(lambda left, right: left.then(right), filter(None, first)) if first else None
        match outputs:
            case [MapTask() as edge] if edge.has_partials and len(first) == len(operators):
                return PieceQuery(verbs, len(first), edge)
        return PieceQuery(verbs, len(first), None) if first else None

    def collect(self, piece: ScannedRows, most: int) -> Block | list[Chunk]:
        """A block of partial states, or chunks of at most `most` rows."""
        from dpa.columns.arrow import to_batch

        frame, same = piece.frame, piece.schema
        if self.verbs is not None:
            frame, same = self.verbs.lazy(frame), self.verbs.passed_on(same)
        if self.edge is not None:
            return self.edge.folded(frame, same)
        rows, origin = to_batch(frame.collect(), same), piece.origin
        read = [origin.rows, *(0 for _ in range(most, rows.num_rows, most))]
        return [Chunk(rows.slice(number * most, most), new, origin) for number, new in enumerate(read)]


def by_batches(piece: ScannedRows, most: int) -> Iterator[Chunk]:
    """The rows of a piece without a query."""
    first = piece.origin.first
    for batch in piece.batches(most):
        yield Chunk(batch, batch.num_rows, Origin(first, batch.num_rows))
        first += batch.num_rows
