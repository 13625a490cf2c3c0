"""A job: from a job file or from Python, through Spark and Ray, to a `Result`.

This is where the floors below are wired together; each step is a call into one of them. Nothing is started before the
configuration, the executors and the input's columns have been checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from dpa import config as job_config
from dpa.balance.skew import skew
from dpa.config import ExecutorConfig, JobConfig, JobFile
from dpa.errors import ConfigError, JobFailedError, TableError
from dpa.execution.key_stats import KeyStats
from dpa.execution.mapping import MapTask, check_columns
from dpa.executors import AnyMapper, AnyReducer, as_mapper, as_reducer, is_mergeable, name_of
from dpa.lookup import actors_path, mapper_of, named, reducer_of
from dpa.output import OutputDirectory, in_memory
from dpa.protocol.assembly import AdaptiveSettings, BalanceOptions, SignalSettings
from dpa.protocol.metrics import Snapshot
from dpa.published import RoundsDirectory
from dpa.result import OutputReport, ReferenceReport, Result, Seconds
from dpa.routing.groupings.options import GroupingOptions
from dpa.runtime.cluster import ray_session
from dpa.runtime.launch import run as run_on_ray
from dpa.runtime.plan import RunOutcome, RunPlan
from dpa.splits import Split, memory_splits
from dpa.summary import report_of
from dpa.tables import Sample, Source, as_table, input_table, load, sample_rows, schema_of, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STEP_SECONDS = 0.25
"""How long a per-record mapper may work before it hands over what it has."""


class Observer(Protocol):
    """Who watches a job run."""

    def phase(self, name: str, detail: str = "") -> None:
        """A phase begins: `load`, `startup`, `stream`, `merge` or `reference`."""

    def update(self, snapshot: Snapshot) -> None:
        """Statistics, a few times a second while records flow."""


class Unobserved:
    """Nobody watches."""

    def phase(self, name: str, detail: str = "") -> None:
        """Nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Input:
    """The input, ready to be read: its splits (none if it was only looked at), columns, and the same rows in Spark."""

    splits: tuple[Split, ...]
    columns: list[str]
    frame: Callable[[], DataFrame | pa.Table]


class Job:
    """A map/reduce job over a table.

    From Python, give what a job file would say; executors and input may be objects:

        Job(input=table, key="word", reducer=Count(), parallelism={"reducers": 2}).run()
    """

    def __init__(
        self,
        *,
        input: Any = None,
        mapper: Any = None,
        reducer: Any = None,
        file: JobFile | None = None,
        **sections: Any,
    ) -> None:
        """Make a job.

        Args:
            input: an Arrow table, a list of records, a pandas, polars or Spark DataFrame, or an `input` section.
            mapper: a mapper, a function of a record, or a `mapper` section.
            reducer: a reducer, a function of two values, or a `reducer` section.
            file: a checked configuration, instead of `sections`.
            sections: the other keys of a job file.

        Raises:
            ConfigError: something does not fit.
        """
        given = {"input": input, "mapper": mapper, "reducer": reducer}
        plain = {name: value for name, value in given.items() if value is not None and _is_section(name, value)}
        objects = {name: value for name, value in given.items() if value is not None and name not in plain}
        self.file = file or job_config.parse({**sections, **plain}, origin="Job(...)")
        self._data: pa.Table | None = as_table(objects["input"]) if "input" in objects else None
        self._mapper = as_mapper(objects["mapper"]) if "mapper" in objects else None
        self._reducer = as_reducer(objects["reducer"]) if "reducer" in objects else None

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = ()) -> Job:
        """The job of a job file, with `section.key=value` overrides.

        Raises:
            ConfigError: the file cannot be read or does not fit the schema.
        """
        return cls(file=job_config.load(path, overrides))

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

    def plan(self, splits: tuple[Split, ...]) -> RunPlan:
        """What the runtime is to do with these splits; results stay in memory, and no round is published."""
        config, limits = self.config, self.config.limits
        reference, aggregation = config.reference, config.aggregation
        return RunPlan(
            splits=splits,
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

    def check(self) -> None:
        """Check all that can be checked without reading the input: executors, and that they fit the rest.

        Raises:
            ConfigError: naming what is wrong and where.
        """
        self._check_grouping()
        self._check_merge()
        self.task  # noqa: B018  (imports the executors)
        OutputDirectory.check(self.file)
        RoundsDirectory.check(self.file)
        reference = self.config.reference
        if reference is not None and reference.function is not None:
            named(self.file, "reference.function", reference.function)
        if self._data is None and self.config.input is None:
            raise self.file.error("input", "a job needs an input")

    def validate(self) -> None:
        """Check everything that can be checked without running: also that the input has the columns.

        Raises:
            ConfigError: naming what is wrong and where.
        """
        self.check()
        with ExitStack() as stack:
            self.open_input(stack, self.spark(stack), stage=False)

    def run(self, observer: Observer | None = None, *, address: str | None = None, check: bool = True) -> Result:
        """Run the job.

        Args:
            observer: who is told of progress.
            address: of a running Ray cluster, instead of the configuration's.
            check: whether to raise if the job fails or its result differs from the reference.

        Raises:
            ConfigError: something was wrong before any actor started.
            JobFailedError: the job failed, and `check` is set.
            ReferenceMismatchError: the result differs from the reference, and `check` is set.
        """
        result = _Run(self, observer or Unobserved(), address).result()
        return result.check() if check else result

    def open_input(self, stack: ExitStack, spark: Callable[[], SparkSession], *, stage: bool = True) -> Input:
        """Have the input ready for as long as `stack` is open; without `stage` only its columns are looked at.

        Raises:
            ConfigError: it cannot be read, or lacks a column.
        """
        if self._data is not None:
            opened = self._in_memory(self._data)
        else:
            assert self.config.input is not None
            try:
                opened = self._opened(stack, spark, stage)
            except TableError as error:
                raise self.file.error("input", str(error)) from None
        try:
            check_columns(self.task, opened.columns)
        except ConfigError as error:
            key, _, message = str(error).partition(": ")
            raise self.file.error(key, message) from None
        return opened

    def sample(self, stack: ExitStack, most_rows: int) -> tuple[int | None, pa.Table]:
        """About `most_rows` rows of the input, drawn at random, and how many there are in all.

        Raises:
            ConfigError: the input cannot be read, or lacks a column.
        """
        opened = self.open_input(stack, self.spark(stack), stage=False)
        frame = opened.frame()
        if isinstance(frame, pa.Table):
            drawn = np.random.default_rng(self.config.seed).permutation(frame.num_rows)[:most_rows]
            return frame.num_rows, frame.take(pa.array(np.sort(drawn)))
        try:
            return sample_rows(frame, most_rows, self.config.seed)
        except TableError as error:
            raise self.file.error("input", str(error)) from None

    def spark(self, stack: ExitStack) -> Callable[[], SparkSession]:
        """A function that gives the one Spark session of `stack`, starting it when it is first called."""
        sessions: list[SparkSession] = []

        def session() -> SparkSession:
            if not sessions:
                spark = self.config.spark
                sessions.append(stack.enter_context(spark_session(self.config.name, spark.master, spark.conf)))
            return sessions[0]

        return session

    def _opened(self, stack: ExitStack, spark: Callable[[], SparkSession], stage: bool) -> Input:
        given, sample = self.config.input, self.config.sample
        assert given is not None
        if given.format == "records":
            return self._in_memory(as_table(given.records))
        source = Source.of(given.model_dump(), base=str(self.file.directory))
        drawn = None
        if sample is not None:
            seed = self.config.seed if sample.seed is None else sample.seed
            drawn = Sample(sample.fraction, sample.by, seed)
        if not stage:
            return Input((), schema_of(spark, source).names, lambda: load(spark(), source, drawn))
        split_rows = self.config.limits.split_records
        table = stack.enter_context(
            input_table(spark, source, drawn, split_rows=split_rows, stage_dir=self.config.spark.stage_dir)
        )
        wanted = None
        if self.mapper is None and self.config.value is not None:
            wanted = (self.config.key, *self.config.value)
            wanted = tuple(name for name in wanted if name in table.schema.names)
        repeated = (self.config.key,) if self.mapper is None and self.config.key in table.schema.names else ()
        splits = table.splits(columns=wanted, dictionary=repeated, split_rows=split_rows)
        return Input(tuple(splits), table.schema.names, lambda: spark().read.parquet(*table.paths))

    def _in_memory(self, table: pa.Table) -> Input:
        if self.config.sample is not None:
            raise self.file.error("sample", "is Spark's, and this input is in memory: sample it before")
        splits = memory_splits(table, self.config.limits.split_records)
        return Input(tuple(splits), table.column_names, lambda: table)

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


class _Run:
    """One run of a job: phases, their times, and what is known if one fails."""

    def __init__(self, job: Job, observer: Observer, address: str | None) -> None:
        self._job = job
        self._observer = observer
        self._address = address or job.config.ray.address
        self._began = time.time()
        self._spent = {"startup": 0.0, "load": 0.0, "reference": 0.0}
        self._snapshot: Snapshot | None = None

    def result(self) -> Result:
        """Run, clean up whatever happens, and report."""
        job = self._job
        job.check()
        try:
            with ExitStack() as stack:
                return self._through(stack)
        except JobFailedError as error:
            report = report_of(
                status="failed",
                name=job.config.name,
                config=job.config.model_dump(mode="json"),
                snapshot=self._snapshot,
                seconds=Seconds(**self._spent, total=time.time() - self._began),
                error=str(error),
            )
            return Result(report)

    def _through(self, stack: ExitStack) -> Result:
        job, config = self._job, self._job.config
        spark = job.spark(stack)
        self._observer.phase("load")
        with self._timed("load"):
            opened = job.open_input(stack, spark)
        output = stack.enter_context(OutputDirectory(job.file))
        rounds = RoundsDirectory(job.file)
        rounds.clear()
        outcome = self._stream(opened, output, rounds)
        key_stats = KeyStats.union(part.stats for part in outcome.outputs)
        table = in_memory(outcome, config.key) if output.path is None else None
        files = output.commit(part.file for part in outcome.outputs if part.file)
        report_on = OutputReport(output.path, key_stats.distinct, files)
        reference, spark_skew = self._compare(spark, opened, outcome, Result.reader(table, report_on))
        times = outcome.times
        report = report_of(
            status="mismatch" if reference.matches is False else "ok",
            name=config.name,
            config=config.model_dump(mode="json"),
            snapshot=outcome.snapshot,
            seconds=Seconds(
                **self._spent,
                stream=times.stream_ended - times.stream_started,
                merge=times.merged - times.stream_ended,
                total=time.time() - self._began,
                first_record=None if times.first_record is None else times.first_record - self._began,
            ),
            keys=[part.rows for part in outcome.outputs],
            states=[part.states for part in outcome.outputs],
            stats=key_stats,
            spark_skew=spark_skew,
            reference=reference,
            output=report_on,
        )
        return Result(report, table)

    def _stream(self, opened: Input, output: OutputDirectory, rounds: RoundsDirectory) -> RunOutcome:
        config = self._job.config
        plan = replace(self._job.plan(opened.splits), rounds=rounds.path, output=output.staging)
        self._observer.phase("startup")
        asked = time.time()
        ray, actors = config.ray, config.parallelism.mappers + config.parallelism.reducers + 2
        with ray_session(
            self._address, actors=actors, runtime_env=ray.runtime_env, object_store_mb=ray.object_store_mb
        ):
            outcome = run_on_ray(plan, self._update)
        self._spent["startup"] = outcome.times.stream_started - asked
        return outcome

    def _update(self, snapshot: Snapshot) -> None:
        if self._snapshot is None or self._snapshot.phase != snapshot.phase:
            self._observer.phase(snapshot.phase)
        self._snapshot = snapshot
        self._observer.update(snapshot)

    def _compare(
        self, spark: Callable[[], SparkSession], opened: Input, outcome: RunOutcome, result: Callable[[], pa.Table]
    ) -> tuple[ReferenceReport, float | None]:
        """Check the result against Spark, and compute the baseline's skew."""
        asked, config = self._job.config.reference, self._job.config
        if asked is None:
            return ReferenceReport(), None
        from dpa.tables import compare, compute, spark_loads

        self._observer.phase("reference")
        with self._timed("reference"):
            report, spark_skew = ReferenceReport(), None
            if asked.sql or asked.function:
                function = named(self._job.file, "reference.function", asked.function) if asked.function else None
                try:
                    expected = compute(spark(), opened.frame(), sql=asked.sql, function=function)
                    found = compare(result(), expected, config.key, asked.tolerance)
                except TableError as error:
                    raise JobFailedError(f"reference: {error}") from None
                report = ReferenceReport(True, found.matches, found.rows, found.differences)
            if asked.baseline:
                counts = (
                    pa.concat_tables(
                        [part.key_counts for part in outcome.outputs if part.key_counts is not None and part.rows],
                        promote_options="permissive",
                    )
                    if any(part.rows for part in outcome.outputs)
                    else None
                )
                if counts is not None:
                    keys = counts["key"].combine_chunks()
                    loads = spark_loads(spark(), keys, counts["records"].to_numpy(), config.parallelism.reducers)
                    spark_skew = skew(loads)
        return report, spark_skew

    def _timed(self, phase: str) -> _Stopwatch:
        return _Stopwatch(self._spent, phase)


class _Stopwatch:
    """Adds the seconds spent in a `with` block to `spent[phase]`."""

    def __init__(self, spent: dict[str, float], phase: str) -> None:
        self._spent, self._phase, self._began = spent, phase, time.time()

    def __enter__(self) -> None:
        self._began = time.time()

    def __exit__(self, *raised: object) -> None:
        self._spent[self._phase] += time.time() - self._began


def _is_section(name: str, value: Any) -> bool:
    """Whether an argument is what a job file would hold, rather than an object."""
    if isinstance(value, dict):
        return name != "input" or "format" in value
    return name != "input" and isinstance(value, str | ExecutorConfig)
