"""Which joins need no shuffle, once the inputs are open: a side that is small is read here, and the join becomes a step
on the rows of the other side. What only that side needed is then no part of the graph.

This process reads the side, and not a task: it is small, tasks get it with the plan (on Ray through the object store,
once a node), and its size must be known before there is a graph. polars is imported only where a join has such a side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.inference import as_type, no_rows
from dpa.balance.options import NoBalancingOptions
from dpa.driver._steps import READERS
from dpa.driver.inputs import OpenedInput, blaming
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError
from dpa.execution.keys import cast, encode, key_column
from dpa.execution.receivers.stateless import StatelessReceiver
from dpa.execution.row_operators import Chunk, Limits, apply
from dpa.execution.rows import one_batch
from dpa.logical.columns import Columns
from dpa.logical.step import Step, StepInput, with_feeding
from dpa.operators import JoinOptions, RowKind, RowOperator
from dpa.result import JoinReport
from dpa.routing.groupings.options import ShuffleOptions
from dpa.routing.keys import key_type, one_type
from dpa.sources.files import FileTable
from dpa.tolerance import Origin

if TYPE_CHECKING:
    from dpa.columns.joining import Lookup, Side

_ROWS = 65_536

_OF_TASKS = ("parallelism", "grouping", "balance", "limits", "elastic", "testing", "resources")
"""Keys that say something of the tasks to which the rows of both sides go."""

_KEY = "\ue000side"
"""Begins the names of a side's key columns. The first letter is of those that Unicode leaves to programs."""

_MATCHES = 100  # most rows of a side that have one key: a query has all matches of its rows in memory

_NO_LIMITS = Limits(rows=_ROWS, seconds=math.inf, clock=lambda: 0.0)

Sides = Mapping[str, Mapping[str, str]]
"""What checkpoints know of sides: by join, the step whose rows they are, and their digest."""


class _ShuffledError(Exception):
    """Why a join is shuffled."""


@dataclass(frozen=True)
class Chosen:
    """A job whose joins have their forms.

    Attributes:
        spec: the job, whose steps say which.
        opened: the inputs that its tasks read.
        joins: what reports say of each.
        sides: by join, the rows that every task has, and the step they come from.
    """

    spec: JobSpec
    opened: Mapping[str, OpenedInput]
    joins: tuple[JoinReport, ...] = ()
    sides: Mapping[str, tuple[str, Side]] = field(default_factory=dict)

    @property
    def digests(self) -> Sides:
        return {join: {"of": name, "digest": side.digest} for join, (name, side) in self.sides.items()}


def chosen(spec: JobSpec, opened: Mapping[str, OpenedInput], saved: Sides | None = None) -> Chosen:
    """Choose the form of each join. `saved`: what a resumed job had, which it must have again; None: the job is new.
    ConfigError if it has not, or an input cannot be read; ExecutorError if a step of a side fails."""
    joins = [step for step in spec.steps if isinstance(step.receiver.executor, JoinOptions)]
    if not joins:
        return Chosen(spec, opened)
    columns = spec.compilation({name: found.schema for name, found in opened.items()}).columns
    steps, reports, sides = {step.name: step for step in spec.steps}, [], {}
    for join in joins:
        had = None if saved is None else saved.get(join.name, {})
        try:
            steps[join.name], name, side = _Choice(spec, join, steps, columns, opened, had).made()
        except _ShuffledError as why:
            if had:
                raise _other(spec, join, str(why)) from None
            reports.append(JoinReport(join.name, "shuffled", why=str(why)))
            continue
        if had and had["digest"] != side.digest:
            raise _other(spec, join, f"the rows of {name!r} are others now")
        sides[join.name] = (name, side)
        because = "the checkpoint was made so" if had else f"it has at most {_megabytes(join)}"
        reports.append(JoinReport(join.name, "broadcast", name, side.table.num_rows, side.table.nbytes, because))
    if not sides:
        return Chosen(spec, opened, tuple(reports))
    made = copy(spec)
    made.steps = tuple(with_feeding(steps.values(), *(step.name for step in steps.values() if step.is_result)))
    read = {step.name for step in made.steps}
    left = {name: found for name, found in opened.items() if name in read}
    return Chosen(made, left, tuple(reports), sides)


def _other(spec: JobSpec, join: Step, why: str) -> ConfigError:
    return spec.file.error(join.at("join"), f"{why}; a job is resumed with the rows that it had")


def _megabytes(join: Step) -> str:
    assert join.config.join is not None
    return f"{join.config.join.broadcast_mb:g} MiB (`broadcast_mb`)"


@dataclass(frozen=True)
class _Choice:
    """The choice for one join; `had`: the side that it had when the checkpoint was made, if any; None: the job is
    new."""

    spec: JobSpec
    join: Step
    steps: Mapping[str, Step]
    columns: Columns
    opened: Mapping[str, OpenedInput]
    had: Mapping[str, str] | None

    def made(self) -> tuple[Step, str, Side]:
        """The join as a step on rows, the name of the step whose rows every task has, and these. Raises
        _ShuffledError."""
        if self.had is not None and not self.had:
            raise _ShuffledError("it was when the checkpoint was made")
        self._require_no_tasks()
        options: JoinOptions = self.columns.receiver(self.join).executor
        whys = []
        for side in (1, 0) if options.how == "inner" else (1,):
            names = [feed.step for feed in self.join.feeds if feed.side == side]
            if not self.had or [self.had["of"]] == names:
                try:
                    return self._with_side(options, side, names)
                except _ShuffledError as why:
                    whys.append(str(why))
        raise _ShuffledError(", and ".join(dict.fromkeys(whys)) or "its sides are others")

    def _require_no_tasks(self) -> None:
        config, how = self.join.config, self.join.receiver.executor.how
        assert config.join is not None
        given = [key for key in _OF_TASKS if key in config.model_fields_set]
        given += ["consistency"] * (config.consistency == "migrate")
        whys = {
            f"every `{how}` join is, as rows of its right side come without a match": how in ("right", "full"),
            "its `broadcast_mb` is 0": not config.join.broadcast_mb,
            "its rows are in windows": self.join.receiver.windowing is not None,
            f"it has `{', '.join(given)}`": given,
            "the job has `placement`": self.spec.config.is_allocated,
        }
        for why, holds in whys.items():
            if holds:
                raise _ShuffledError(why)

    def _with_side(self, options: JoinOptions, side: int, names: Sequence[str]) -> tuple[Step, str, Side]:
        """With the rows of the steps `names`, which are this side's, in every task."""
        name, *more = names
        if more:
            raise _ShuffledError(f"its {('left', 'right')[side]} side has the rows of several steps")
        feeds = tuple(StepInput(feed.step) for feed in self.join.feeds if feed.side != side)
        own, others = self._known(name), [self._known(feed.step) for feed in feeds]
        rows = self._rows(name, own)
        from dpa.columns.joining import compares

        kinds = []
        for key, other in zip(options.on[side], options.on[1 - side], strict=True):
            types = [schema.field(other).type for schema in others]
            bad = next((kind for kind in types if not compares(kind)), None)
            if bad is not None:
                raise _ShuffledError(f"its keys are {bad}, and polars compares them in another way")
            kinds.append(one_type(map(key_type, [own.field(key).type, *types])))
        lookup = self._lookup(options, side, rows, kinds, name)
        self._require_held([*others, lookup.side.table.schema])
        from dpa.columns.query import Query

        operator = RowOperator(RowKind.JOIN, Query((lookup,), step=self.join.name), on_batches=True)
        of_rows: dict[str, Any] = {"combine": False, "grouping": ShuffleOptions(), "balance": NoBalancingOptions()}
        tasks, receiver = READERS if self.join.is_result else None, StatelessReceiver(operator)
        return replace(self.join, feeds=feeds, receiver=receiver, tasks=tasks, **of_rows), name, lookup.side

    def _known(self, name: str) -> pa.Schema:
        found = self.columns.of(name)
        if found is None:
            raise _ShuffledError(f"the columns of {name!r} are not known before the job runs")
        return found

    @staticmethod
    def _require_held(schemas: Sequence[pa.Schema]) -> None:
        from dpa.columns.arrow import to_frame

        for schema in schemas:
            try:
                to_frame(no_rows(schema))
            except Exception as error:
                raise _ShuffledError(str(error).partition("\n")[0]) from None

    def _rows(self, name: str, known: pa.Schema) -> pa.RecordBatch:
        """All rows of a step, read here; _ShuffledError if they are more than `broadcast_mb` says, as read or after the
        steps on them."""
        chain = [self.steps[name]]
        while chain[0].feeds:
            self._require_row_step(chain[0])
            chain.insert(0, self.steps[chain[0].feeds[0].step])
        source = chain[0]
        self._require_bounded(source)
        batches = list(self._read(source, self._known(source.name)))
        chunks = (Chunk(batch, batch.num_rows, Origin(0, batch.num_rows)) for batch in batches)
        operators = [operator for step in chain for operator in step.receiver.operators]
        parts = [(chunk.batch, chunk.batch.num_rows) for chunk in apply(operators, chunks, _NO_LIMITS)]
        columns = one_batch([(no_rows(known), 0), *parts])
        self._require_few(name, columns.nbytes)
        return columns

    def _require_row_step(self, step: Step) -> None:
        if step.receiver.keeps_states:
            raise _ShuffledError(f"what {step.name!r} makes is known at the end of its input")
        if len(step.feeds) > 1:
            raise _ShuffledError(f"{step.name!r} has the rows of several steps")
        # Functions may be slow, which tasks share, and may give other rows when a job is resumed.
        if any(operator.query is None for operator in step.receiver.operators):
            raise _ShuffledError(f"{step.name!r} calls a function, which runs in tasks")
        self._require_all(step)

    def _require_all(self, step: Step) -> None:
        if step.on_error != "fail":
            raise _ShuffledError(f"{step.name!r} may leave out records (`on_error`)")

    def _require_bounded(self, source: Step) -> None:
        found, (_, given, _) = self.opened[source.name], self.spec.input_of(source)
        if found.feed is not None:
            raise _ShuffledError(f"the input of {source.name!r} is open")
        if given.rate is not None or source.processing_time is not None:
            raise _ShuffledError(f"the rows of {source.name!r} depend on when they are read")
        if found.source is None:
            raise _ShuffledError(f"Spark loads {source.name!r}, whose size is known then")
        if given.has_records:
            self._require_all(source)
        if isinstance(found.source, FileTable):
            self._require_few(source.name, sum(getattr(file, "size", 0) for file in found.source.files))

    def _read(self, source: Step, known: pa.Schema) -> Iterator[pa.RecordBatch]:
        found, read = self.opened[source.name], 0
        key, _, _ = self.spec.input_of(source)
        assert found.source is not None
        with blaming(self.spec.file, key):
            splits = (batch for split in found.splits for batch in split.batches(_ROWS))
            for batch in splits if found.splits else found.source.rows_now(_ROWS):
                names = batch.schema.names
                plain = [as_type(batch.column(each), known.field(each).type) for each in names]  # keys are encoded
                yield pa.record_batch(plain, names)
                read += sum(column.nbytes for column in plain)
                self._require_few(source.name, read)

    def _require_few(self, name: str, size: int) -> None:
        assert self.join.config.join is not None
        if size > self.join.config.join.broadcast_mb * 2**20 and not self.had:
            raise _ShuffledError(f"{name!r} has more than {_megabytes(self.join)}")

    def _lookup(
        self, options: JoinOptions, side: int, rows: pa.RecordBatch, kinds: Sequence[pa.DataType], name: str
    ) -> Lookup:
        from dpa.columns.joining import Lookup, Side

        on, others, left = options.on[side], options.on[1 - side], options.columns[0]
        values = ({} if left is None else dict(zip(left.names, left.names, strict=True)), options.right_names)
        keys, codes = encode(key_column(rows, on[0] if len(on) == 1 else on))
        found: Sequence[pa.Array] = keys.flatten() if len(on) > 1 else [keys]
        parts = [cast(column, kind) for column, kind in zip(found, kinds, strict=True)]
        matches = np.logical_and.reduce([part.is_valid().to_numpy(zero_copy_only=False) for part in parts])
        places: npt.NDArray[np.integer] = np.flatnonzero(matches)
        more, order = {}, [*options.on[0], *values[0].values()]
        if options.names_sides:
            taken = np.flatnonzero(matches[codes])
            places, more = codes[taken], {new: rows.column(old).take(taken) for old, new in values[side].items()}
            order += values[1].values()
            most = int(np.bincount(places).max(initial=0))
            if most > _MATCHES:
                raise _ShuffledError(f"{name!r} has {most:,} rows of one key, and a row may match {_MATCHES} at most")
        made = Side(pa.table({**{f"{_KEY}{at}": part.take(places) for at, part in enumerate(parts)}, **more}))
        fields = [pa.field(new, kind) for new, kind in zip(options.on[0], kinds, strict=True)]
        text = f"{name}, {options.how}, by {', '.join(others)}: {len(places):,} rows in every task"
        join: dict[str, Any] = {"how": options.how, "side": made, "values": values[1 - side], "order": tuple(order)}
        return Lookup("join", text=text, keys=dict(zip(others, fields, strict=True)), **join)
