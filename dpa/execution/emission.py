"""What a task emits: its rows after the operators fused into it, as blocks for every edge that leaves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from dpa.execution._queries import ScanQuery, only
from dpa.execution.block import Block
from dpa.execution.mapping import Emitted, MapTask
from dpa.execution.row_operators import Chunk, Limits, apply, chunks_of
from dpa.execution.rows import OneBatch, Portions, Rows, ScannedRows
from dpa.operators import RowOperator
from dpa.sources.event_time import SourceTime
from dpa.tolerance import Letters, Origin, Tolerance


@dataclass(frozen=True)
class Emission:
    """A tree of operators, each of which runs once; its leaves are the edges.

    Attributes:
        outputs: what takes the rows after the operators: the keying of an edge, or operators that only some edges need.
        operators: what all outputs have in common, in order.
        letters: of a source, what errors of user code are noted in; None: none are tolerated.
        reading: of a source, how records are tolerated that cannot be read; None: they fail the job.
        deaths: of a source, how rows are tolerated that end their process; None: they fail the job.
        time: of a source, the event time of its rows; None: they have none.
    """

    outputs: tuple[Emission | MapTask, ...]
    operators: tuple[RowOperator, ...] = ()
    letters: Letters | None = None
    reading: Tolerance | None = None
    deaths: Tolerance | None = None
    time: SourceTime | None = None

    @property
    def edges(self) -> tuple[MapTask, ...]:
        """In the order of the tree."""
        return tuple(edge for output in self.outputs for edge in output.edges)

    @property
    def tolerances(self) -> Iterator[Tolerance]:
        of_nodes = (*self.operators, *self.outputs)
        for node in of_nodes:
            if isinstance(node, Emission):
                yield from node.tolerances
            else:
                found = (
                    node.tolerance,
                    node.receiver.tolerance if isinstance(node, MapTask) and node.combine else None,
                )
                yield from filter(None, found)

    def steps(self, rows: Rows, clock: Callable[[], float], origin: Origin | None = None) -> Iterator[Emitted]:
        """Emit rows step by step; `clock` gives seconds. Blocks and duration of a step are within the edges' limits.
        `origin`: of which rows of a split they were made; None: they are those rows. Raises ExecutorError."""
        edges = self.edges
        limits = Limits(min(edge.batch_records for edge in edges), min(edge.step_seconds for edge in edges), clock)
        query = self._query if isinstance(rows, Portions) else None
        scanned = rows.scanned(query.wanted) if isinstance(rows, Portions) and query is not None else None
        if query is not None and scanned is not None:
            for some in scanned:
                yield from self._queried(some, query, limits)
            return
        if len(self.outputs) == 1 and not self.operators:
            yield from self.outputs[0].steps(rows, clock, origin)
            return
        yield from self._applied(self.operators, chunks_of(rows, limits.rows, origin), limits)

    @cached_property
    def _query(self) -> ScanQuery | None:
        return ScanQuery.of(self._scanning, self.outputs)

    @cached_property
    def _scanning(self) -> tuple[RowOperator, ...]:
        """The operators of rows that a query may read. Polars computes no column that nobody takes, so what the edge
        does not take must be left out by batches too, or it would depend on the reading whether a row fails."""
        match self.outputs:
            case [MapTask() as edge] if edge.columns and all(operator.query for operator in self.operators[-1:]):
                return (*self.operators, *(only(edge.columns, after) for after in self.operators[-1:]))
        return self.operators

    def _queried(self, rows: ScannedRows, query: ScanQuery, limits: Limits) -> Iterator[Emitted]:
        from dpa.columns.arrow import panics_as_errors

        operators, found = self._scanning, None
        if rows.frame is not None:
            with (
                suppress(Exception),
                panics_as_errors(),
            ):  # to read and compute by batches names what is wrong and where, or sets it aside
                found = query.collect(rows, limits.rows)
        if isinstance(found, Block):
            yield Emitted(((0, found),) if found.rows else (), rows.origin.rows, int(found.mapped().sum()))
            return
        if found is None:
            found = chunks_of(rows, limits.rows, first=rows.origin.first)
        else:
            operators = operators[query.operators :]
        yield from self._applied(operators, found, limits)

    def _applied(self, operators: Sequence[RowOperator], chunks: Iterator[Chunk], limits: Limits) -> Iterator[Emitted]:
        for chunk in apply(operators, chunks, limits):
            yield from self._distributed(chunk, limits.clock)

    def _distributed(self, chunk: Chunk, clock: Callable[[], float]) -> Iterator[Emitted]:
        """Each step has the next blocks of all outputs."""
        if not chunk.batch.num_rows:
            yield Emitted((), chunk.read, 0)
            return
        outputs = (output.steps(OneBatch(chunk.batch), clock, chunk.origin) for output in self.outputs)
        widths = [len(output.edges) for output in self.outputs]
        for number, steps in enumerate(zip_longest(*outputs, fillvalue=_NOTHING)):
            blocks, first = [], 0
            for step, width in zip(steps, widths, strict=True):
                blocks += [(first + edge, block) for edge, block in step.blocks]
                first += width
            yield Emitted(tuple(blocks), chunk.read if number == 0 else 0, sum(step.mapped for step in steps))


_NOTHING = Emitted((), 0, 0)
