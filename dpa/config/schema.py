"""The schema of a job file: its sections and keys, their types and defaults."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from dpa.balance.options import AdaptiveOptions
from dpa.config.inputs import InputConfig, SampleConfig
from dpa.config.placement import PlacementConfig
from dpa.config.section import Section, SparkText
from dpa.config.sinks import OutputConfig, ReferenceConfig
from dpa.config.stage import (
    AggregationConfig,
    Balance,
    Columns,
    Elastic,
    Executor,
    Grouping,
    KeyColumns,
    Schema,
    Tasks,
    TestingConfig,
)
from dpa.config.stages import StepConfig, StepName
from dpa.config.variants import Plain, with_strategy
from dpa.protocol.graph import Consistency
from dpa.protocol.plan import JobLimits
from dpa.routing.groupings.options import RingOptions

OF_ANY_JOB = {"name", "seed", "python_path", "limits", "stages", "placement", "spark", "ray"}
"""The keys that go with `stages`; all others are of a job of one mapper and one reducer."""

_NAME = r"^[A-Za-z0-9_.-]+$"


def _as_name(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(_NAME, value):
        raise ValueError(f"the name of a job has ASCII letters, digits, `_`, `.` and `-`, not {json.dumps(value)}")
    return value


JobName: TypeAlias = Annotated[str, Field(pattern=_NAME), BeforeValidator(_as_name)]


class ParallelismConfig(Section):
    """How many tasks each stage has."""

    mappers: Tasks = 2
    """Mapper tasks."""
    reducers: Tasks = 4
    """Reducer tasks."""


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

    name: JobName = "job"
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
    schema_: Schema | None = Field(default=None, alias="schema")
    """The columns of the result by name, with their Arrow types: what the reducer gives is checked against them, and an
    empty result has them. Key columns may be left out."""
    parallelism: ParallelismConfig = ParallelismConfig()
    grouping: Grouping = RingOptions()
    """How mappers choose the reducer of each record."""
    balance: Balance = AdaptiveOptions()
    """When load moves between reducers, and how; `none` beside any other grouping than `ring`."""
    consistency: Consistency = "merge"
    """What becomes of the state of a key that moves. `merge`: it stays, and is merged with others of the key in the
    end. `migrate`: it moves with the key, so it need not be merged, and records of a key keep their order."""
    elastic: Elastic | None = None
    """Have more tasks while all are busy, and fewer while they are idle; null: their number stays."""
    aggregation: AggregationConfig | None = None
    """Fold partial states while the stream runs, and publish partial results."""
    limits: Annotated[JobLimits, Plain(JobLimits)] = JobLimits()
    testing: TestingConfig = TestingConfig()
    output: OutputConfig = OutputConfig()
    reference: ReferenceConfig | None = None
    stages: dict[StepName, StepConfig] = {}
    """A graph of steps, instead of the one mapper and the one reducer that the keys above describe."""
    placement: PlacementConfig | None = None
    """Which node runs which task; without it Ray spreads them."""
    spark: SparkConfig = SparkConfig()
    ray: RayConfig = RayConfig()

    @model_validator(mode="before")
    @classmethod
    def _strategy_is_named(cls, document: Any) -> Any:
        return with_strategy(document)

    def resolved(self) -> dict[str, Any]:
        """The configuration as a document: with all defaults, and for steps with what differs from them."""
        if not self.stages:
            return self.model_dump(exclude={"stages"}, by_alias=True)
        document = self.model_dump(include=OF_ANY_JOB, by_alias=True)
        return {**document, "stages": {name: step.resolved() for name, step in self.stages.items()}}


def json_schema() -> dict[str, Any]:
    """The JSON schema of a job file, for editors."""
    return JobConfig.model_json_schema()
