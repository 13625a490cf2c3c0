"""The keyword arguments of flows and jobs, for type checkers. Made by `python -m experiments.report.option_types`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import polars as pl
import pyarrow as pa
from typing_extensions import Required, TypedDict

from dpa import executors as own
from dpa._streams import Stream

Schema: TypeAlias = pa.Schema | Mapping[str, str | pa.DataType]
Expression: TypeAlias = pl.Expr | str
Expressions: TypeAlias = Expression | Sequence[Expression]
Key: TypeAlias = str | pl.Expr | Sequence[str | pl.Expr] | Callable[[Any], Any] | None

OfRows: TypeAlias = own.BatchMapper | type[own.BatchMapper] | Callable[[Any], Any]
AnyFunction: TypeAlias = str | ExecutorSection | OfRows
AnyMapper: TypeAlias = str | ExecutorSection | own.Mapper | type[own.Mapper] | OfRows
OfValues: TypeAlias = own.Reducer[Any, Any] | own.BatchReducer | type[own.Reducer[Any, Any]] | type[own.BatchReducer]
AnyReducer: TypeAlias = str | ExecutorSection | OfValues | Callable[[Any, Any], Any]
AnyProcess: TypeAlias = str | ExecutorSection | own.Process[Any, Any] | type[own.Process[Any, Any]]

How: TypeAlias = Literal[
    "inner",
    "left",
    "right",
    "full",
    "semi",
    "anti",
    "outer",
    "full_outer",
    "fullouter",
    "left_outer",
    "leftouter",
    "right_outer",
    "rightouter",
    "left_semi",
    "leftsemi",
    "left_anti",
    "leftanti",
]

Mode: TypeAlias = Literal["error", "overwrite", "append"]

Publishes: TypeAlias = Literal["final", "changes", "table"]

class JobLimitsSection(TypedDict, total=False):
    batch_records: int
    in_flight_records: int
    in_flight_mb: int
    queue_seconds: float | None
    quantum_records: int
    quantum_seconds: float
    drain_seconds: float
    split_records: int | None
    start_seconds: float
    patience: float | str | None
    state_mb: int | Literal["auto"] | None
    spill_path: str | None

class NodeSection(TypedDict, total=False):
    processors: float | None
    reserved: float
    megabytes_per_second: float | None

class OnlineSection(TypedDict, total=False):
    policy: Literal["improve", "replan"] | str
    seconds: float

class PlacementSection(TypedDict, total=False):
    group: Literal["pack", "spread", "strict_pack", "strict_spread"] | None
    allocator: Literal["even", "top_down", "top_down_search", "greedy_matching", "greedy_matching_improved"] | str
    profile: str | None
    costs: Mapping[str, float]
    traffic: Mapping[str, Mapping[str, float]]
    nodes: Mapping[str, NodeSection]
    tolerance: float
    divide: bool
    online: OnlineSection | None

class ResourcesSection(TypedDict, total=False):
    cpus: float | None
    memory: str | int
    custom: Mapping[str, float]

class JobResourcesSection(TypedDict, total=False):
    cpus: float | None
    memory: str | int
    custom: Mapping[str, float]
    mappers: ResourcesSection | None
    reducers: ResourcesSection | None

class RecoverySection(TypedDict, total=False):
    attempts: int
    backoff: float | str

class CheckpointSection(TypedDict, total=False):
    path: Required[str]
    every: float | str
    keep: int

class UntilSection(TypedDict, total=False):
    seconds: float | str | None
    records: int | None
    idle: float | str | None

class PublishSection(TypedDict, total=False):
    mode: Required[Literal["final", "changes", "table"]]
    every: float | str

class OutputSection(TypedDict, total=False):
    path: str | None
    format: Literal["parquet", "csv", "json", "delta", "iceberg", "kafka"]
    partition_by: str | list[str]
    single_file: bool
    compression: Literal["snappy", "gzip", "zstd", "none"] | None
    mode: Literal["error", "overwrite", "append"]
    use: str | None
    args: Mapping[str, Any]
    publish: str | PublishSection | None

class SparkSection(TypedDict, total=False):
    master: str
    conf: Mapping[str, str | bool | int | float]
    stage_dir: str | None

class RaySection(TypedDict, total=False):
    address: str | None
    runtime_env: Mapping[str, Any]
    object_store_mb: int

class DoorSection(TypedDict, total=False):
    host: str
    port: int
    certificate: str | None
    key: str | None
    token_file: str | None

class WatchSection(TypedDict, total=False):
    columns: Mapping[str, str] | None
    every: float | str
    settle: float | str

class ViewSection(TypedDict, total=False):
    format: Required[Literal["parquet", "csv", "json", "text"]]
    path: Required[str | list[str]]
    options: Mapping[str, str | bool | int | float]

class TimeSection(TypedDict, total=False):
    column: Required[str]
    by: Literal["event", "processing"]
    unit: Literal["s", "ms", "us"] | None
    out_of_order: float | str | None
    max_ahead: float | str
    idle: float | str

class KafkaSection(TypedDict, total=False):
    servers: Required[str]
    topic: Required[str | list[str]]
    key: Literal["bytes", "string"]
    value: Literal["bytes", "string", "json"]
    columns: Mapping[str, str] | None
    start: Literal["earliest", "latest"]
    every: float | str
    patience: float | str | None
    options: Mapping[str, str | bool | int | float]

class StreamSection(TypedDict, total=False):
    source: Required[str]
    columns: str | None
    every: float | str

class InputSection(TypedDict, total=False):
    format: (
        Literal[
            "parquet",
            "csv",
            "json",
            "text",
            "arrow",
            "sql",
            "jdbc",
            "table",
            "records",
            "generated",
            "feed",
            "kafka",
            "stream",
            "given",
        ]
        | None
    )
    path: str | list[str] | None
    glob: str | None
    recursive: bool
    exclude: list[str]
    allow_missing_columns: bool
    in_place: bool
    columns: Mapping[str, str] | None
    watch: WatchSection | None
    options: Mapping[str, str | bool | int | float]
    query: str | None
    views: Mapping[str, ViewSection]
    table: str | None
    records: list[Any] | None
    select: list[str]
    where: str | None
    use: str | None
    args: Mapping[str, Any]
    time: str | TimeSection | None
    rows: int | None
    seed: int | None
    rate: float | None
    kafka: KafkaSection | None
    stream: StreamSection | None
    padding: int

class ExecutorSection(TypedDict, total=False):
    use: Required[str]
    args: Mapping[str, Any]

class WindowsSection(TypedDict, total=False):
    size: float | str | None
    every: float | str | None
    offset: float | str
    gap: float | str | None
    lateness: float | str

JoinSection = TypedDict(
    "JoinSection",
    {
        "with": Required[str | list[str]],
        "how": Literal["inner", "left", "right", "full", "semi", "anti"],
        "key_by": str | list[str] | None,
        "value": str | list[str] | None,
        "broadcast_mb": float,
    },
    total=False,
)

class TopSection(TypedDict, total=False):
    k: Required[int]
    by: Required[str]
    descending: bool

class SampleSection(TypedDict, total=False):
    fraction: Required[float]
    by: str | None

class ElasticSection(TypedDict, total=False):
    min_tasks: int
    max_tasks: int
    busy: float
    idle: float
    backlog_seconds: float
    seconds: float

class SlowTasksSection(TypedDict, total=False):
    slow_factor: list[float]

class ReferenceSection(TypedDict, total=False):
    sql: str | None
    function: str | None
    tolerance: float
    baseline: bool
    at_end: bool

class RingSection(TypedDict, total=False):
    kind: Literal["ring"]

class KeySection(TypedDict, total=False):
    kind: Required[Literal["key"]]

class ShuffleSection(TypedDict, total=False):
    kind: Required[Literal["shuffle"]]

class PartialKeySection(TypedDict, total=False):
    kind: Required[Literal["partial_key"]]

class RandomChoicesSection(TypedDict, total=False):
    kind: Required[Literal["random_choices"]]
    epsilon: float

class WChoicesSection(TypedDict, total=False):
    kind: Required[Literal["w_choices"]]

class WeightedWChoicesSection(TypedDict, total=False):
    kind: Required[Literal["weighted_w_choices"]]
    slot_seconds: float

class ConsistentSection(TypedDict, total=False):
    kind: Required[Literal["consistent"]]
    slot_seconds: float
    epsilon: float
    virtual_workers: int
    proportional: bool
    pooled: bool
    theta_busy: float
    theta_idle: float
    utilisation: Literal["queue", "busy", "demand"]

class NoBalancingSection(TypedDict, total=False):
    strategy: Required[Literal["none"]]
    initial_tokens: int
    token_format: str
    hash_seed: int

class HalvingSection(TypedDict, total=False):
    strategy: Required[Literal["halving"]]
    initial_tokens: int
    token_format: str
    hash_seed: int
    check_seconds: float
    min_queue: int
    tau: float
    max_rounds: int
    report_every: int
    report_seconds: float | None
    report_when_idle: bool
    act_on_old_reports: bool
    forwarding: Literal["eager", "lazy"]

class DoublingSection(TypedDict, total=False):
    strategy: Required[Literal["doubling"]]
    initial_tokens: int
    token_format: str
    hash_seed: int
    check_seconds: float
    min_queue: int
    tau: float
    max_rounds: int
    report_every: int
    report_seconds: float | None
    report_when_idle: bool
    act_on_old_reports: bool
    forwarding: Literal["eager", "lazy"]

class AdaptiveSection(TypedDict, total=False):
    strategy: Literal["adaptive"]
    initial_tokens: int
    token_format: str
    hash_seed: int
    check_seconds: float
    min_delay: float
    max_imbalance: float
    measure_seconds: float
    tolerance: float
    horizon: float
    min_gain: float
    max_moved: float
    first_table: Literal["sample", "ring"]

class FlowControlSection(TypedDict, total=False):
    batch_records: int
    in_flight_records: int
    in_flight_mb: int
    queue_seconds: float | None
    quantum_records: int
    quantum_seconds: float
    drain_seconds: float

StepSection = TypedDict(
    "StepSection",
    {
        "from": str | list[str] | None,
        "allow_missing_columns": bool,
        "read": str | list[str] | InputSection | None,
        "map": str | ExecutorSection | None,
        "flat_map": str | ExecutorSection | None,
        "filter": str | ExecutorSection | None,
        "with_columns": str | list[str] | Mapping[str, str] | None,
        "select": str | list[str] | Mapping[str, str] | None,
        "drop": str | list[str] | None,
        "rename": Mapping[str, str] | None,
        "explode": str | list[str] | None,
        "unnest": str | list[str] | None,
        "window": Literal["none"] | float | str | WindowsSection | None,
        "key_by": str | list[str] | ExecutorSection | None,
        "reduce": str | ExecutorSection | None,
        "agg": Mapping[str, str] | None,
        "process": str | ExecutorSection | None,
        "join": JoinSection | None,
        "top_k": TopSection | None,
        "sample": SampleSection | None,
        "value": str | list[str] | None,
        "schema": Schema | None,
        "combiner": Literal["auto"] | bool,
        "consistency": Literal["merge", "migrate"],
        "elastic": ElasticSection | None,
        "testing": SlowTasksSection,
        "reference": str | ReferenceSection | None,
        "parallelism": int | None,
        "grouping": Grouping | None,
        "balance": Balance | None,
        "resources": ResourcesSection | None,
        "limits": FlowControlSection | None,
        "on_error": Literal["fail", "dead_letter", "skip"] | None,
        "write": str | OutputSection | list[str | OutputSection] | None,
    },
    total=False,
)

class ParallelismSection(TypedDict, total=False):
    mappers: int
    reducers: int

Grouping: TypeAlias = (
    Literal["ring", "key", "shuffle", "partial_key", "random_choices", "w_choices", "weighted_w_choices", "consistent"]
    | RingSection
    | KeySection
    | ShuffleSection
    | PartialKeySection
    | RandomChoicesSection
    | WChoicesSection
    | WeightedWChoicesSection
    | ConsistentSection
)
Balance: TypeAlias = (
    Literal["none", "halving", "doubling", "adaptive"]
    | NoBalancingSection
    | HalvingSection
    | DoublingSection
    | AdaptiveSection
)

class Job(TypedDict, total=False):
    name: str
    seed: int
    python_path: list[str]
    limits: JobLimitsSection
    placement: PlacementSection | None
    resources: JobResourcesSection
    recovery: RecoverySection
    checkpoint: CheckpointSection | None
    epoch_log: str | None
    until: UntilSection
    on_error: Literal["fail", "dead_letter", "skip"]
    max_errors: int | str | None
    dead_letters: str | OutputSection | None
    spark: SparkSection
    ray: RaySection
    door: DoorSection
    stages: Mapping[str, StepSection]
    key: str | list[str] | None
    parallelism: ParallelismSection
    grouping: Grouping | None
    balance: Balance | None
    output: str | OutputSection | list[str | OutputSection]
    sample: SampleSection | None
    value: str | list[str] | None
    schema: Schema | None
    combiner: Literal["auto"] | bool
    consistency: Literal["merge", "migrate"]
    elastic: ElasticSection | None
    testing: SlowTasksSection
    reference: str | ReferenceSection | None

class Flow(TypedDict, total=False):
    seed: int
    python_path: list[str]
    limits: JobLimitsSection
    placement: PlacementSection | None
    resources: JobResourcesSection
    recovery: RecoverySection
    checkpoint: CheckpointSection | None
    epoch_log: str | None
    until: UntilSection
    on_error: Literal["fail", "dead_letter", "skip"]
    max_errors: int | str | None
    dead_letters: str | OutputSection | None
    spark: SparkSection
    ray: RaySection
    door: DoorSection

class Read(TypedDict, total=False):
    parallelism: int | None
    on_error: Literal["fail", "dead_letter", "skip"] | None
    sample: SampleSection | None
    schema: Schema | None
    format: (
        Literal[
            "parquet",
            "csv",
            "json",
            "text",
            "arrow",
            "sql",
            "jdbc",
            "table",
            "records",
            "generated",
            "feed",
            "kafka",
            "stream",
            "given",
        ]
        | None
    )
    glob: str | None
    recursive: bool
    exclude: list[str]
    watch: WatchSection | None
    in_place: bool
    options: Mapping[str, str | bool | int | float]
    select: list[str]
    where: str | None
    columns: Mapping[str, str] | None
    allow_missing_columns: bool

class Write(TypedDict, total=False):
    format: Literal["parquet", "csv", "json", "delta", "iceberg", "kafka"]
    partition_by: str | list[str]
    single_file: bool
    compression: Literal["snappy", "gzip", "zstd", "none"] | None
    args: Mapping[str, Any]
    publish: str | PublishSection | None

class Reference(TypedDict, total=False):
    function: str | None
    tolerance: float
    baseline: bool
    at_end: bool

class Union(TypedDict, total=False):
    elastic: ElasticSection | None
    testing: SlowTasksSection
    reference: str | ReferenceSection | None
    parallelism: int | None
    grouping: Grouping | None
    balance: Balance | None
    resources: ResourcesSection | None
    limits: FlowControlSection | None
    write: str | OutputSection | list[str | OutputSection] | None

class Map(TypedDict, total=False):
    schema: Schema | None
    elastic: ElasticSection | None
    testing: SlowTasksSection
    reference: str | ReferenceSection | None
    parallelism: int | None
    grouping: Grouping | None
    balance: Balance | None
    resources: ResourcesSection | None
    limits: FlowControlSection | None
    on_error: Literal["fail", "dead_letter", "skip"] | None
    write: str | OutputSection | list[str | OutputSection] | None

class Filter(TypedDict, total=False):
    elastic: ElasticSection | None
    testing: SlowTasksSection
    reference: str | ReferenceSection | None
    parallelism: int | None
    grouping: Grouping | None
    balance: Balance | None
    resources: ResourcesSection | None
    limits: FlowControlSection | None
    on_error: Literal["fail", "dead_letter", "skip"] | None
    write: str | OutputSection | list[str | OutputSection] | None

class Reduce(TypedDict, total=False):
    schema: Schema | None
    combiner: Literal["auto"] | bool
    consistency: Literal["merge", "migrate"]
    elastic: ElasticSection | None
    testing: SlowTasksSection
    reference: str | ReferenceSection | None
    parallelism: int | None
    grouping: Grouping | None
    balance: Balance | None
    resources: ResourcesSection | None
    limits: FlowControlSection | None
    on_error: Literal["fail", "dead_letter", "skip"] | None
    write: str | OutputSection | list[str | OutputSection] | None

class Process(TypedDict, total=False):
    schema: Schema | None
    consistency: Literal["merge", "migrate"]
    elastic: ElasticSection | None
    testing: SlowTasksSection
    reference: str | ReferenceSection | None
    parallelism: int | None
    grouping: Grouping | None
    balance: Balance | None
    resources: ResourcesSection | None
    limits: FlowControlSection | None
    on_error: Literal["fail", "dead_letter", "skip"] | None
    write: str | OutputSection | list[str | OutputSection] | None

class Join(TypedDict, total=False):
    consistency: Literal["merge", "migrate"]
    elastic: ElasticSection | None
    testing: SlowTasksSection
    reference: str | ReferenceSection | None
    parallelism: int | None
    grouping: Grouping | None
    balance: Balance | None
    resources: ResourcesSection | None
    limits: FlowControlSection | None
    write: str | OutputSection | list[str | OutputSection] | None

class TopK(TypedDict, total=False):
    schema: Schema | None
    consistency: Literal["merge", "migrate"]
    elastic: ElasticSection | None
    testing: SlowTasksSection
    reference: str | ReferenceSection | None
    parallelism: int | None
    grouping: Grouping | None
    balance: Balance | None
    resources: ResourcesSection | None
    limits: FlowControlSection | None
    on_error: Literal["fail", "dead_letter", "skip"] | None
    write: str | OutputSection | list[str | OutputSection] | None

class AggCall(Protocol):
    def __call__(
        self,
        *aggregates: Expressions,
        name: str | None = ...,
        schema: Schema | None = ...,
        combiner: Literal["auto"] | bool = ...,
        consistency: Literal["merge", "migrate"] = ...,
        elastic: ElasticSection | None = ...,
        testing: SlowTasksSection = ...,
        reference: str | ReferenceSection | None = ...,
        parallelism: int | None = ...,
        grouping: Grouping | None = ...,
        balance: Balance | None = ...,
        resources: ResourcesSection | None = ...,
        limits: FlowControlSection | None = ...,
        on_error: Literal["fail", "dead_letter", "skip"] | None = ...,
        write: str | OutputSection | list[str | OutputSection] | None = ...,
        **named: Expression,
    ) -> Stream: ...
