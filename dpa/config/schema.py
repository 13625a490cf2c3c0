"""The schema of a job file: its sections and keys, their types and defaults."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dpa.protocol.assembly import BalanceOptions, SignalSettings
from dpa.routing.groupings.options import RING, GroupingOptions
from dpa.routing.keys import KeyName


class Section(BaseModel):
    """Base of every section of a job file: unknown keys are refused, values are never coerced across kinds."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, strict=True)


def _as_text(value: Any) -> Any:
    """A true, false or number of YAML as Spark's options are written: `true`, `4`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


SparkText = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | bool | int | float)]
"""A value of one of Spark's options, which are all texts."""


class ViewConfig(Section):
    """A table that an SQL query may name."""

    format: Literal["parquet", "csv", "json", "text"]
    """How the files are encoded."""
    path: str | list[str]
    """File, directory or glob; relative paths start at the job file's directory."""
    options: dict[str, SparkText] = {}
    """Options of Spark's reader."""


class InputConfig(Section):
    """Where the records come from. Parquet without `select`, `where` or `sample` is read in place; the rest is
    staged."""

    format: Literal["parquet", "csv", "json", "text", "sql", "jdbc", "table", "records"]
    """`parquet`, `csv`, `json`, `text`: files. `sql`: a query over `views`. `jdbc`: see `options`. `table`: a catalog
    table. `records`: inline."""
    path: str | list[str] | None = None
    """Files, directories or globs, for file formats. `${python.stdlib}` and `${env.NAME}` are replaced."""
    glob: str | None = None
    """Only files whose name matches, in a directory tree, such as `*.py`."""
    recursive: bool = False
    """Whether to descend into sub-directories."""
    options: dict[str, SparkText] = {}
    """Options of Spark's reader: `header` for CSV; `url`, `dbtable`, `driver` for JDBC."""
    query: str | None = None
    """The query, for `format: sql`."""
    views: dict[str, ViewConfig] = {}
    """The tables that `query` names."""
    table: str | None = None
    """The catalog table, for `format: table`."""
    records: list[Any] | None = None
    """The records themselves: scalars become the column `value`, mappings become rows."""
    select: list[str] = []
    """Spark SQL expressions to keep, such as `lower(word) AS word`; all columns if empty."""
    where: str | None = None
    """A Spark SQL predicate: which rows to keep."""

    @model_validator(mode="after")
    def _has_what_its_format_needs(self) -> InputConfig:
        need = {"sql": "query", "table": "table", "records": "records", "jdbc": "options"}.get(self.format, "path")
        if not getattr(self, need) and not (need == "records" and self.records == []):
            raise ValueError(f"format {self.format!r} needs the key {need!r}")
        if self.format == "records" and (self.select or self.where):
            raise ValueError("`select` and `where` are Spark's; filter inline records in the job file itself")
        return self


class SampleConfig(Section):
    """Work on a sample instead of the whole input; the reference then sees the same sample."""

    fraction: float = Field(gt=0, le=1)
    """Share of the rows to keep. Without `by` each row is drawn on its own, so the number of rows varies."""
    by: str | None = None
    """Stratify: keep the fraction of the rows of each value of this column, null too. Costs Spark a shuffle and a
    sort."""
    seed: int | None = None
    """Seed of the draw; the job's seed if absent."""


class ExecutorConfig(Section):
    """A mapper or reducer named in a job file."""

    use: str
    """`package.module:Name`, a class or a function; or the name of a ready-made reducer such as `count`."""
    args: dict[str, Any] = {}
    """Keyword arguments for the class."""


def _as_executor(value: Any) -> Any:
    return {"use": value} if isinstance(value, str) else value


def _as_grouping(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _as_columns(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_key(value: Any) -> KeyName:
    """A key column's name, or the names of two or more: a list of one is that name."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"a key is the name of a column, or a list of names, not {json.dumps(value, default=str)}")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"the column {twice[0]!r} is named more than once")
    return names[0] if len(names) == 1 else tuple(names)


Executor = Annotated[ExecutorConfig, BeforeValidator(_as_executor, json_schema_input_type=str | ExecutorConfig)]
Columns = Annotated[list[str], BeforeValidator(_as_columns, json_schema_input_type=str | list[str])]


class ParallelismConfig(Section):
    """How many tasks of each kind."""

    mappers: int = Field(default=2, ge=1, le=256)
    """Mapper actors."""
    reducers: int = Field(default=4, ge=1, le=256)
    """Reducer actors."""
    slowdown: list[Annotated[float, Field(ge=1, allow_inf_nan=False)]] = []
    """For experiments: how many times as long user code takes on each reducer, by number; they sleep the rest."""
    crowded: list[Annotated[int, Field(ge=0)]] = []
    """For experiments: numbers of reducers that share one processor with a busy process. Linux alone."""

    @model_validator(mode="after")
    def _slow_reducers_exist(self) -> ParallelismConfig:
        if self.slowdown and len(self.slowdown) != self.reducers:
            given = f"{len(self.slowdown)} for {self.reducers} reducers"
            raise ValueError(f"slowdown needs a factor for each reducer, or none at all, not {given}")
        for number in self.crowded:
            if number >= self.reducers:
                raise ValueError(f"crowded names reducer {number}, and the last one is {self.reducers - 1}")
            if self.crowded.count(number) > 1:
                raise ValueError(f"crowded names reducer {number} more than once")
        return self


def _names_tokens(token_format: str) -> bool:
    """Whether a format gives every token of every node a name of its own."""
    try:
        pairs = [(1, 23), (12, 3), (12, 33), (1, 22)]
        return len({token_format.format(node=node, token=token) for node, token in pairs}) == len(pairs)
    except (KeyError, IndexError, ValueError, AttributeError):
        return False


_BALANCE = BalanceOptions()


_GROUPING, _SIGNALS = GroupingOptions(), SignalSettings()


class GroupingConfig(Section):
    """How mappers choose the reducer of a record; `grouping: key` is short for `grouping: {kind: key}`."""

    kind: Literal[
        "ring",
        "key",
        "shuffle",
        "partial_key",
        "two_random",
        "bounded_load",
        "random_choices",
        "d_choices",
        "w_choices",
        "weighted_w_choices",
        "consistent",
    ] = "ring"
    """See docs/groupings.md. All but `ring` and `key` send records of one key to several reducers, so the reducer needs
    `merge`. `balance` is about `ring` alone."""
    epsilon: float = Field(default=_GROUPING.epsilon, gt=0)
    """For `bounded_load`, `random_choices` and `consistent`: how far above the average a reducer or virtual worker may
    be loaded, as a share of it."""
    virtual_workers: int = Field(default=_GROUPING.virtual_workers, ge=1, le=10_000)
    """For `consistent`: virtual workers that each reducer starts with."""
    proportional: bool = _GROUPING.proportional
    """For `consistent`: whether all virtual workers that are due move at once; else, as in the paper, one a signal."""
    pooled: bool = _GROUPING.pooled
    """For `consistent`: whether a key that finds its virtual worker full goes to another one of the same reducer, if
    that has room; else, as in the paper, to one at random. Fewer copies."""
    slot_seconds: float = Field(default=_SIGNALS.slot_seconds, ge=0.01)
    """For `consistent` and `weighted_w_choices`: how often a reducer judges its load."""
    theta_busy: float = Field(default=_SIGNALS.theta_busy, gt=0)
    """For `consistent` without `proportional`: utilisation above which a reducer wants less."""
    theta_idle: float = Field(default=_SIGNALS.theta_idle, ge=0)
    """For `consistent` without `proportional`: utilisation below which a reducer wants more."""
    utilisation: Literal["queue", "busy", "demand"] = _SIGNALS.utilisation
    """For `consistent`: `queue`: the mean queue by its fair share of all records in flight. `busy`: the part of the
    time spent in user code. `demand`: the work that came by the work that can be done, which may exceed 1."""

    @model_validator(mode="after")
    def _settings_go_together(self) -> GroupingConfig:
        if self.theta_idle >= self.theta_busy:
            raise ValueError(f"theta_idle ({self.theta_idle}) must be below theta_busy ({self.theta_busy})")
        if self.proportional and self.utilisation != "demand":
            why = f"{self.utilisation!r} does not tell how much too much a reducer has"
            raise ValueError(f"proportional needs utilisation 'demand': {why}")
        return self


class AdaptiveConfig(Section):
    """How the strategy `adaptive` measures load and plans."""

    report_seconds: float = Field(default=_BALANCE.adaptive.report_seconds, gt=0)
    """How often each reducer reports its load by token and its hot keys; a multiple of a quarter of a second."""
    tolerance: float = Field(default=_BALANCE.adaptive.tolerance, gt=0)
    """How far above the mean a plan may leave a reducer, as a share of it."""
    horizon: float = Field(default=_BALANCE.adaptive.horizon, ge=0)
    """A plan levels what is queued and what will arrive in so many seconds."""
    least_gain: float = Field(default=_BALANCE.adaptive.least_gain, ge=0)
    """A plan is carried out only if the most loaded reducer will be done so many seconds earlier."""
    charge: float = Field(default=_BALANCE.adaptive.charge, ge=0)
    """What moving the whole load would cost, in units of the mean reducer's work: a plan must gain more."""
    most_moved: float = Field(default=_BALANCE.adaptive.most_moved, gt=0, le=1)
    """The most of the load that one plan may take from its owners, as a share. Spreading a hot key takes nothing away,
    and does not count."""
    half_life: float = Field(default=_BALANCE.adaptive.half_life, gt=0)
    """Seconds after which an arrival counts half in what a reducer measures."""
    hot_keys: int = Field(default=_BALANCE.adaptive.hot_keys, ge=1, le=1000)
    """How many keys a report names at most."""


class BalanceConfig(Section):
    """When to redistribute, and how (DPA paper, section 4)."""

    strategy: Literal["none", "halving", "doubling", "adaptive"] = "adaptive"
    """`none`; `halving`: the overloaded reducer gives up half of its tokens; `doubling`: all others double theirs;
    `adaptive`: what is measured to be too much moves, and a key that is too hot is spread."""
    trigger: Literal["queue_length", "queueing_delay", "both"] | None = None
    """What makes a reducer overloaded: its queue in records, in seconds, or both. By default `queue_length`, as in the
    paper, and `queueing_delay` for `adaptive`."""
    tau: float = Field(default=_BALANCE.tau, ge=0)
    """Sensitivity: act when the longest queue exceeds the second longest by more than this share (equation 1)."""
    max_rounds: int = Field(default=_BALANCE.max_rounds, ge=0)
    """Redistributions that one reducer's load may cause."""
    least_queue: int = Field(default=_BALANCE.least_queue, ge=0)
    """Queue length, in records, below which no queue counts as overloaded. Lower it where a record takes long; the
    paper: 1."""
    least_delay: float = Field(default=_BALANCE.least_delay, ge=0)
    """The same in seconds of work, where the trigger is `queueing_delay` or `both`."""
    report_every: int = Field(default=_BALANCE.report_every, ge=1)
    """A reducer reports its queue length every so many dequeued records."""
    report_seconds: float | None = Field(default=_BALANCE.report_seconds, gt=0)
    """It also reports after about so many seconds while records are queued, however few it got through; null: never."""
    report_when_idle: bool = _BALANCE.report_when_idle
    """Whether a reducer also reports when its queue runs empty. Off in the paper's runs: there an old report stays."""
    check_seconds: float = Field(default=_BALANCE.check_seconds, ge=0)
    """Least time between two looks at the trigger, and before the first; 0 looks at every report, as the paper's code
    does."""
    act_on_old_reports: bool = _BALANCE.act_on_old_reports
    """Whether to act on a queue length measured under an older table, as the paper's code does."""
    initial_tokens: int | None = Field(default=None, ge=1)
    """Tokens a reducer starts with; by default 64, or 1 for `doubling`. A power of two for `halving`."""
    token_format: str = _BALANCE.token_format
    """How a token is named before it is hashed; must contain `{node}` and `{token}`."""
    hash_seed: int = Field(default=_BALANCE.hash_seed, ge=0, le=2**32 - 1)
    """Seed of the Murmur3 hash of tokens and keys."""
    forwarding: Literal["eager", "lazy"] = "eager"
    """`eager`: queued records that moved are forwarded when the table comes. `lazy`: when they reach the head, as the
    paper does."""
    adaptive: AdaptiveConfig = AdaptiveConfig()
    """For the strategy `adaptive` alone."""

    @model_validator(mode="after")
    def _tokens_suit_the_strategy(self) -> BalanceConfig:
        if not _names_tokens(self.token_format):
            raise ValueError("token_format must contain {node} and {token}, and no other placeholder")
        tokens = self.initial_tokens
        if self.strategy == "halving" and tokens is not None and tokens & (tokens - 1):
            raise ValueError(f"halving needs a power of two as initial_tokens, not {tokens}")
        return self


class AggregationConfig(Section):
    """Results so far while the stream runs: partial states are folded every few seconds (consistent grouping paper,
    section V-C)."""

    seconds: float = Field(gt=0)
    """A round begins so many seconds after the last one ended; a multiple of a quarter of a second."""
    path: str | None = None
    """Directory in which the newest complete round is found as Parquet, relative to the working directory; without it
    states are folded, and nothing is published."""


class LimitsConfig(Section):
    """Bounds on memory and on how long anything goes without looking up."""

    batch_records: int = Field(default=262_144, ge=1)
    """Most records in one pushed batch."""
    in_flight_records: int = Field(default=1_048_576, ge=1)
    """Most records of one mapper that may be emitted and not yet processed; queues are bounded by mappers times this.
    In records, not bytes: lower it, and `batch_records`, where values are wide."""
    slice_records: int = Field(default=262_144, ge=1)
    """Most records a reducer processes before it looks at its messages again."""
    slice_seconds: float = Field(default=0.1, gt=0)
    """About how long such a slice may take: the reducer takes fewer records at a time when they are slow."""
    split_records: int = Field(default=1_000_000, ge=1)
    """About how many input rows a mapper is handed at a time."""

    @model_validator(mode="after")
    def _a_batch_fits_in_flight(self) -> LimitsConfig:
        if self.batch_records > self.in_flight_records:
            raise ValueError(
                f"batch_records ({self.batch_records}) must not exceed in_flight_records ({self.in_flight_records})"
            )
        return self


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
    key: Annotated[KeyName, BeforeValidator(_as_key, json_schema_input_type=str | list[str])] = "key"
    """Name of the key column, or the names of the columns that together are the key."""
    value: Columns | None = None
    """Without a mapper: the input columns that the reducer gets; all but the key if absent."""
    parallelism: ParallelismConfig = ParallelismConfig()
    grouping: Annotated[GroupingConfig, BeforeValidator(_as_grouping, json_schema_input_type=str | GroupingConfig)] = (
        GroupingConfig()
    )
    """How mappers choose the reducer of a record."""
    balance: BalanceConfig = BalanceConfig()
    aggregation: AggregationConfig | None = None
    """Fold partial states while the stream runs, and publish results so far."""
    limits: LimitsConfig = LimitsConfig()
    output: OutputConfig = OutputConfig()
    reference: ReferenceConfig | None = None
    spark: SparkConfig = SparkConfig()
    ray: RayConfig = RayConfig()

    @model_validator(mode="before")
    @classmethod
    def _balance_only_a_ring(cls, document: Any) -> Any:
        """Without a ring there is nothing to balance, so the strategy is `none` unless another one is asked for."""
        grouping = document.get("grouping")
        section = grouping.model_dump() if isinstance(grouping, GroupingConfig) else grouping
        kind = section.get("kind") if isinstance(section, dict) else section
        balance = document.get("balance", {})
        if isinstance(balance, BalanceConfig):
            balance = balance.model_dump(exclude_unset=True)
        if kind in (None, RING) or not isinstance(balance, dict):
            return document
        return {**document, "balance": {"strategy": "none", **balance}}


def json_schema() -> dict[str, Any]:
    """The JSON schema of a job file, for editors."""
    return JobConfig.model_json_schema()
