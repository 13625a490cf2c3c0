"""Makes stages, edges and the work of tasks out of steps: what runs in which tasks, and in what form rows travel.

A step that has no tasks of its own is fused into the tasks of each stage before it. What several edges of a stage have
in common runs once: the emission of a stage is the tree of the steps after it, up to the stages that follow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dpa.execution.arrivals import Input
from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.receivers.base import Receiver
from dpa.execution.reduce_task import ReduceStage
from dpa.logical.columns import Columns
from dpa.logical.step import Step, StepInput, in_order
from dpa.operators import RowKind
from dpa.protocol.graph import MAPPER, Edge, Graph, Stage, StageInput
from dpa.protocol.task.user_code import StageTask
from dpa.sources.splits import Split
from dpa.tolerance import Letters, Tolerance


@dataclass(frozen=True)
class Compiled:
    """The graph of a job, and what the tasks of each stage do."""

    graph: Graph
    tasks: Mapping[str, StageTask]


class Compilation:
    """The steps of a job, each after all whose rows it takes, on their way to a graph."""

    def __init__(self, steps: Sequence[Step], columns: Mapping[str, pa.Schema | None]) -> None:
        """`columns`: of each source's input, or None. ConfigError if the steps form a cycle, or a result column has the
        name of its key column."""
        self.steps = in_order(steps)
        self._takers: dict[str, list[tuple[Step, StepInput]]] = {step.name: [] for step in self.steps}
        for step in self.steps:
            for feed in step.feeds:
                self._takers[feed.step].append((step, feed))
        self._by_name = {step.name: step for step in self.steps}
        self.columns = Columns(self.steps, columns)
        noted = any(step.on_error != "fail" or step.config.window is not None for step in self.steps)
        self._letters = Letters() if noted else None

    def compiled(self, splits: Mapping[str, tuple[Split, ...]]) -> Compiled:
        stages, edges, tasks = [], [], {}
        for step in self.steps:
            if not step.is_stage:
                continue
            assert step.tasks is not None
            emission = self._emission(step)
            tasks[step.name] = self._task(step, emission)
            edges += [Edge(step.name, taker.name) for _, taker, _ in self.edges(step.name)]
            stages.append(
                Stage(
                    step.name,
                    step.tasks,
                    StageInput(splits.get(step.name, ())),
                    grouping=step.grouping,
                    balance=step.balance,
                    flow=step.flow,
                    expected_seconds=step.expected_seconds,
                    publishing=step.publishing,
                    consistency=step.config.consistency,
                    can_merge=step.receiver.can_merge,
                    elastic=step.config.elastic,
                    ordered_for=self.ordered_for(step.name),
                )
            )
        return Compiled(Graph(tuple(stages), tuple(edges)), tasks)

    def edges(self, source: str, fused: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Step, StepInput]]:
        """The edges out of a stage, in order: the steps fused on each, after `fused`, the stage that it enters, and the
        feed."""
        for taker, feed in self._takers[source]:
            if taker.is_stage:
                yield fused, taker, feed
            else:
                yield from self.edges(taker.name, (*fused, taker))

    def ordered_for(self, stage: str) -> str | None:
        """The step that needs the rows of a stage in their order, which only a single task keeps; None if none does."""
        step = self._by_name[stage]
        if step.tasks != 1 or not step.receiver.keeps_order:
            return None
        takers = [taker for _, taker, _ in self.edges(stage)]
        ordered = (taker.name if taker.needs_order else self.ordered_for(taker.name) for taker in takers)
        return next(filter(None, ordered), None)

    def operators_from(self, source: str) -> list[tuple[str, ...]]:
        """In a few words each, what is done to a row on each edge out of a stage."""
        found = []
        for fused, taker, feed in self.edges(source):
            words = [*(step.does for step in fused if step.receiver.operators), feed.keying.does]
            combine = {True: "combine", False: "", "auto": "combine if that pays"}[taker.combine]
            found.append(tuple(filter(None, (*words, combine))))
        return found

    def _task(self, step: Step, emission: Emission | None) -> StageTask:
        if step.is_source:
            assert emission is not None
            emission = replace(emission, time=step.processing_time)
            deaths = self._deaths(step, emission.tolerances)
            reading = self._tolerance(step)
            noted = replace(emission, letters=self._letters, reading=reading, deaths=deaths)
            return noted if self._letters else emission
        key, receiver = step.feeds[0].keying.key, self._receiver(step)
        deaths = self._deaths(step, (*filter(None, (receiver.tolerance,)), *(emission.tolerances if emission else ())))
        return ReduceStage(
            receiver,
            key,
            emission,
            keeps_rows=bool(step.outputs),
            letters=self._letters,
            deaths=deaths,
            empty=self.columns.of_no_records(step.name),
            publishes=step.publishes,
        )

    def _deaths(self, step: Step, of_code: Iterable[Tolerance]) -> Tolerance | None:
        """How tasks tolerate records that end their process. The step is unknown, so the first step with user code
        decides."""
        found = next(iter(of_code), None)
        return None if found is None else replace(found, step=step.name)

    def _receiver(self, step: Step) -> Receiver:
        receiver, tolerance = self.columns.receiver(step), self._tolerance(step)
        if self._letters is not None:
            receiver = receiver.noting(Tolerance(step.name, self._letters, step.on_error == "dead_letter"))
        return receiver if tolerance is None else replace(receiver, tolerance=tolerance)

    def _tolerance(self, step: Step, name: str | None = None) -> Tolerance | None:
        """How errors of a step's user code are tolerated; `name`: what to call the step, if not by its own."""
        if step.on_error == "fail" or self._letters is None:
            return None
        merges = step.receiver.can_merge and step.config.consistency == "merge"
        return Tolerance(name or step.name, self._letters, step.on_error == "dead_letter", merges)

    def _emission(self, step: Step) -> Emission | None:
        outputs = tuple(self._output(taker, feed) for taker, feed in self._takers[step.name])
        if len(outputs) == 1 and isinstance(outputs[0], Emission):
            return outputs[0]
        return Emission(outputs) if outputs else None

    def _output(self, taker: Step, feed: StepInput) -> Emission | MapTask:
        aligned, inputs = self.columns.aligned(taker, feed), self.columns.inputs(taker, feed)
        if taker.is_stage:
            task = self.columns.map_task(taker, feed)
            maps = MAPPER if feed.keying.mapper is not None else None
            tolerance, receiver = self._tolerance(taker, maps), self._receiver(taker)
            task = replace(task, inputs=(*task.inputs, *inputs), tolerance=tolerance, receiver=receiver)
            return Emission((task,), aligned) if aligned else task
        after = self._emission(taker)
        assert after is not None
        whole = replace(after, operators=(*self._receiver(taker).operators, *after.operators))
        whole = _from(whole, inputs) if inputs else whole
        return replace(whole, operators=(*aligned, *whole.operators))


def _from(tree: Emission, inputs: tuple[Input, ...]) -> Emission:
    """The tree, its edges noting these inputs too, down to where a function makes other rows."""
    if any(operator.kind is not RowKind.FILTER for operator in tree.operators):
        return tree  # a function makes rows with columns of its own
    outputs = (
        replace(output, inputs=(*output.inputs, *inputs)) if isinstance(output, MapTask) else _from(output, inputs)
        for output in tree.outputs
    )
    return replace(tree, outputs=tuple(outputs))
