"""What a job is to do: its configuration, steps and executors, and what of them can be checked without its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from dpa._util.words import plural
from dpa.config import ExecutorConfig, InputConfig, JobConfig, JobFile, ReferenceConfig
from dpa.config.inputs import SampleConfig
from dpa.driver._loading import actors_path, reference_of
from dpa.driver._step_executors import Objects
from dpa.driver._steps import steps_of
from dpa.driver.outputs import Publication, check_outputs, outputs_of, written
from dpa.driver.partial_results import check_partial_results
from dpa.errors import ConfigError
from dpa.executors import name_of
from dpa.logical.compilation import Compilation
from dpa.logical.step import Step
from dpa.protocol.graph import why_fixed
from dpa.protocol.plan import RunPlan
from dpa.protocol.task.delivery import Delivery
from dpa.sinks.memory import Memory
from dpa.sinks.sink import Sink
from dpa.sources.splits import Split


class JobSpec:
    """A checked configuration and its executors, which are imported on first use."""

    def __init__(self, file: JobFile, objects: Objects | None = None) -> None:
        """`objects` are used instead of what the file names: executors and tables, by key path."""
        self.objects: Objects = objects or {}
        self.file = _naming(file, self.objects)

    @property
    def config(self) -> JobConfig:
        """The resolved configuration."""
        return self.file.config

    def for_one_run(self) -> JobSpec:
        """The same job, to be run once: the user's sinks that were made for checks are its own, and later checks make
        others. Directories are looked up anew.

        Raises:
            ConfigError: a sink or an executor cannot be found or made.
        """
        outputs = outputs_of(self.file, vars(self).pop("outputs", {}))
        _ = self.steps  # after the directories: executors that are imported may change the working one
        taken = copy(self)
        taken.outputs = outputs
        return taken

    @cached_property
    def outputs(self) -> Mapping[str, Publication]:
        """Where results go, by the key path that says so."""
        return outputs_of(self.file)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps, each after all whose rows it takes."""
        return steps_of(self.file, self.objects)

    @property
    def sources(self) -> tuple[Step, ...]:
        """The steps that read an input."""
        return tuple(step for step in self.steps if step.is_source)

    @property
    def results(self) -> tuple[Step, ...]:
        """The steps whose rows are a result."""
        return tuple(step for step in self.steps if step.is_result)

    def input_of(self, source: Step) -> tuple[str, InputConfig, SampleConfig | None]:
        """The input that a step reads: its key path, and the sections that describe it and a sample of it."""
        assert source.config.read is not None
        return source.at("read"), source.config.read, source.config.sample

    def compilation(self, columns: Mapping[str, pa.Schema | None]) -> Compilation:
        """The steps on their way to a graph; `columns` are those of each source's input, None where they are not known.

        Raises:
            ConfigError: a step names a column that is not there, or that cannot be what it should be, or it may get
                more tasks where another needs the order of its one.
        """
        try:
            made = Compilation(self.steps, columns)
            made.columns.check()
        except ConfigError as error:
            key, _, message = str(error).partition(": ")
            raise self.file.error(key, message) from None
        for step in self.steps:
            ordered = None if step.config.elastic is None else made.ordered_for(step.name)
            if ordered is not None:
                why = f"{ordered} takes the records of a key in the order in which one task emits them"
                mend = "leave it out, or, where that does not matter, set `parallelism` to 2 or more"
                raise self.file.error(step.at("elastic"), f"{why}: {mend}")
        return made

    def plan(self, splits: Mapping[str, tuple[Split, ...]], columns: Mapping[str, pa.Schema | None]) -> RunPlan:
        """What a backend is to run: these splits of each source's input, which has these columns. Results stay in
        memory, and no partial results are published."""
        compilation = self.compilation(columns)
        compiled = compilation.compiled(splits)
        deliveries = {}
        for step in compilation.steps:
            if step.feeds:
                deliveries[step.name] = Delivery(
                    sink=Memory() if step.is_result else None,
                    empty=compilation.columns.empty(step.name),
                    counted=step.config.reference is not None and step.config.reference.baseline,
                )
        return RunPlan(
            graph=compiled.graph,
            tasks=compiled.tasks,
            deliveries=deliveries,
            python_path=actors_path(self.file),
            testing={step.name: step.config.testing for step in self.steps},
            name=self.config.name,
            limits=self.config.limits,
            recovery=self.config.recovery,
            checkpoint=self.config.checkpoint,
        )

    def check(self) -> None:
        """Check the executors, and that all sections go together.

        Raises:
            ConfigError: naming what is wrong and where.
        """
        check_outputs(self.file, self.outputs)  # before executors are imported, which may change the working directory
        check_partial_results(self.file)
        for step in self.steps:
            self._check_grouping(step)
            self._check_migrate(step)
            self._check_merge(step)
            self._check_elastic(step)
            if step.config.reference is not None:
                self._check_is_read(step.at("reference"), step.at("write"), step.config.reference)
                inputs = [source.name for source in self.sources]
                reference_of(self.file, step.at("reference"), step.config.reference, inputs)

    def _check_is_read(self, key: str, output: str, reference: ReferenceConfig) -> None:
        """Check that the rows which go to the sink of a section can be compared with its reference."""
        given = dict(written(self.file)).get(output)
        if given is None or given.use is None or not (reference.sql or reference.function):
            return
        if type(self.outputs[output].sink).read is Sink.read:
            raise self.file.error(key, f"the sink {given.use!r} has no `read`: what goes there cannot be compared")

    def check_executors(self, check: Callable[[object], None]) -> None:
        """Call a backend's `check` with each executor.

        Raises:
            ConfigError: naming the section of an executor that `check` refuses.
        """
        for section, executor in self._executors():
            try:
                check(executor)
            except ConfigError as error:
                raise self.file.error(section, str(error)) from None

    def _executors(self) -> Iterator[tuple[str, object]]:
        """The executors, and sinks of the user's, each with its key path."""
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

    def _check_grouping(self, step: Step) -> None:
        if step.is_stage and not step.grouping.is_ring and step.balance.moves_keys:
            why = f"redistributes the ring, which the grouping `{step.grouping.kind}` does not use"
            what = f"`{step.balance.strategy}` {why}: leave it out, or set `grouping: ring`"
            raise self.file.error(step.at("balance.strategy"), what)

    def _check_migrate(self, step: Step) -> None:
        """Check that nothing gives a key several tasks where its state is to be on one at a time."""
        if step.config.consistency != "migrate":
            return
        but = "with `consistency: migrate` the state of a key is on one task:"
        self._refuse_several_states(step, but)
        if not step.balance.forwards_eagerly:
            why = "`lazy` leaves records in queues though their keys have moved"
            raise self.file.error(step.at("balance.forwarding"), f"{why}, but {but} leave it out")

    def _refuse_several_states(self, step: Step, but: str) -> None:
        """Check that a key's records go to one task, whatever is redistributed; `but` says why they must."""
        if step.grouping.splits_keys:
            why = f"`{step.grouping.kind}` sends records of one key to several tasks"
            raise self.file.error(step.at("grouping"), f"{why}, but {but} use `key` or `ring`")
        if step.config.aggregation is not None:
            why = "states of one key that several tasks have are folded"
            raise self.file.error(step.at("aggregation"), f"{why}, but {but} leave the section out")

    def _check_elastic(self, step: Step) -> None:
        elastic = step.config.elastic
        if elastic is None:
            return
        if step.tasks is None:
            raise self.file.error(step.at("elastic"), "the step runs in the tasks before it: give it `parallelism` too")
        aggregates = step.config.aggregation is not None
        why = why_fixed(step.grouping, step.config.consistency, aggregates=aggregates, can_merge=step.can_merge)
        if why is not None:
            raise self.file.error(step.at("elastic"), f"the number of tasks cannot change: {why}")
        if not elastic.min_tasks <= step.tasks <= elastic.max_tasks:
            bounds = f"min_tasks ({elastic.min_tasks}) and max_tasks ({elastic.max_tasks})"
            begins = f"the stage begins with {plural(step.tasks, 'task')}"
            raise self.file.error(step.at("elastic"), f"{begins}, not between {bounds}")

    def _check_merge(self, step: Step) -> None:
        if step.can_merge:
            return
        needs = f"{name_of(step.receiver.executor)} {step.receiver.unmergeable}"
        if step.combine:
            raise self.file.error(step.at("combiner"), f"{needs} leave the combiner off")
        self._refuse_several_states(step, needs)
        if step.balance.moves_keys and step.config.consistency == "merge":
            why = "a redistributed key has states on several tasks, which are merged at the end"
            mend = "set `consistency: migrate`, or the strategy to `none`"
            raise self.file.error(step.at("balance.strategy"), f"{why}, but {needs} {mend}")


def _naming(file: JobFile, objects: Objects) -> JobFile:
    """The file, with the names of the objects that stand for its input, mapper and reducer where it has nothing."""
    known = {name: ExecutorConfig(use=name_of(objects[name])) for name in ("mapper", "reducer") if name in objects}
    named = {**known, **({"input": InputConfig(format="given")} if "input" in objects else {})}
    named = {name: section for name, section in named.items() if getattr(file.config, name) is None}
    return replace(file, config=file.config.model_copy(update=named)) if named else file
