"""The schema of a job file: its sections and keys, their types and defaults."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from dpa.balance.options import AdaptiveOptions
from dpa.config.inputs import InputConfig, SampleConfig
from dpa.config.section import Section, SparkText
from dpa.config.stage import (
    AggregationConfig,
    Balance,
    Columns,
    Executor,
    Grouping,
    KeyColumns,
    StageLimits,
    Tasks,
    TestingConfig,
)
from dpa.config.variants import with_strategy
from dpa.routing.groupings.options import RingOptions


class ParallelismConfig(Section):
    """How many tasks each stage has."""

    mappers: Tasks = 2
    """Mapper tasks."""
    reducers: Tasks = 4
    """Reducer tasks."""


class LimitsConfig(StageLimits):
    """Bounds on memory, and on how long a task works before it reads its messages."""

    split_records: int = Field(default=1_000_000, ge=1)
    """About how many input rows a mapper is given at a time."""


class OutputConfig(Section):
    """Where results go. Written aside and put in place when complete; never half a result."""

    path: str | None = None
    """Directory for Parquet results, relative to the working directory; without it results stay in memory."""
    mode: Literal["error", "overwrite"] = "error"
    """What to do if the directory exists already and is not empty; `overwrite` replaces the result of an earlier job,
    and nothing else."""


class ReferenceConfig(Section):
    """What Spark computes on the same input, to check the result against."""

    sql: str | None = None
    """A query over the view `input`; its columns must be named as the result's."""
    function: str | None = None
    """`package.module:name` of a function DataFrame -> DataFrame, instead of `sql`."""
    tolerance: float = Field(default=0.0, ge=0)
    """Greatest relative difference of numbers that still counts as equal; 0 is exact."""
    baseline: bool = True
    """Whether to compute the skew S of Spark's own hash partitioning on the same records."""

    @model_validator(mode="after")
    def _one_of_both(self) -> ReferenceConfig:
        if self.sql and self.function:
            raise ValueError("give `sql` or `function`, not both")
        return self


class SparkConfig(Section):
    """The Spark session, if one is needed at all."""

    master: str = "local[*]"
    """Spark master URL."""
    conf: dict[str, SparkText] = {}
    """Further Spark configuration."""
    stage_dir: str | None = None
    """Where inputs that are not Parquet are staged; on a cluster a directory that all machines share. Default:
    temporary."""


class RayConfig(Section):
    """The Ray cluster."""

    address: str | None = None
    """Address of a running cluster (`auto`, `host:port`, `ray://host:port`); without it Ray is started inside the
    job."""
    runtime_env: dict[str, Any] = {}
    """Ray runtime environment for the actors; a cluster needs `working_dir` or `py_modules` to find your executors."""
    object_store_mb: int = Field(default=1024, ge=80)
    """Size of the embedded object store, in MiB."""


class JobConfig(Section):
    """A job: what to read, how to map and reduce it, and how to check the result."""

    name: str = Field(default="job", pattern=r"^[A-Za-z0-9_.-]+$")
    """Name of the job, used in reports and file names."""
    seed: int = 0
    """Seed of everything random: sampling, generated inputs."""
    python_path: list[str] = []
    """Directories, relative to the job file, in which executors are looked up besides the job file's own and the
    working directory."""
    input: InputConfig | None = None
    """Where the records come from; only a job built in Python, with a table of its own, may leave it out."""
    sample: SampleConfig | None = None
    """Work on a sample of the input."""
    mapper: Executor | None = None
    """What makes (key, value) pairs of records; without it `key` and `value` name input columns."""
    reducer: Executor | None = None
    """What folds the values of a key; only a job built in Python may leave it out."""
    combiner: bool = False
    """Whether mappers fold equal keys of a batch first; needs a reducer that can merge."""
    key: KeyColumns = "key"
    """Name of the key column, or the names of the columns that together are the key."""
    value: Columns | None = None
    """Without a mapper: the input columns that the reducer gets; all but the key if absent."""
    parallelism: ParallelismConfig = ParallelismConfig()
    grouping: Grouping = RingOptions()
    """How mappers choose the reducer of each record."""
    balance: Balance = AdaptiveOptions()
    """When load moves between reducers, and how; `none` beside any other grouping than `ring`."""
    aggregation: AggregationConfig | None = None
    """Fold partial states while the stream runs, and publish partial results."""
    limits: LimitsConfig = LimitsConfig()
    testing: TestingConfig = TestingConfig()
    output: OutputConfig = OutputConfig()
    reference: ReferenceConfig | None = None
    spark: SparkConfig = SparkConfig()
    ray: RayConfig = RayConfig()

    @model_validator(mode="before")
    @classmethod
    def _strategy_is_named(cls, document: Any) -> Any:
        return with_strategy(document)

    @field_validator("testing")
    @classmethod
    def _slow_reducers_exist(cls, testing: TestingConfig, fields: ValidationInfo) -> TestingConfig:
        if "parallelism" in fields.data:
            testing.require_tasks(fields.data["parallelism"].reducers)
        return testing


def json_schema() -> dict[str, Any]:
    """The JSON schema of a job file, for editors."""
    return JobConfig.model_json_schema()
