"""What a job is to do: its configuration, steps and executors, and what of them can be checked without its input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from dpa._util.words import plural
from dpa.config import ExecutorConfig, InputConfig, JobConfig, JobFile, ReducerConfig, ReferenceConfig
from dpa.config.inputs import SampleConfig
from dpa.driver._directories import check_place, check_prefix
from dpa.driver._loading import actors_path, reference_of, require_placing
from dpa.driver._steps import Objects, steps_of
from dpa.driver._windows import with_event_time
from dpa.driver.outputs import DEAD_LETTERS, Publication, check_outputs, outputs_of, written
from dpa.errors import ConfigError
from dpa.execution.publishing import CHANGE, EPOCH, Publishes
from dpa.executors import name_of
from dpa.logical.compilation import Compilation
from dpa.logical.step import Step, with_feeding
from dpa.protocol.graph import Stage, StageInput, Tolerated, why_fixed
from dpa.protocol.plan import RunPlan
from dpa.protocol.task.delivery import Delivery
from dpa.protocol.wire.nodes import JobDemand
from dpa.routing.keys import names_of
from dpa.runtime.packed_plan import require_picklable
from dpa.sinks.formats import FORMATS
from dpa.sinks.memory import Memory
from dpa.sinks.sink import Sink
from dpa.sources.feed import Feed, Position
from dpa.sources.splits import NumberedSplit, Split


class JobSpec:
    """A checked configuration and its executors, which are imported on first use; `is_part`: of some steps of a flow,
    whose `until` may be for inputs that other steps read."""

    is_part = False

    def __init__(self, file: JobFile, objects: Objects | None = None) -> None:
        """`objects` are used instead of what the file names: executors and tables, by key path."""
        self.objects: Objects = objects or {}
        self.file = _naming(file, self.objects)

    @property
    def config(self) -> JobConfig:
        return self.file.config

    def for_one_run(self) -> JobSpec:
        """The same job, to be run once: it takes the user's sinks that checks have made, and later checks make others.
        Directories are looked up anew. ConfigError if a sink or an executor cannot be made."""
        outputs = outputs_of(self.file, vars(self).pop("outputs", {}), self.objects)
        _ = self.steps  # after the directories: executors that are imported may change the working one
        taken = copy(self)
        taken.outputs = outputs
        return taken

    @cached_property
    def outputs(self) -> Mapping[str, Publication]:
        """Where results go, by the key path that says so."""
        return outputs_of(self.file, objects=self.objects)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Each after all whose rows it takes."""
        return steps_of(self.file, self.objects)

    @property
    def sources(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.is_source)

    @property
    def results(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.is_result)

    @property
    def demand(self) -> JobDemand:
        """What the tasks of its stages request."""
        tasks = {step.name: step.tasks for step in self.steps if step.tasks is not None}
        each = {step.name: (step.config.resources or self.config.resources).requested for step in self.steps}
        group = None if self.config.placement is None else self.config.placement.group
        return JobDemand(tasks, {name: each[name] for name in tasks}, group)

    @property
    def tolerates(self) -> bool:
        return any(step.on_error != "fail" for step in self.steps)

    def input_of(self, source: Step) -> tuple[str, InputConfig, SampleConfig | None]:
        """The key path of a step's input, and the sections that describe it and a sample of it."""
        assert source.config.read is not None
        return source.at("read"), source.config.read, source.config.sample

    def compilation(self, columns: Mapping[str, pa.Schema | None]) -> Compilation:
        """The steps on their way to a graph; `columns`: of each source's input, None where they are unknown.
        ConfigError if a column that a step names is missing, or cannot be what it should be; if a step may get more
        tasks where another needs the order of its one; or if rows with a result's columns may not go where they are
        to."""
        try:
            made = Compilation(self.steps, columns)
            made.columns.check()
        except ConfigError as error:
            raise self.file.placed(error) from None
        for step in self.steps:
            ordered = None if step.config.elastic is None else made.ordered_for(step.name)
            if ordered is not None:
                why = f"{ordered} takes the records of a key in the order in which one task emits them"
                mend = "leave it out, or, where that does not matter, set `parallelism` to 2 or more"
                raise self.file.error(step.at("elastic"), f"{why}: {mend}")
            known = made.columns.of(step.name) if step.is_result else None
            for key in step.outputs if known is not None else ():
                if key in self.outputs:
                    self.outputs[key].expect(known)
        return made

    def plan(
        self,
        splits: Mapping[str, tuple[Split, ...]],
        columns: Mapping[str, pa.Schema | None],
        feeds: Mapping[str, Feed] | None = None,
    ) -> RunPlan:
        """What a backend is to run: these splits of each source's input, which has these columns, or what `feeds` give
        while the job runs. Results stay in memory, and no partial results are
        published. ConfigError if a share of the rows of an open input is asked for."""
        feeds = feeds or {}
        compilation = self.compilation(columns)
        compiled = compilation.compiled(self._numbered(splits) if self.tolerates else splits)
        compiled = with_event_time(compiled, compilation.steps, feeds)
        if feeds and isinstance(self.config.max_errors, str):
            raise self.file.error("max_errors", "a share of an open input is known at its end alone: give a number")
        tolerated = Tolerated(self.config.most_errors(compiled.graph.rows))
        stages = tuple(replace(stage, input=self._read(stage, feeds)) for stage in compiled.graph.stages)
        return RunPlan(
            graph=replace(compiled.graph, stages=stages, tolerated=tolerated, until=self.config.until),
            tasks=compiled.tasks,
            feeds=feeds,
            deliveries={step.name: _delivery(step) for step in compilation.steps if step.feeds},
            python_path=actors_path(self.file),
            testing={step.name: step.config.testing for step in self.steps},
            name=self.config.name,
            limits=self.config.limits,
            recovery=self.config.recovery,
        )

    @staticmethod
    def _numbered(splits: Mapping[str, tuple[Split, ...]]) -> dict[str, tuple[Split, ...]]:
        """Splits that dead letters can name."""
        return {
            name: tuple(NumberedSplit(split, number) for number, split in enumerate(given))
            for name, given in splits.items()
        }

    def _read(self, stage: Stage, feeds: Mapping[str, Feed]) -> StageInput:
        """What a stage reads, where the inputs are known."""
        is_source = any(stage.name == source.name for source in self.sources)
        reads = replace(stage.input, is_logged=is_source and self.config.epoch_log is not None)
        if stage.name not in feeds:
            return reads
        # A reference at the end reads again what the splits of an open input were.
        compares = any(step.config.reference is not None and step.config.reference.at_end for step in self.steps)
        return replace(reads, position=Position(), given=() if compares else None)

    def check(self) -> None:
        """ConfigError if executors are wrong, or sections do not go together."""
        check_outputs(self.file, self.outputs)  # before executors are imported, which may change the working directory
        require_placing(self.file)
        self.check_references()
        for is_wrong, key, message in (*self._faults_of_log(), *self._faults_of_letters(), *self._faults_of_memory()):
            if is_wrong:
                raise self.file.error(key, message)
        self._check_place_of_log()
        for step in self.steps:
            for is_wrong, key, message in _faults(step):
                if is_wrong:
                    raise self.file.error(step.at(key), message)
            if step.config.reference is not None:
                self._check_is_read(step.at("reference"), step.main, step.config.reference)
                inputs = [source.name for source in self.sources]
                reference_of(self.file, step.at("reference"), step.config.reference, inputs)

    def check_references(self) -> None:
        """ConfigError if a reference would depend on when its rows were read."""
        for step in self.steps:
            asked = step.config.reference
            for each in with_feeding(self.steps, step.name) if asked is not None and asked.has_query else ():
                if each.processing_time is not None:
                    why = f"{each.name} has processing time, and when its rows were read is not recorded"
                    raise self.file.error(step.at("reference"), f"{why}: leave it out, or give them event time")

    def _faults_of_log(self) -> Faults:
        path, checkpoint = self.config.epoch_log, self.config.checkpoint
        why = "it is computed by the log of epochs alone: name a directory in `epoch_log`"
        for step in self.steps:
            asked = step.config.reference
            yield path is None and asked is not None and not asked.at_end, step.at("reference.at_end"), why
        publishes = any(any(step.publishes) for step in self.steps)
        has_epochs = checkpoint or publishes or any(step.receiver.windowing for step in self.steps)
        why = "no epoch ends before the job does: give it `checkpoint`, or `publish` a result"
        yield path is not None and not has_epochs, "epoch_log", why

    def _check_place_of_log(self) -> None:
        path = self.config.epoch_log
        if path is None:
            return
        if "://" not in path:
            check_place(self.file, "epoch_log", Path(path))
        elif path.startswith("s3://"):
            check_prefix(self.file, "epoch_log", path)
        else:
            raise self.file.error("epoch_log", f"{path}: name a directory, or s3://BUCKET/PREFIX")

    def _faults_of_memory(self) -> Faults:
        may_spill = self.config.limits.state_mb is not None and not all(step.receiver.can_merge for step in self.steps)
        why = "states that cannot be merged are spilled to RocksDB: pip install 'dpa[spill]'"
        yield may_spill and find_spec("rocksdict") is None, "limits.state_mb", why

    def _faults_of_letters(self) -> Faults:
        keeps, place = any(step.on_error == "dead_letter" for step in self.steps), self.config.dead_letters
        at_end = place is None or place.publish is None
        yield not at_end, f"{DEAD_LETTERS}.publish", "dead letters are published at the end: leave it out"
        by = place is not None and bool(place.partition_by)
        yield by, f"{DEAD_LETTERS}.partition_by", "dead letters lie in one directory: leave it out"
        no_place = place is None or (place.path is None and place.use is None)
        yield keeps and no_place, DEAD_LETTERS, "`on_error: dead_letter` needs a place: name a directory"
        none = "no record becomes a dead letter: set `on_error: dead_letter`"
        yield place is not None and not keeps, DEAD_LETTERS, none
        first = "the first error fails the job: set `on_error` to another than `fail`"
        yield self.config.max_errors is not None and not self.tolerates, "max_errors", first

    def _check_is_read(self, key: str, output: str, reference: ReferenceConfig) -> None:
        """ConfigError if rows that go to the sink of a section cannot be compared with its reference."""
        given = dict(written(self.file)).get(output)
        if given is None or given.use is None or not reference.has_query:
            return
        if type(self.outputs[output].sink).read is Sink.read:
            raise self.file.error(key, f"the sink {given.use!r} has no `read`: what goes there cannot be compared")

    def check_executors(self) -> None:
        """ConfigError if an executor could not be sent to actors, even where it stays in this process."""
        for section, executor in self._executors():
            with self.file.blaming(section, ConfigError):
                require_picklable(executor)

    def _executors(self) -> Iterator[tuple[str, object]]:
        """Executors, and sinks of the user's, each with its key path."""
        for key, output in written(self.file):
            if output.use is not None:
                yield key, self.outputs[key].sink
        for step in self.steps:
            for keying in (feed.keying for feed in step.feeds):
                if keying.mapper is not None:
                    yield step.at("mapper"), keying.mapper
                if keying.function is not None:
                    yield step.at("key_by"), keying.function
            if step.receiver.executor is not None:
                yield step.at(step.word), step.receiver.executor


def _delivery(step: Step) -> Delivery:
    asked = step.config.reference
    counted = asked is not None and asked.baseline and asked.at_end
    memory = Memory() if step.is_result else None
    return Delivery((memory, *[None] * (len(step.outputs) - 1)), counted=counted)


Faults = Iterator[tuple[object, str, str]]
"""Checks, one a row: whether there is a fault, the key that it is at, and what it is. The first one is reported."""


def _faults(step: Step) -> Faults:
    """Of the sections of a step, which do not go together."""
    config, balance, grouping = step.config, step.balance, step.grouping
    ring = f"redistributes the ring, which the grouping `{grouping.kind}` does not use"
    mend = f"`{balance.strategy}` {ring}: leave it out, or set `grouping: ring`"
    yield step.is_stage and not grouping.is_ring and balance.moves_keys, "balance.strategy", mend
    no_numba = f"`{grouping.kind}` needs numba: pip install 'dpa[groupings]'"
    yield grouping.is_compiled and find_spec("numba") is None, "grouping", no_numba
    several = f"`{grouping.kind}` sends records of one key to several tasks"
    if config.consistency == "migrate":
        but = "with `consistency: migrate` the state of a key is on one task:"
        yield grouping.splits_keys, "grouping", f"{several}, but {but} use `key` or `ring`"
        queued = "`lazy` leaves records in queues though their keys have moved"
        yield not balance.forwards_eagerly, "balance.forwarding", f"{queued}, but {but} leave it out"
    if not step.receiver.can_merge:
        needs = f"{name_of(step.receiver.executor)} {step.receiver.unmergeable}"
        yield step.combine is True, "combiner", f"{needs} leave the combiner off"
        yield grouping.splits_keys, "grouping", f"{several}, but {needs} use `key` or `ring`"
        moved = "a redistributed key has states on several tasks, which are merged at the end"
        mend = f"{moved}, but {needs} set `consistency: migrate`, or the strategy to `none`"
        yield balance.moves_keys and config.consistency == "merge", "balance.strategy", mend
    if config.elastic is not None:
        yield step.tasks is None, "elastic", "the step runs in the tasks before it: give it `parallelism` too"
        why, tasks = why_fixed(grouping, config.consistency, can_merge=step.receiver.can_merge), step.tasks or 0
        yield why is not None, "elastic", f"the number of tasks cannot change: {why}"
        least, most = config.elastic.min_tasks, config.elastic.max_tasks
        bounds = f"not between min_tasks ({least}) and max_tasks ({most})"
        yield not least <= tasks <= most, "elastic", f"the stage begins with {plural(tasks, 'task')}, {bounds}"
    for key, output in config.outputs.items():
        if output.publish is not None:
            for is_wrong, message in _faults_of_publishing(step, output.publish.mode):
                yield is_wrong, f"{key}.publish", message
    if config.reference is not None and config.reference.has_query:
        main = step.outputs[step.main]
        is_compared = main.publish is not None and main.publish.mode != "table"
        is_lost = main.use is not None or FORMATS[main.format].encoding is None
        lost = "what was published of the result before the end is not read back from there: publish to Parquet"
        yield is_compared and is_lost, "reference", lost


def _faults_of_publishing(step: Step, mode: Publishes) -> Iterator[tuple[object, str]]:
    word, publishes = step.word, step.config.does.publishes
    several = "of one step the `changes` are published once: publish its `table`, or what is `final`, elsewhere"
    yield mode == "changes" and step.publishes.count("changes") > 1, several
    is_open = step.receiver.windowing is None and "final" not in publishes
    mend = "leave it out" if word == "join" else "publish its `changes`, or the `table`"
    yield mode == "final" and is_open, f"no row of `{word}` is final before the end, but in windows: {mend}"
    no_table = f"a `{word}` has no table that changes: publish what is `final`"
    yield mode == "table" and "table" not in publishes, no_table
    if mode == "changes":
        has_one = "changes" in publishes and step.receiver.has_row_a_key
        yield not has_one, "`changes` are of a `reduce` that has one row for each key: publish the `table`"
        bounds = "a session's bounds, which are in its key, change: publish what is `final`"
        yield step.receiver.has_sessions, bounds
        for name in sorted({CHANGE, EPOCH} & {*names_of(step.feeds[0].keying.key)}):
            yield True, f"rows of changes already have a column {name!r}: rename the key's"


def _naming(file: JobFile, objects: Objects) -> JobFile:
    """The file, naming the objects given for its input, mapper and reducer where it has none."""
    known = {name: ExecutorConfig.of(objects[name]) for name in ("mapper", "reducer") if name in objects}
    reducer = {name: ReducerConfig(use=of.use, args=of.args) for name, of in known.items() if name == "reducer"}
    named = {**known, **reducer, **({"input": InputConfig(format="given")} if "input" in objects else {})}
    named = {name: section for name, section in named.items() if getattr(file.config, name) is None}
    return replace(file, config=file.config.model_copy(update=named)) if named else file
