"""The schema of a job file: its sections and keys, their types and defaults."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from dpa.balance.options import AdaptiveOptions
from dpa.config._section import MaxErrors, OneOf, Section, SparkText, in_json
from dpa.config._sinks import Output, OutputConfig, Outputs
from dpa.config._stage import Balance, Executor, Grouping, KeyColumns, Reducing, StageConfig, Tasks
from dpa.config.inputs import InputConfig
from dpa.config.stages import StepConfig, StepName
from dpa.config.variants import Plain, with_strategy
from dpa.placement.allocators import ALLOCATORS
from dpa.placement.online import OnlineOptions
from dpa.protocol.plan import JobLimits
from dpa.protocol.recovery import CheckpointOptions, RecoveryOptions
from dpa.routing.groupings.options import RingOptions
from dpa.sources.feed import Until
from dpa.tolerance import OnError

_NAME = r"^[A-Za-z0-9_.-]+$"


def _as_name(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(_NAME, value):
        raise ValueError(f"the name of a job has ASCII letters, digits, `_`, `.` and `-`, not {in_json(value)}")
    return value


JobName: TypeAlias = Annotated[str, Field(pattern=_NAME), BeforeValidator(_as_name)]

Amount: TypeAlias = Annotated[float, Field(ge=0, le=1e12)]
"""A cost, or megabytes."""


class NodeConfig(Section):
    """A node of the cluster, where what Ray says of it is not enough."""

    processors: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Processors for tasks; a node twice as fast has twice as many; null: as many as Ray knows."""
    reserved: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Processors of these that others use."""
    megabytes_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Bandwidth in each direction; null: no limit."""


class PlacementConfig(Section):
    """Which node runs which task."""

    allocator: Annotated[str, OneOf(ALLOCATORS)] = "top_down_search"
    """The algorithm that chooses the nodes."""
    profile: str | None = None
    """`report.json` of an earlier run, from which the costs of stages and their traffic are taken; a relative path
    starts at the job file. Null, and no `costs`: user code is measured on a sample of the input."""
    costs: dict[str, Amount] = {}
    """Declared cost of all tasks of each stage, in any unit."""
    traffic: dict[str, dict[str, Amount]] = {}
    """Declared megabytes from each stage to each that follows, while `costs` processor seconds are spent."""
    nodes: dict[str, NodeConfig] = {}
    """The nodes to use, by their names in Ray; empty: all."""
    tolerance: float = Field(default=1.2, gt=1, le=100)
    """Load that a node may have, in units of its even share. Where tasks are too coarse for it, the most even packing
    counts instead."""
    divide: bool = True
    """Whether each task counts with the cost that the profile has of it; false: all tasks of a stage count as alike."""
    online: Annotated[OnlineOptions, Plain(OnlineOptions)] | None = None
    """How tasks move to other nodes while the job runs; null: they stay where they were placed."""

    @model_validator(mode="after")
    def _goes_together(self) -> PlacementConfig:
        if self.online is not None and self.allocator == "exact":
            raise ValueError("`online` asks the allocator while records flow, for which `exact` takes too long")
        if self.profile is not None and self.costs:
            raise ValueError("give `profile`, which is measured, or `costs`, which are declared, not both")
        if self.traffic and not self.costs:
            raise ValueError("`traffic` is declared together with `costs`")
        return self


class ParallelismConfig(Section):
    """How many tasks each stage has."""

    mappers: Tasks = 2
    """Mapper tasks, each a process."""
    reducers: Tasks = 4
    """Reducer tasks, each a process."""


class SparkConfig(Section):
    """The Spark session, if one is needed at all."""

    master: str = "local[*]"
    """Spark master URL."""
    conf: dict[str, SparkText] = {}
    """Further Spark configuration."""
    stage_dir: str | None = None
    """Directory in which inputs are staged, text of any size too; on a cluster one that all machines share; null: the
    machine's temporary one."""


class RayConfig(Section):
    """The Ray cluster."""

    address: str | None = None
    """Address of a running cluster: `auto`, `host:port` or `ray://host:port`; null: the job starts a Ray of its own."""
    runtime_env: dict[str, Any] = {}
    """Ray's runtime environment for the actors, with an address only."""
    object_store_mb: int = Field(default=1024, ge=80)
    """Size in MiB of the object store of a Ray that the job starts."""


class _AnyJob(Section):
    """The keys of every job."""

    name: JobName = "job"
    """Name in reports and on screen: letters, digits, `_`, `.` and `-`."""
    seed: int = 0
    """Seed of everything random: samples, generated inputs."""
    python_path: list[str] = []
    """Further directories in which executors are looked up, relative to the job file's."""
    limits: Annotated[JobLimits, Plain(JobLimits)] = JobLimits()
    """Bounds on memory, and on what a task does at a time."""
    placement: PlacementConfig | None = None
    """Which node runs which task; null: Ray spreads them."""
    recovery: Annotated[RecoveryOptions, Plain(RecoveryOptions)] = RecoveryOptions()
    """What becomes of the job when one of its processes dies."""
    checkpoint: Annotated[CheckpointOptions, Plain(CheckpointOptions)] | None = None
    """What the job is begun again with when one of its processes dies; null: with the start of the input."""
    epoch_log: str | None = None
    """Directory, or `s3://BUCKET/PREFIX`, in which each run has a log with a row for each epoch, and with what is
    needed to verify epochs later; null: none."""
    until: Annotated[Until, Plain(Until)] = Until()
    """When inputs that are open are closed, and so the job ends; by default when they say so themselves, or at
    Ctrl-C."""
    on_error: OnError = "fail"
    """What becomes of a record on which user code raises, or which cannot be read: it fails the job, becomes a dead
    letter, or is skipped. Steps may say otherwise."""
    max_errors: MaxErrors | None = None
    """How many such records the job bears, or, as `0.1%`, which share of the rows of its input; null: any number."""
    dead_letters: Output | None = None
    """Where dead letters are written, as a table; a text is the path."""
    spark: SparkConfig = SparkConfig()
    """The Spark session."""
    ray: RayConfig = RayConfig()
    """The Ray cluster that runs the tasks."""
    stages: dict[StepName, StepConfig] = {}
    """A graph of steps, in place of one mapper and one reducer."""


class _MapReduce(Section):
    """The keys of a job of one mapper and one reducer, beside those that a step has too."""

    input: InputConfig | None = None
    """Where the records come from; only a job built in Python with a table of its own may leave it out."""
    mapper: Executor | None = None
    """Makes (key, value) pairs of records; null: `key` and `value` name input columns."""
    reducer: Reducing | None = None
    """Folds the values of a key; only a job built in Python may leave it out."""
    key: KeyColumns = "key"
    """Name of the key column in the input (without a mapper), in what a batch mapper returns, and in the result; a
    list: the columns that together are the key; null: all records have one key."""
    parallelism: ParallelismConfig = ParallelismConfig()
    """How many tasks map and reduce."""
    grouping: Grouping = RingOptions()
    """How mappers choose the reducer of a record."""
    balance: Balance = AdaptiveOptions()
    """When keys are redistributed, and how; `none` beside any other grouping than `ring`."""
    output: Outputs = Field(default=[OutputConfig()], json_schema_extra={"default": {"path": None}})
    """Where the result goes; a text is the path. A list: each of these gets it."""


class JobConfig(StageConfig, _MapReduce, _AnyJob):
    """A job: what to read, how to map and reduce it, and how to check the result."""

    @model_validator(mode="before")
    @classmethod
    def _strategy_is_named(cls, document: Any) -> Any:
        return with_strategy(document)

    def most_errors(self, rows: int) -> int | None:
        """The number of records that `max_errors` allows of this many rows; None: any."""
        if not isinstance(self.max_errors, str):
            return self.max_errors
        return int(rows * float(self.max_errors.rstrip("% ")) / 100)

    def resolved(self) -> dict[str, Any]:
        """As a document: with all defaults, and of steps what differs from them."""
        if not self.stages:
            return self.model_dump(exclude={"stages"}, by_alias=True)
        document = self.model_dump(include=set(_AnyJob.model_fields), by_alias=True)
        return {**document, "stages": {name: step.resolved() for name, step in self.stages.items()}}


OF_MAP_REDUCE = {field.alias or name for of in (_MapReduce, StageConfig) for name, field in of.model_fields.items()}
"""The keys that do not go with `stages`."""


def json_schema() -> dict[str, Any]:
    """The JSON schema of a job file, for editors."""
    return JobConfig.model_json_schema()
