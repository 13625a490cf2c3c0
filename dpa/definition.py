"""What a job is to do: its configuration, executors and options, and what of them can be checked before it runs."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from dpa.config import JobConfig, JobFile
from dpa.errors import ConfigError
from dpa.execution.mapping import MapTask
from dpa.executors import AnyMapper, AnyReducer, is_mergeable, name_of
from dpa.lookup import actors_path, mapper_of, reducer_of, reference_of
from dpa.output import OutputDirectory
from dpa.protocol.assembly import AdaptiveSettings, BalanceOptions, SignalSettings
from dpa.published import RoundsDirectory
from dpa.routing.groupings.options import GroupingOptions
from dpa.runtime.plan import RunPlan, require_picklable
from dpa.splits import Split

_STEP_SECONDS = 0.25
"""How long a per-record mapper may work before it hands over what it has."""


class Definition:
    """A checked configuration and its executors, which are imported when they are first asked for."""

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
        given = self.config.balance.model_dump()
        return BalanceOptions(**{**given, "adaptive": AdaptiveSettings(**given["adaptive"])})

    @property
    def grouping(self) -> GroupingOptions:
        """How mappers choose the reducer of a record."""
        given = self.config.grouping
        return GroupingOptions(given.kind, given.epsilon, given.virtual_workers, given.proportional, given.pooled)

    @property
    def signals(self) -> SignalSettings:
        """How reducers judge their load for the grouping."""
        given = self.config.grouping
        return SignalSettings(given.slot_seconds, given.theta_busy, given.theta_idle, given.utilisation)

    def plan(self, splits: tuple[Split, ...], columns: pa.Schema) -> RunPlan:
        """What the runtime is to do with these splits of an input with these columns; results stay in memory, and no
        round is published."""
        config, limits = self.config, self.config.limits
        reference, aggregation = config.reference, config.aggregation
        return RunPlan(
            splits=splits,
            columns=columns,
            task=self.task,
            mappers=config.parallelism.mappers,
            reducers=config.parallelism.reducers,
            balance=self.balance,
            grouping=self.grouping,
            signals=self.signals,
            in_flight_records=limits.in_flight_records,
            slice_records=limits.slice_records,
            slice_seconds=limits.slice_seconds,
            aggregate_seconds=None if aggregation is None else aggregation.seconds,
            key_counts=reference is not None and reference.baseline,
            python_path=actors_path(self.file),
            slowdown=tuple(config.parallelism.slowdown),
            crowded=tuple(config.parallelism.crowded),
        )

    def check_definition(self) -> None:
        """Check executors, and that all sections go together.

        Raises:
            ConfigError: naming what is wrong and where.
        """
        OutputDirectory.check(self.file)  # before executors are imported, which may change the working directory
        RoundsDirectory.check(self.file)
        self._check_grouping()
        self._check_merge()
        self.task  # noqa: B018  (imports the executors)
        reference_of(self.file)

    def check_picklable(self) -> None:
        """Check that the executors can be sent to actors.

        Raises:
            ConfigError: one cannot be pickled.
        """
        for section, executor in (("mapper", self.mapper), ("reducer", self.reducer)):
            try:
                if executor is not None:
                    require_picklable(executor)
            except ConfigError as error:
                raise self.file.error(section, str(error)) from None

    def _check_grouping(self) -> None:
        kind, strategy = self.config.grouping.kind, self.config.balance.strategy
        if not self.grouping.is_ring and strategy != "none":
            why = f"redistributes the ring, which the grouping `{kind}` does not use"
            raise self.file.error("balance.strategy", f"`{strategy}` {why}: leave it out, or set `grouping: ring`")

    def _check_merge(self) -> None:
        if is_mergeable(self.reducer):
            return
        needs = f"{name_of(self.reducer)} has no `merge`; give it one"
        if self.config.combiner:
            raise self.file.error("combiner", f"{needs}, or leave the combiner off")
        if self.grouping.scatters:
            why = f"`{self.config.grouping.kind}` sends records of one key to several reducers"
            raise self.file.error("grouping", f"{why}, but {needs}, or use `key` or `ring`")
        if self.config.aggregation is not None:
            why = "states of one key that several reducers have are folded"
            raise self.file.error("aggregation", f"{why}, but {needs}, or leave the section out")
        if self.config.balance.strategy != "none":
            why = "a redistributed key has states on several reducers, which are merged at the end"
            raise self.file.error("balance.strategy", f"{why}, but {needs}, or set the strategy to `none`")
