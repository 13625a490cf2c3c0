"""Whether the results of some epochs of a stream equal what Spark computes from their input rows: while the stream
runs, or afterwards, by its log of epochs (`dpa.sinks.epoch_log`).

With windows, epochs are checked for the windows that they have closed. Apart from late records, no row is earlier than
the windows closed before, so the input begins where the greatest event time was that of a closed window. Any other
result is of all rows read so far: it is verified from the first epoch on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpa._util.words import plural
from dpa.config import OutputConfig
from dpa.driver.inputs import Inputs, OpenedInput, lazy_session
from dpa.driver.reference import Reference
from dpa.driver.spec import JobSpec
from dpa.errors import TableError
from dpa.execution.publishing import EPOCH
from dpa.logical.step import Step, with_feeding
from dpa.protocol.checkpoint_format import read
from dpa.result import ReferenceReport
from dpa.sinks.epoch_log import epochs
from dpa.sinks.formats import FORMATS, results
from dpa.sinks.reading import Results
from dpa.sources.feed import table_of
from dpa.sources.splits import Split, total_rows, whole
from dpa.windows.options import END, START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVER = 2**63 - 1  # later than all event times, in microseconds; its negative is earlier

_BEGAN = datetime.fromtimestamp(0, timezone.utc)


@dataclass(frozen=True)
class Verified:
    """What became of the epochs `first` to `last` of a step's result: the `rows` of it that were compared, with what
    Spark made of `read` rows of the input. Where there is no comparison, `compared.why_not` says why."""

    step: str
    first: int
    last: int
    rows: int
    read: int
    compared: ReferenceReport


def verified(spec: JobSpec, log: str, first: int | None = None, last: int | None = None) -> Iterator[Verified]:
    """Verify what the epochs from `first` to `last` have published, of each result that has a reference, by the log at
    `log`. None stands for the first epoch, and for the newest that is published. TableError if the log lacks an epoch,
    or something cannot be read; ConfigError if an input cannot be opened, or a reference would depend on when its rows
    were read."""
    spec.check_references()
    found = {
        step.name: _published(step)
        for step in spec.results
        if (asked := step.config.reference) is not None and asked.has_query
    }
    if not found:
        raise TableError("no result of the job has a reference: give one a query in `reference.sql`, or a function")
    known = _Log(epochs(log, splits=True))  # what was published before is in it
    first = known.first if first is None else first
    known.require(first, first if last is None else last)
    with ExitStack() as stack:
        spark = lazy_session(spec.config, stack)
        opened: dict[str, OpenedInput] = {}
        for step in spec.results:
            if step.name not in found:
                continue
            there = found[step.name]
            if isinstance(there, str):
                yield Verified(step.name, first, first if last is None else last, 0, 0, ReferenceReport(why_not=there))
                continue
            opened = opened or Inputs(spec).open(stack, spark, stage=False)
            yield _Result(spec, step, known, there, opened, spark).verified(first, last)


def _published(step: Step) -> Results | str:
    """What a step has published, or why that is not known."""
    output = _by_epoch(step)
    if output is None:
        return "it is published at the end of the job, and not by epoch"
    if output.path is None:
        return f"nothing can be read back from {output.use!r}"
    form = FORMATS[output.format]
    if form.epochs is None:
        return f"it is {form.noun}, {output.path}, which is not read back"
    return results(output.path, format=output.format, options=output.args)


def _by_epoch(step: Step) -> OutputConfig | None:
    """The first output that is published by epoch, which the log has."""
    return next((output for output in step.outputs.values() if output.publish is not None), None)


class _Log:
    """The log of a job; numbers of epochs grow without a gap, unless some could not be written."""

    def __init__(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            raise TableError("the log has no epoch yet")
        known: list[dict[str, Any]] = rows.drop_columns(["splits"]).to_pylist()
        self._rows = {int(row["epoch"]): row for row in known}
        self._splits = dict(zip(self._rows, rows["splits"], strict=True))
        latest = (-_EVER if row["latest"] is None else _micros(row["latest"]) for row in known)
        self._latest = dict(zip(self._rows, accumulate(latest, max), strict=True))
        self.first, self.newest = min(self._rows), max(self._rows)

    def __getitem__(self, epoch: int) -> Mapping[str, Any]:
        return self._rows[epoch]

    def require(self, first: int, last: int) -> None:
        """TableError if the log lacks one of these epochs."""
        if first > last:
            raise TableError(f"epochs are named as FIRST:LAST, and {first} comes after {last}")
        for epoch in (first, last):
            if not self.first <= epoch <= self.newest:
                raise TableError(f"the log has the epochs {self.first} to {self.newest}, and not {epoch}")
        missing = [epoch for epoch in range(first, last + 1) if epoch not in self._rows]
        if missing:
            raise TableError(f"the log lacks epoch {missing[0]}: verify the epochs before or after it")

    def published(self, step: str, until: int) -> int | None:
        """The newest epoch up to `until` that has published results of a step, or None."""
        for epoch in range(until, self.first - 1, -1):
            row = self._rows.get(epoch)
            if row is not None and (row["is_last"] or self._of(row, step)["published"] is not None):
                return epoch
        return None

    def closed(self, step: str, epoch: int | None) -> int:
        """The event time by which windows of a step have ended that the epoch, or one before, has published."""
        if epoch is None:
            return -_EVER
        row = self._rows[epoch]
        time = self._of(row, step)["closed"]
        if row["is_last"]:
            return _EVER
        return -_EVER if time is None else _micros(time)

    def begins_behind(self, first: int, until: int, back: int) -> int:
        """The newest epoch before `first` up to which all rows are in windows that end by `until`, none of them later
        than `back` after a row; the one before all epochs if there is none."""
        found = self.first - 1
        for epoch in range(self.first, first):
            if until != -_EVER and self._latest.get(epoch, _EVER) + back <= until:
                found = epoch
        return found

    def splits(self, behind: int, last: int) -> dict[str, tuple[Split, ...]]:
        self.require(behind + 1, last)
        found: dict[str, tuple[Split, ...]] = {}
        for epoch in range(behind + 1, last + 1):
            [by_source] = read(self._splits[epoch].as_py(), f"epoch {epoch} of the log")
            for source, splits in by_source.items():
                found[source] = (*found.get(source, ()), *splits)
        return found

    def grown(self, column: str, behind: int, last: int) -> int:
        return int(self._rows[last][column]) - (int(self._rows[behind][column]) if behind in self._rows else 0)

    @staticmethod
    def _of(row: Mapping[str, Any], step: str) -> Mapping[str, Any]:
        return next(stage for stage in row["stages"] if stage["stage"] == step)


@dataclass(frozen=True)
class _Result:
    spec: JobSpec
    step: Step
    log: _Log
    found: Results
    opened: Mapping[str, OpenedInput]
    spark: Callable[[], SparkSession]

    def verified(self, first: int, last: int | None) -> Verified:
        newest = self.found.epoch
        last = min(newest, self.log.newest) if last is None else last
        self.log.require(first, last)
        done = partial(Verified, self.step.name, first, last)
        until = self.log.published(self.step.name, last)
        if until is None or until < first:
            return done(0, 0, ReferenceReport(why_not="these epochs have published nothing of it"))
        if newest < until:
            raise TableError(f"{self.step.name}: epoch {until} is not published yet, and {newest} is the newest")
        in_windows = {START, END} <= {*self.found.table.column_names} and self.step.receiver.windowing is not None
        before = self.log.published(self.step.name, first - 1) if in_windows else None
        why_not = None if in_windows else self._why_not(first, until, newest)
        if why_not is not None:
            return done(0, 0, ReferenceReport(why_not=why_not))
        low, high = (self.log.closed(self.step.name, epoch) for epoch in (before, until))
        windowing = self.step.receiver.windowing
        past = 0 if windowing is None else windowing.windows.past_end_us
        keep = partial(_between, low=low - past, high=high - past) if in_windows else pa.Table.slice
        own = keep(self._own(until))
        back = self._back() if in_windows else None
        behind = self.log.first - 1 if back is None else self.log.begins_behind(first, low, back)
        given = self.log.splits(behind, until)
        read = sum(map(total_rows, given.values()))
        why_not = self._left_out(before, behind, until)
        if why_not is not None:
            return done(own.num_rows, read, ReferenceReport(why_not=why_not))
        # An input that is no source in the log was the side of a join, which every task had as a whole.
        opened = {name: _as_read(found, given[name]) if name in given else found for name, found in self.opened.items()}
        compared = Reference(self.spec, self.step, opened, self.spark).verify(own, keep)
        return done(own.num_rows, read, compared)

    def _why_not(self, first: int, until: int, newest: int) -> str | None:
        """Why a result that is not in windows cannot be verified, or None."""
        rule = f"verify :{newest}"
        if first > self.log.first:
            return f"it is of all rows read so far, and not of those of some epochs: {rule}"
        if until < newest and EPOCH not in self.found.table.column_names:
            return f"its rows of epoch {until} cannot be told from later ones: {rule}"
        return None

    def _own(self, until: int) -> pa.Table:
        """The rows that an epoch has published; of changes the newest of each key."""
        rows = self.found
        output = _by_epoch(self.step)
        if output is not None and output.publish is not None and output.publish.mode == "changes":
            taken = np.flatnonzero(rows.table[EPOCH].to_numpy() <= until)
            rows = replace(rows, table=rows.table.take(pa.array(taken)))
            return rows.latest(self.step.key)
        return rows.table

    def _back(self) -> int | None:
        """By how many microseconds rows may be earlier than the end of their windows; None: by any."""
        total = 0
        for step in with_feeding(self.spec.steps, self.step.name):
            windowing = step.receiver.windowing if step.feeds else None
            if windowing is not None and step.receiver.has_sessions:
                return None
            if windowing is None and step.feeds and step.receiver.keeps_states:
                return None
            total += 0 if windowing is None else windowing.windows.size_us
        return total

    def _left_out(self, before: int | None, behind: int, until: int) -> str | None:
        """Why Spark would make something else of the rows, or None."""
        late = self.log.grown("late", before or behind, until)
        others = self.log.grown("left_out", behind, until)
        if late:
            where = "are not in windows that were closed, and Spark knows of no lateness: verify epochs without any"
            return f"{plural(late, 'record')} that came late {where}"
        return f"{plural(others, 'record')} were left out, as user code failed on them" if others else None


def _as_read(found: OpenedInput, given: tuple[Split, ...]) -> OpenedInput:
    return replace(found, splits=given, frame=partial(_rows_of, given, found.schema), feed=None)


def _rows_of(given: tuple[Split, ...], schema: pa.Schema | None) -> pa.Table:
    try:
        return table_of([*map(whole, given)], schema)
    except TableError as error:
        raise TableError(f"the rows that these epochs have read are not all there any more: {error}") from None


def _between(rows: pa.Table, low: int, high: int) -> pa.Table:
    """Rows of windows that end after `low`, and by `high`."""
    if END not in rows.column_names:
        return rows  # which the comparison says
    ends: npt.NDArray[np.int64] = (
        rows[END]
        .cast(pa.timestamp("us", getattr(rows[END].type, "tz", None)))
        .cast(pa.int64())
        .fill_null(-_EVER)
        .to_numpy()
    )
    return rows.take(pa.array(np.flatnonzero((ends > low) & (ends <= high))))


def _micros(time: datetime) -> int:
    return round((time - _BEGAN) / timedelta(microseconds=1))
