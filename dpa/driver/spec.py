"""What a job is to do: its configuration, executors and options, and what of them can be checked without its input."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import pyarrow as pa

from dpa.balance.options import BalanceOptions
from dpa.config import JobConfig, JobFile
from dpa.driver.loading import actors_path, mapper_of, reducer_of, reference_of
from dpa.driver.outputs import OutputDirectory
from dpa.driver.partial_results import PartialResultsDirectory
from dpa.errors import ConfigError
from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.reduce_task import ReduceStage
from dpa.executors import AnyMapper, AnyReducer, is_mergeable, name_of
from dpa.protocol.graph import MAPPER, REDUCER, map_reduce
from dpa.protocol.plan import RunPlan
from dpa.routing.groupings.options import GroupingOptions
from dpa.sources.splits import Split

_STEP_SECONDS = 0.25
"""Seconds after which a per-record mapper emits the pairs it has."""


class JobSpec:
    """A checked configuration and its executors, which are imported on first use."""

    def __init__(self, file: JobFile, mapper: AnyMapper | None = None, reducer: AnyReducer | None = None) -> None:
        """`mapper` and `reducer` are used instead of what the file names."""
        self.file = file
        self._mapper = mapper
        self._reducer = reducer

    @property
    def config(self) -> JobConfig:
        """The resolved configuration."""
        return self.file.config

    @cached_property
    def mapper(self) -> AnyMapper | None:
        """The mapper executor, or None if the input has key and value already."""
        return self._mapper or mapper_of(self.file)

    @cached_property
    def reducer(self) -> AnyReducer:
        """The reducer executor."""
        return self._reducer or reducer_of(self.file)

    @cached_property
    def task(self) -> MapTask:
        """How the job maps."""
        config = self.config
        return MapTask(
            mapper=self.mapper,
            key=config.key,
            values=None if config.value is None else tuple(config.value),
            reducer=self.reducer,
            combine=config.combiner,
            seed=config.balance.hash_seed,
            batch_records=config.limits.batch_records,
            step_seconds=_STEP_SECONDS,
        )

    @property
    def balance(self) -> BalanceOptions:
        """How the job is balanced."""
        return self.config.balance

    @property
    def grouping(self) -> GroupingOptions:
        """How mappers choose the reducer of a record."""
        return self.config.grouping

    def plan(self, splits: tuple[Split, ...], columns: pa.Schema) -> RunPlan:
        """What a backend is to run: these splits of an input with these columns. The result stays in memory, and no
        partial results are published."""
        config, limits = self.config, self.config.limits
        reference, aggregation = config.reference, config.aggregation
        graph = map_reduce(
            splits,
            config.parallelism.mappers,
            config.parallelism.reducers,
            balance=self.balance,
            grouping=self.grouping,
            in_flight_records=limits.in_flight_records,
            quantum_records=limits.quantum_records,
            quantum_seconds=limits.quantum_seconds,
            aggregate_seconds=None if aggregation is None else aggregation.seconds,
        )
        return RunPlan(
            graph=graph,
            tasks={
                MAPPER: Emission((self.task,)),
                REDUCER: ReduceStage(self.task.reducer, self.task.key),
            },
            columns={MAPPER: columns},
            results={REDUCER: None},
            counted=frozenset([REDUCER] if reference is not None and reference.baseline else []),
            python_path=actors_path(self.file),
            slow_factor={REDUCER: tuple(config.testing.slow_factor)},
            cpu_contention={REDUCER: tuple(config.testing.cpu_contention)},
        )

    def check(self) -> None:
        """Check the executors, and that all sections go together.

        Raises:
            ConfigError: naming what is wrong and where.
        """
        OutputDirectory.check(self.file)  # before executors are imported, which may change the working directory
        PartialResultsDirectory.check(self.file)
        self._check_grouping()
        self._check_merge()
        self.task  # noqa: B018  (imports the executors)
        reference_of(self.file)

    def check_executors(self, check: Callable[[AnyMapper | AnyReducer], None]) -> None:
        """Call a backend's `check` with each executor.

        Raises:
            ConfigError: naming the section of an executor that `check` refuses.
        """
        for section, executor in (("mapper", self.mapper), ("reducer", self.reducer)):
            try:
                if executor is not None:
                    check(executor)
            except ConfigError as error:
                raise self.file.error(section, str(error)) from None

    def _check_grouping(self) -> None:
        if not self.grouping.is_ring and self.balance.moves_keys:
            why = f"redistributes the ring, which the grouping `{self.grouping.kind}` does not use"
            what = f"`{self.balance.strategy}` {why}: leave it out, or set `grouping: ring`"
            raise self.file.error("balance.strategy", what)

    def _check_merge(self) -> None:
        if is_mergeable(self.reducer):
            return
        needs = f"{name_of(self.reducer)} has no `merge`; give it one"
        if self.config.combiner:
            raise self.file.error("combiner", f"{needs}, or leave the combiner off")
        if self.grouping.splits_keys:
            why = f"`{self.grouping.kind}` sends records of one key to several reducers"
            raise self.file.error("grouping", f"{why}, but {needs}, or use `key` or `ring`")
        if self.config.aggregation is not None:
            why = "states of one key that several reducers have are folded"
            raise self.file.error("aggregation", f"{why}, but {needs}, or leave the section out")
        if self.balance.moves_keys:
            why = "a redistributed key has states on several reducers, which are merged at the end"
            raise self.file.error("balance.strategy", f"{why}, but {needs}, or set the strategy to `none`")
