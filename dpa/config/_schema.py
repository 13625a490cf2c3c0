"""The schema of a job file: its sections and keys, their types and defaults."""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from dpa._util.words import alternatives, is_loopback
from dpa.balance.options import AdaptiveOptions
from dpa.config._section import Faults, MaxErrors, OneOf, Section, SparkText, in_json
from dpa.config._sinks import Output, OutputConfig, Outputs
from dpa.config._stage import Balance, Executor, Grouping, JobResourcesConfig, KeyColumns, Reducing, StageConfig, Tasks
from dpa.config.inputs import Input
from dpa.config.stages import StepConfig, StepName
from dpa.config.variants import Plain, with_strategy
from dpa.placement.allocators import ALLOCATORS
from dpa.placement.model import OnlineOptions
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


def _as_allocator(value: Any) -> Any:
    if isinstance(value, str) and value not in ALLOCATORS and ":" not in value:
        known = alternatives([*map(repr, ALLOCATORS), "`package.module:Name` of your own"])
        raise PydanticCustomError("no_allocator", "Input should be {known}", {"known": known})
    return value


_Allocator: TypeAlias = Annotated[str, OneOf((*ALLOCATORS,))] | str
AllocatorName: TypeAlias = Annotated[str, BeforeValidator(_as_allocator, json_schema_input_type=_Allocator)]

Amount: TypeAlias = Annotated[float, Field(ge=0, le=1e12)]  # a cost, or megabytes


class NodeConfig(Section):
    """A node of the cluster, where what Ray says of it is not enough."""

    processors: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Processors for tasks; a node twice as fast counts twice as many; null: as many as Ray knows."""
    reserved: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Processors of these that other programs use."""
    megabytes_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Bandwidth in each direction; null: no limit."""


class PlacementConfig(Section):
    """Which node runs which task."""

    group: Literal["pack", "spread", "strict_pack", "strict_spread"] | None = None
    """Leave it to Ray, in a placement group with this strategy: near each other, apart, all on one node, or each on a
    node of its own. The other keys have no use then."""
    allocator: AllocatorName = "top_down_search"
    """The algorithm that chooses the nodes: a name of docs/placement.md, or `package.module:Name` of your own."""
    profile: str | None = None
    """`report.json` of an earlier run, with the costs of stages and their traffic; a relative path starts at the job
    file. Null, and no `costs`: user code is measured on a sample of the input."""
    costs: dict[str, Amount] = {}
    """Declared cost of each stage, all its tasks together, in any unit."""
    traffic: dict[str, dict[str, Amount]] = {}
    """Declared megabytes from each stage to each later one, while `costs` processor seconds are spent."""
    nodes: dict[str, NodeConfig] = {}
    """Nodes to use, by their names in Ray; empty: all."""
    tolerance: float = Field(default=1.2, gt=1, le=100)
    """Most load of a node, in units of its even share. If tasks are too coarse for that, the most even packing counts
    instead."""
    divide: bool = True
    """Whether each task counts with its own cost in the profile; false: all tasks of a stage count the same."""
    online: Annotated[OnlineOptions, Plain(OnlineOptions)] | None = None
    """How tasks move to other nodes while the job runs; null: they stay."""

    def faults(self) -> Faults:
        others = ", ".join(f"`{key}`" for key in sorted(self.model_fields_set - {"group"}))
        by_ray = f"in a placement group Ray places the tasks: leave out `group`, or {others}"
        yield self.group is not None and others, by_ray
        both = "give `profile`, which is measured, or `costs`, which are declared, not both"
        yield self.profile is not None and self.costs, both
        yield self.traffic and not self.costs, "`traffic` is declared together with `costs`"


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
    """Directory in which inputs are staged, also text of any size; on a cluster it must be shared; null: the machine's
    temporary directory."""


class RayConfig(Section):
    """The Ray cluster."""

    address: str | None = None
    """Address of a running cluster: `auto`, `host:port` or `ray://host:port`; null: the job starts its own Ray."""
    runtime_env: dict[str, Any] = {}
    """Ray's runtime environment for the actors; only with an address."""
    object_store_mb: int = Field(default=1024, ge=80)
    """MiB of the object store, if the job starts its own Ray."""


class DoorConfig(Section):
    """Where the running job serves its page, its metrics and requests."""

    host: str = "127.0.0.1"
    """The address to listen on; one that other machines reach needs a certificate."""
    port: int = Field(default=0, ge=0, le=65535)
    """The port; 0: one that is free."""
    certificate: str | None = None
    """File of the TLS certificate, in PEM; null: no TLS."""
    key: str | None = None
    """File of its key, in PEM and without a password."""
    token_file: str | None = None
    """File with the token, if programs such as Prometheus must know it; null: a new token for each run."""

    def faults(self) -> Faults:
        yield (self.certificate is None) != (self.key is None), "give `certificate` and `key` together"
        is_open = self.certificate is None and not is_loopback(self.host)
        yield is_open, f"on {in_json(self.host)} others could read along: give `certificate` and `key`"


class _AnyJob(Section):
    """The keys of every job."""

    name: JobName = "job"
    """Name in reports and on screen: letters, digits, `_`, `.` and `-`."""
    seed: int = 0
    """Seed of samples, generated inputs and everything else that is random."""
    python_path: list[str] = []
    """More directories in which executors are looked up, relative to the job file's."""
    limits: Annotated[JobLimits, Plain(JobLimits)] = JobLimits()
    """Bounds on memory, and on how much a task does at a time."""
    placement: PlacementConfig | None = None
    """Which node runs which task; null: Ray spreads them."""
    resources: JobResourcesConfig = JobResourcesConfig()
    """What each task requests of its node on a cluster."""
    recovery: Annotated[RecoveryOptions, Plain(RecoveryOptions)] = RecoveryOptions()
    """What to do when a process of the job dies."""
    checkpoint: Annotated[CheckpointOptions, Plain(CheckpointOptions)] | None = None
    """Where to keep checkpoints, from which the job restarts when a process dies; null: it starts over."""
    epoch_log: str | None = None
    """Directory, or `s3://BUCKET/PREFIX`, in which each run logs its epochs, so that they can be verified later; null:
    none."""
    until: Annotated[Until, Plain(Until)] = Until()
    """When to close unbounded inputs and end the job; by default when they end themselves, or at Ctrl-C."""
    on_error: OnError = "fail"
    """What to do with a record on which user code raises, or which cannot be read: fail the job, make it a dead letter,
    or skip it. A step may override this."""
    max_errors: MaxErrors | None = None
    """The job fails beyond this number of such records, or share of the input's rows (`0.1%`); null: no limit."""
    dead_letters: Output | None = None
    """Where dead letters are written, as a table; a string is the path."""
    spark: SparkConfig = SparkConfig()
    """The Spark session."""
    ray: RayConfig = RayConfig()
    """The Ray cluster that runs the tasks."""
    door: DoorConfig = DoorConfig()
    """Where the running job serves its page, metrics and requests."""
    stages: dict[StepName, StepConfig] = {}
    """A graph of steps, instead of one mapper and one reducer."""

    @property
    def is_allocated(self) -> bool:
        """Whether an allocator chooses the nodes of tasks."""
        return self.placement is not None and self.placement.group is None


class _MapReduce(Section):
    """The keys of a job of one mapper and one reducer, beside those that a step has too."""

    input: Input | None = None
    """Where the records come from; a string is the path, a list several. Required without `stages`, unless Python
    passes a table."""
    mapper: Executor | None = None
    """Makes (key, value) pairs from records; null: `key` and `value` name input columns."""
    reducer: Reducing | None = None
    """Folds the values of a key; required without `stages`, except in a job built in Python."""
    key: KeyColumns = "key"
    """Key column of the result; without a mapper also of the input, with a batch mapper also of its batches. A list:
    these columns together are the key; null: all records have one key."""
    parallelism: ParallelismConfig = ParallelismConfig()
    """How many tasks map and reduce."""
    grouping: Grouping = RingOptions()
    """How mappers choose the reducer of a record."""
    balance: Balance = AdaptiveOptions()
    """When and how keys are redistributed; `none` with any grouping but `ring`."""
    output: Outputs = Field(default=[OutputConfig()], json_schema_extra={"default": {"path": None}})
    """Where the result goes; a string is the path, a list several places."""


class JobConfig(StageConfig, _MapReduce, _AnyJob):
    """A job: what to read, how to map and reduce it, and how to check the result."""

    @model_validator(mode="before")
    @classmethod
    def _strategy_is_named(cls, document: Any) -> Any:
        return with_strategy(document)

    def faults(self) -> Faults:
        of_two = "`resources.mappers` and `resources.reducers` go without `stages`: give steps `resources`"
        yield self.stages and (self.resources.mappers or self.resources.reducers), of_two

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
