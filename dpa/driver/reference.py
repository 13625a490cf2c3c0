"""What Spark computes from a job's inputs to check its results against: queries are resolved before the job runs, or as
soon as Spark has started beside it, and computed while it runs, or, of open inputs, at its end.

What user code has failed on is left out of both: the input rows of dead letters, where their places are known and
nothing else was made of them; else, of a reducer's, their keys; else there is no comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pickle import loads
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpa.driver._loading import reference_of
from dpa.driver.inputs import OpenedInput, blaming
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError, JobFailedError, TableError
from dpa.logical.columns import Columns
from dpa.logical.step import Step
from dpa.measure.skew import skew
from dpa.protocol.plan import RunOutcome
from dpa.result import ReferenceReport
from dpa.routing.keys import names_of
from dpa.sources.splits import placed, whole
from dpa.spark import QUERY, beside, check_reference, compute, spark_loads
from dpa.tolerance import READING, UNREAD, Letter
from dpa.windows.options import WINDOW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Reference:
    """The reference of one step's rows."""

    def __init__(
        self, spec: JobSpec, step: Step, opened: Mapping[str, OpenedInput], spark: Callable[[], SparkSession]
    ) -> None:
        """`spark` returns a session, and is called only if one is needed."""
        self.step = step
        self._asked = step.config.reference
        self._key = step.at("reference")
        self._key_of_query = f"{self._key}.sql" if self._asked is not None and not self._asked.is_auto else self._key
        self._spec = spec
        self._opened = dict(opened)
        self._is_whole = all(found.feed is None for found in opened.values())
        self._spark = spark
        self._begun: Future[pa.Table | None] | None = None
        self._checked: Future[None] = Future()

    @property
    def is_asked(self) -> bool:
        return self._asked is not None and self._asked.at_end

    def check(self) -> None:
        """Have Spark resolve the query against the inputs' columns, reading no row. A function is not called.
        ConfigError if the query is wrong, or has no column for the key."""
        if self._asked is not None and self._asked.sql:
            with blaming(self._spec.file, self._key_of_query, lost=self._key):
                check_reference(self._spark(), self._frames(), self._query[0], self.step.key)

    def begin(self, stack: ExitStack, is_late: bool) -> None:
        """Check, and start to compute a query while the job runs, if every row of the inputs is there. `stack` ends it.
        `is_late`: a check may fail while the job runs, which need not wait until Spark has started, or listed files."""
        if not is_late:
            self.check()
        if (is_late or self._is_whole) and self._asked is not None and self._asked.sql:
            self._begun = stack.enter_context(beside(self._started, partial(self._first, is_late), QUERY))

    def _started(self) -> SparkSession:
        with blaming(self._spec.file, self._key_of_query, lost=self._key):
            return self._spark()

    def _first(self, checks: bool) -> pa.Table | None:
        if checks:
            self.check()
        self._checked.set_result(None)
        return self._computed(self._frames()) if self._is_whole else None

    def require_right(self, *, waits: bool = False) -> None:
        """ConfigError if the query has turned out to be wrong while the job runs; `waits` until that is known."""
        if self._begun is None:
            return
        if waits:
            wait([self._begun, self._checked], return_when=FIRST_COMPLETED)
        if self._begun.done() and isinstance(self._begun.exception(), ConfigError):
            self._begun.result()

    @property
    def takes_time(self) -> bool:
        """Whether Spark still computes it."""
        return self.is_asked and not (self._is_whole and self._begun is not None and self._begun.done())

    def compare(self, result: Callable[[], pa.Table], outcome: RunOutcome) -> ReferenceReport:
        """Compute the reference, if there is one, and compare the rows that `result` returns with it, without what user
        code failed on in the run. JobFailedError if it cannot be computed."""
        if not (self.is_asked and self._asked is not None and self._asked.has_query):
            return ReferenceReport()
        self._opened = {
            name: found if found.feed is None else found.as_read(outcome.given[name])
            for name, found in self._opened.items()
        }
        left_out = LeftOut.of(self.step, self._spec.steps, outcome)
        if left_out.why_not is not None:
            return ReferenceReport(why_not=left_out.why_not)
        with self._failing_the_job():
            begun = None if self._begun is None or (self._is_whole and left_out.rows) else self._begun.result()
            expected = self._computed(self._frames(left_out)) if begun is None else begun
            own, expected = (left_out.without_keys(rows, self.step) for rows in (result(), expected))
            return replace(self._compared(own, expected), left_out=left_out.records)

    def verify(self, own: pa.Table, keep: Callable[[pa.Table], pa.Table]) -> ReferenceReport:
        """Compute it from the inputs as opened, and compare the rows that `keep` keeps of it. Raises TableError."""
        return self._compared(own, keep(self._computed(self._frames())))

    def _computed(self, frames: Mapping[str, DataFrame | pa.Table]) -> pa.Table:
        assert self._asked is not None
        function = reference_of(self._spec.file, self._key, self._asked, list(frames))
        stage_dir = self._spec.config.spark.stage_dir
        sql = self._query[0] if self._asked.sql else None
        return compute(self._spark(), frames, sql, function, stage_dir=stage_dir)

    @cached_property
    def _query(self) -> tuple[str, float | Mapping[str, float]]:
        """The query, and by how much numbers may be off, of all columns or of some."""
        assert self._asked is not None
        if not self._asked.is_auto:
            return self._asked.sql or "", self._asked.tolerance
        columns = self._spec.compilation({name: found.schema for name, found in self._opened.items()}).columns
        sql, off = translated(self.step, self._spec.steps, columns)
        return sql, {
            name: max(off.get(name, 0.0), self._asked.tolerance) for name in columns.empty(self.step.name).names
        }

    def _compared(self, own: pa.Table, expected: pa.Table) -> ReferenceReport:
        from dpa.spark.comparison import ROUNDING, compare

        assert self._asked is not None
        sql, tolerance = self._query
        found = compare(own, expected, self.step.key, tolerance)
        hints = [f"Spark was asked: {sql}"] if self._asked.is_auto and not found.matches else []
        if not (found.matches or tolerance):
            # A large sum that is off by one is within the tolerance, and wrong.
            floats = {column.name: ROUNDING / 1_000 for column in own.schema if pa.types.is_floating(column.type)}
            if compare(own, expected, self.step.key, floats).matches:
                hints = [f"all differences are rounding; to allow it, give the reference `tolerance: {ROUNDING:g}`"]
        return ReferenceReport(True, found.matches, found.rows, (*found.differences, *hints))

    def spark_skew(self, outcome: RunOutcome) -> float | None:
        """The skew of a Spark shuffle of the same records to one partition a task. None if it is not asked for, or
        there is no record, or only one task. JobFailedError if it cannot be computed."""
        shares = outcome.outputs[self.step.name]
        counted = [part.key_counts for part in shares if part.key_counts is not None and part.key_counts.num_rows]
        if self._asked is None or not self._asked.baseline or not counted or len(shares) < 2:
            return None
        counts = pa.concat_tables(counted, promote_options="permissive")
        keys, records = counts["key"].combine_chunks(), counts["records"].to_numpy()
        with self._failing_the_job():
            stage_dir = self._spec.config.spark.stage_dir
            loads = spark_loads(self._spark(), keys, records, len(shares), stage_dir=stage_dir)
        return skew(loads)

    def _frames(self, left_out: LeftOut | None = None) -> dict[str, DataFrame | pa.Table]:
        frames: dict[str, DataFrame | pa.Table] = {}
        for name, found in self._opened.items():
            rows = None if left_out is None else left_out.input_of(name, found)
            frames[name] = found.frame() if rows is None else rows
        return frames

    @contextmanager
    def _failing_the_job(self) -> Iterator[None]:
        try:
            yield
        except TableError as error:
            raise JobFailedError(f"{self._key}: {error}") from None


def translated(step: Step, steps: Sequence[Step], columns: Columns) -> tuple[str, dict[str, float]]:
    """What `sql: auto` stands for: Spark's query for the rows of a step, and by how much numbers of its columns may be
    off, relatively. TableError if a step on the way has no counterpart in Spark."""
    from dpa.driver._translated_flow import TranslatedFlow

    made = TranslatedFlow(steps, columns)
    return made.query(step.name), made.tolerances(step.name)


_ROWS = 65_536

_OF_A_ROW = (None, "map", "filter")  # operations that make one row at most of each row


@dataclass
class LeftOut:
    """What the reference of one step is computed and compared without.

    Attributes:
        rows: of each source, the rows of its input by the number of their split.
        keys: of the result, in parts; of some in windows those before the window, which stand for all of its windows.
        records: how many records these are.
        why_not: why there is no comparison; None: there is one.
    """

    rows: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    keys: set[tuple[Any, ...]] = field(default_factory=set)
    records: int = 0
    why_not: str | None = None

    @classmethod
    def of(cls, step: Step, steps: Sequence[Step], outcome: RunOutcome) -> LeftOut:
        graph = _Steps({each.name: each for each in steps})
        found = cls()
        for count in outcome.snapshot.errors:
            if not count.kept and count.error != UNREAD and graph.feeds(count.step, step.name):
                found.why_not = f"{count.records} records were skipped in {count.step}, and which ones is not known"
        for letter in outcome.letters:
            if graph.feeds(letter.step, step.name):
                found._add(letter, step, graph)
        return found

    def _add(self, letter: Letter, step: Step, graph: _Steps) -> None:
        source = letter.task.rpartition(" ")[0]
        self.records += 1
        if letter.method == READING:
            return  # whoever reads the input again cannot read it either
        if letter.rows == 1 and letter.split is not None and letter.offset is not None:
            if graph.is_all_of_a_row(source, letter.step, step.name):
                self.rows.setdefault(source, {}).setdefault(letter.split, []).append(letter.offset)
                return
        elif (
            letter.step == step.name
            and letter.key is not None
            and letter.data is not None
            and (parts := _parts(loads(letter.data)[0], step))
        ):
            self.keys.add(parts)
            return
        self.why_not = (
            f"what {letter.step} has left out cannot be traced to rows of the input, or to keys of the result"
        )

    def input_of(self, source: str, opened: OpenedInput) -> pa.Table | None:
        """The input of a source without these rows; None: none is left out."""
        gone = self.rows.get(source)
        if gone is None:
            return None
        batches = []
        for number, split in enumerate(opened.splits):
            for batch, places in placed(whole(split), _ROWS):
                alive = ~np.isin(places, gone.get(number, ()))
                batches.append(batch if alive.all() else batch.filter(pa.array(alive)))
        return pa.Table.from_batches(batches)

    def without_keys(self, rows: pa.Table, step: Step) -> pa.Table:
        names = names_of(step.key)
        if not self.keys or any(name not in rows.column_names for name in names):
            return rows
        keys, own = zip(*(rows[name].to_pylist() for name in names), strict=True), _before_window(step)
        return rows.filter(pa.array([self.keys.isdisjoint({key, key[:own]}) for key in keys], pa.bool_()))


def _parts(key: Any, step: Step) -> tuple[Any, ...]:
    """A letter's key in parts, without its window where that says nothing: stores of one window do not know it, and
    sessions are others without a record. Empty: it is no key of the result."""
    own, parts = _before_window(step), key if isinstance(key, tuple) else (key,)
    if len(parts) not in (own, len(names_of(step.key))):
        return ()
    return parts[:own] if step.receiver.has_sessions else parts


def _before_window(step: Step) -> int:
    """How many parts of the keys of a result are not those of a window."""
    return len(names_of(step.key)) - (len(WINDOW) if step.receiver.windowing else 0)


@dataclass(frozen=True)
class _Steps:
    by_name: Mapping[str, Step]

    def feeds(self, one: str, other: str, without: str | None = None) -> bool:
        """Whether rows of one step come to another, which it may be itself; by other ways than through `without`."""
        if without in (one, other):
            return False
        return one == other or any(self.feeds(one, feed.step, without) for feed in self.by_name[other].feeds)

    def is_all_of_a_row(self, source: str, failed: str, result: str) -> bool:
        """Whether nothing but the record on which the step `failed` was made of a row of `source` for a result."""
        if failed == source:
            return True
        name = failed
        while (feeds := self.by_name[name].feeds) and [feed.step for feed in feeds] != [source]:
            if len(feeds) != 1 or self.by_name[feeds[0].step].config.operation not in _OF_A_ROW:
                return False
            name = feeds[0].step
        return bool(feeds) and (failed == result or not self.feeds(source, result, without=failed))
