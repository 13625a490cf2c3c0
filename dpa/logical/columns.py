"""The columns of a job's rows, followed through its steps before there are any rows: what of the steps can be checked
by them, and what an empty result has.

After a function of a record only those columns are known that later steps name. There, nothing can be checked; a result
without rows has them as nulls. A join names the columns of its result by those of both sides, so they must be known."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat

import pyarrow as pa

from dpa._util.inference import no_rows
from dpa.config import ExecutorConfig
from dpa.errors import ConfigError, ExecutorError, TableError
from dpa.execution.arrivals import Aligned, Input, require_one_key, united
from dpa.execution.combining import Combining
from dpa.execution.failures import UserCodeError
from dpa.execution.mapping import MapTask, check_columns
from dpa.execution.receivers.base import NOTHING_KNOWN, Extent, Known, Receiver
from dpa.execution.row_operators import call_on_batch
from dpa.executors import Mapper, name_of
from dpa.logical.step import Keying, Step, StepInput, with_feeding
from dpa.operators import JoinOptions, RowKind, RowOperator
from dpa.routing.keys import names_of
from dpa.windows.options import END, START

_PLAN = ("Resolved plan", "This error", "\t")  # beginnings of the parts of polars' errors that show its plan
_STEP_SECONDS = 0.25  # seconds after which functions of a record hand over the records that they have made


class Columns:
    """The columns of the rows of each step, where they are known."""

    def __init__(self, steps: Sequence[Step], of_inputs: Mapping[str, pa.Schema | None]) -> None:
        """Of steps, each after all whose rows it takes. `of_inputs`: the columns of each source's input, None where
        they are unknown; one that was not looked at yet is not in it. ConfigError if a result column has the name of
        its key column, a step's columns are not those declared, or an input has a column where its time is to be
        added."""
        self._steps = steps
        self._by_name = {step.name: step for step in steps}
        self._of_inputs = of_inputs
        self._named = _named_columns(steps)
        self._found: dict[str, Known] = {}
        for step in steps:
            given = _of_input(step, of_inputs.get(step.name)) if step.is_source else None
            found = self._after(step) if step.feeds else NOTHING_KNOWN if given is None else Known(given)
            self._found[step.name] = found.with_names(self._named[step.name])

    def of(self, step: str) -> pa.Schema | None:
        found = self._found[step]
        return found.schema if found.extent is Extent.ALL else None

    def hiding(self, step: str) -> Iterator[Step]:
        """The steps that hide the columns of a step's rows, or their types: they read an input that does not show
        them, or make rows by user code that does not declare them."""
        hidden = [feed.step for feed in self._by_name[step].feeds if self.of(feed.step) is None]
        if self._by_name[step].receiver.is_opaque or not hidden:
            yield self._by_name[step]
        else:
            yield from chain.from_iterable(map(self.hiding, hidden))

    def empty(self, step: str) -> pa.Schema:
        """The columns of a step's result without rows: those that are known, and those that later steps name. The type
        null stands for an unknown one."""
        return self._found[step].schema

    def of_no_records(self, step: str) -> pa.Table:
        """The result of a step without records: as in SQL, a row where it aggregates all rows, else none."""
        taken, rows = self._by_name[step], no_rows(self._found[step].schema)
        make = getattr(taken.receiver.executor, "of_no_rows", None)  # as an `Aggregation` has it
        if make is not None and not taken.key and self._are_known(taken.feeds):
            task, given = self.map_task(taken, taken.feeds[0]), self._together(taken, taken.feeds[0]).schema
            if not (pa.null() in given.types and _make_keys(with_feeding(self._steps, step))):
                rows = make(task.empty_block(given).columns.schema).cast(rows.schema)
        return pa.Table.from_batches([rows])

    def check(self) -> None:
        """ConfigError, with its key, if a column that a step names is known to be missing, or cannot be what it should
        be."""
        for step in self._steps:
            self._check_unions(step)
            self._check_sides(step)
            self._check_operators(step)
            for feed in step.feeds if step.is_stage else ():
                known = self._taken(step, feed)
                if known is not None:
                    self._check_feed(step, feed, known)
            self._check_key_types(step)

    def map_task(self, step: Step, feed: StepInput) -> MapTask:
        keying = feed.keying
        return MapTask(
            mapper=keying.mapper,
            key=keying.key,
            values=keying.values,
            receiver=self.receiver(step),
            combine=Combining() if step.combine == "auto" else step.combine,
            seed=step.balance.hash_seed,
            batch_records=step.flow.batch_records,
            step_seconds=_STEP_SECONDS,
            key_function=keying.function,
            side=feed.side,
        )

    def aligned(self, step: Step, feed: StepInput) -> tuple[RowOperator, ...]:
        """What gives the rows of a feed the columns of all feeds of its side; nothing where they have them, or are
        unknown."""
        if not self._are_known(step.beside(feed)):
            return ()
        own, wanted = self._found[feed.step].schema, self._together(step, feed).schema
        keying = feed.keying
        if step.is_stage and keying.function is None and keying.values is not None:  # the input is read without others
            used = (*names_of(keying.key), *keying.values)
            wanted = pa.schema([field for field in wanted if field.name in used])
        if pa.schema([(each.name, each.type) for each in own if each.name in wanted.names]).equals(wanted):
            return ()
        return (RowOperator(RowKind.MAP, Aligned(wanted), on_batches=True),)

    def inputs(self, step: Step, feed: StepInput) -> tuple[Input, ...]:
        """What tasks must note of the rows of a feed, as its columns must go with others that are unknown before the
        job runs."""
        found = []
        beside = step.beside(feed)
        if len(beside) > 1 and not self._are_known(beside):
            found.append(Input(step.at("join.with" if feed.side else "from"), feed.step, fills=step.fills))
        if step.receiver.has_sides and not self._are_known(step.feeds):
            found.append(Input(step.at("join.key_by"), feed.step, is_side=True))
        return tuple(found)

    def receiver(self, step: Step) -> Receiver:
        """The receiver of a stage; of a join, with the columns of its sides, if known or named."""
        join, found = step.receiver.executor, list[pa.Schema | None]([None, None])
        if not isinstance(join, JoinOptions):
            return step.receiver
        for feed in step.feeds:
            rows = self._together(step, feed)
            if rows.has_names or feed.keying.values is not None:
                found[feed.side] = pa.schema([field for field in rows.schema if _is_value(field.name, feed.keying)])
        return replace(step.receiver, executor=replace(join, columns=(found[0], found[1])))

    def _after(self, step: Step) -> Known:
        rows = [self._together(step, feed) for feed in step.feeds]
        maps = any(isinstance(feed.keying.mapper, Mapper) for feed in step.feeds)
        extent = Extent.SOME if maps else min(map(_extent, repeat(step), step.feeds, rows))
        try:
            pairs = zip(step.feeds, rows, strict=True)
            blocks = [self.map_task(step, feed).empty_block(known.schema) for feed, known in pairs]
            return self.receiver(step).columns(step.feeds[0].keying.key, blocks, extent)
        except ExecutorError as error:  # a column is named as the key
            raise ConfigError(str(error), step.at(_written_as("key", step, step.feeds[0]))) from None
        except pa.ArrowException:
            return NOTHING_KNOWN  # what is wrong is named where it is checked, or when there are rows

    def _together(self, step: Step, feed: StepInput) -> Known:
        """What is known of the columns of all feeds on the side of `feed`; nothing where they do not go together, which
        `check` reports."""
        found = {other.step: self._found[other.step] for other in step.beside(feed)}
        extent = min(rows.extent for rows in found.values())
        fills = step.fills or extent is Extent.SOME
        try:
            return Known(united({name: rows.schema for name, rows in found.items()}, fills=fills), extent)
        except ConfigError:
            return NOTHING_KNOWN

    def _are_known(self, feeds: Sequence[StepInput]) -> bool:
        return all(self._found[feed.step].extent is Extent.ALL for feed in feeds)

    def _taken(self, step: Step, feed: StepInput) -> pa.Schema | None:
        """The columns of a feed's rows as the step takes them, or None."""
        rows, own = self._together(step, feed), self._found[feed.step]
        if rows.has_names:
            return rows.schema
        return own.schema if own.has_names and not step.fills else None

    def _check_unions(self, step: Step) -> None:
        for feed in step.feeds:
            known = {other.step: self._found[other.step] for other in step.beside(feed)}
            try:
                united({name: rows.schema for name, rows in known.items() if rows.has_names}, fills=step.fills)
            except ConfigError as error:
                raise ConfigError(error.message, step.at("join.with" if feed.side else "from")) from None

    def _check_sides(self, join: Step) -> None:
        """The columns of a join are named by those of both sides, which must be known then."""
        for feed in join.feeds if _names_sides(join) else ():
            if self._found[feed.step].has_names or feed.keying.values is not None:
                continue
            looked_at = (each for each in self._hiding(feed.step) if each.name in self._of_inputs or not each.is_source)
            for hiding in looked_at:
                why = f"its columns are named by those of both sides, and those of {feed.step!r} are not known"
                mend = f"declare the `schema` of {hiding.name!r}, or name the columns that the join takes in `value`"
                raise ConfigError(f"{why} before the job runs: {mend}", join.at("join"))

    def _hiding(self, name: str) -> Iterator[Step]:
        step = self._by_name[name]
        taken = [feed for feed in step.feeds if feed.keying.values is None and (not feed.side or _names_sides(step))]
        hidden = [feed.step for feed in taken if not self._found[feed.step].has_names]
        if step.receiver.is_opaque or not hidden:
            yield step
        else:
            yield from chain.from_iterable(map(self._hiding, hidden))

    def _check_operators(self, step: Step) -> None:
        """Check what names columns, or depends on their types."""
        operators = [each for each in step.receiver.operators if each.kind is RowKind.WINDOW or each.query]
        for feed in step.feeds if operators else ():
            known = self._taken(step, feed) if self._are_known([feed]) else None
            if known is None or (pa.null() in known.types and _make_keys(self._steps)):
                continue
            for operator in operators:
                try:
                    call_on_batch(operator, no_rows(known))
                except ExecutorError as error:
                    raise ConfigError(_without_place(error), step.at(step.word)) from None

    def _check_feed(self, step: Step, feed: StepInput, known: pa.Schema) -> None:
        if step.config.agg is not None and step.config.value is None and feed.keying.mapper is None:
            try:
                step.receiver.check_values(known)
            except ConfigError as error:
                raise ConfigError(error.message, step.at(f"agg.{error.key}")) from None
        rows = "the input" if step.at("from") == "input" else f"the step {feed.step!r}"
        try:
            check_columns(self.map_task(step, feed), known, rows)
        except ConfigError as error:
            key, message = error.key or "key", error.message
            if key == "reducer" and isinstance(step.config.section, ExecutorConfig):  # else no job names it
                message = f"{name_of(step.receiver.executor)} {message}"
            raise ConfigError(message, step.at(_written_as(key, step, feed))) from None

    def _check_key_types(self, step: Step) -> None:
        keys = []
        for feed in step.feeds if step.is_stage else ():
            known, keying = self._taken(step, feed), feed.keying
            if known is not None and keying.mapper is None and keying.function is None:
                keys.append((feed.step, pa.schema([known.field(name) for name in names_of(keying.key)])))
        try:
            require_one_key(keys)
        except ConfigError as error:
            raise ConfigError(error.message, step.at(_written_as("key", step, step.feeds[-1]))) from None


def _make_keys(steps: Iterable[Step]) -> bool:
    """Whether null may stand for the type of keys that a function makes, which later steps take."""
    return any(feed.keying.function is not None for step in steps for feed in step.feeds)


def _without_place(error: ExecutorError) -> str:
    """Of an expression, what is wrong and what would be right, without the plan that polars had made so far."""
    if not isinstance(error, UserCodeError):
        return str(error)
    parts = str(error.error).strip().split("\n\n")
    return f"{name_of(error.executor)}: {'; '.join(part for part in parts if not part.startswith(_PLAN))}"


def _names_sides(step: Step) -> bool:
    return isinstance(step.receiver.executor, JoinOptions) and step.receiver.executor.names_sides


def _extent(step: Step, feed: StepInput, rows: Known) -> Extent:
    are_named = feed.keying.values is not None or feed.side or _names_sides(step)
    return max(rows.extent, Extent.NAMES) if are_named else rows.extent


def _of_input(step: Step, given: pa.Schema | None) -> pa.Schema | None:
    time = step.processing_time
    try:
        return given if given is None or time is None else time.added_to(given)
    except TableError as error:
        raise ConfigError(str(error), step.at("read.time")) from None


def _named_columns(steps: Sequence[Step]) -> dict[str, list[str]]:
    """For each step, in order, the columns of its rows that later steps name."""
    named: dict[str, list[str]] = {step.name: [] for step in steps}
    for step in reversed(steps):
        kinds = {operator.kind for operator in step.receiver.operators}
        passes_on = not step.receiver.keeps_states and kinds <= {RowKind.FILTER, RowKind.WINDOW}
        later = [name for name in named[step.name] if not (name in (START, END) and RowKind.WINDOW in kinds)]
        for feed in step.feeds:
            by_step = [*later, *step.receiver.reads] if passes_on else _named_by(step, feed.keying)
            named[feed.step] = [*by_step, *named[feed.step]]
    return named


def _named_by(step: Step, keying: Keying) -> tuple[str, ...]:
    if keying.mapper is not None:
        return ()
    key = names_of(keying.key) if keying.function is None else ()
    return (*key, *(keying.values or ()), *step.receiver.reads)


def _written_as(key: str, step: Step, feed: StepInput) -> str:
    """What the step calls a key that `check_columns` names."""
    name = {"key": "key_by", "reducer": step.word}.get(key, key)
    return f"join.{name}" if feed.side else name


def columns_read(steps: Sequence[Step], source: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The columns of an input that a job needs, None for all; and those that are keys wherever they are used, so that
    they may come as dictionaries."""
    feeds = [(step, feed.keying) for step in steps for feed in step.feeds if feed.step == source]
    direct = [keying for step, keying in feeds if step.is_stage and keying.mapper is None and keying.function is None]
    if len(direct) < len(feeds):
        return None, ()
    named = dict.fromkeys(name for keying in direct for name in (*names_of(keying.key), *(keying.values or ())))
    keys = tuple(name for name in named if not any(_is_value(name, keying) for keying in direct))
    return None if any(keying.values is None for keying in direct) else tuple(named), keys


def _is_value(column: str, keying: Keying) -> bool:
    return column not in names_of(keying.key) if keying.values is None else column in keying.values
