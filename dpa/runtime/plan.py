"""What the runtime needs to know to run a job, and what it gives back: plain data, no defaults, nothing read from
outside."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import pyarrow as pa

from dpa.errors import ConfigError
from dpa.execution.key_stats import KeyStats
from dpa.execution.mapping import MapTask
from dpa.executors import AnyMapper, AnyReducer, name_of
from dpa.protocol.assembly import BalanceOptions, SignalSettings
from dpa.protocol.metrics import Snapshot
from dpa.routing.groupings.options import GroupingOptions
from dpa.splits import Split, total_rows

STUCK_SECONDS = 60.0


@dataclass(frozen=True)
class RunPlan:
    """One run.

    Attributes:
        splits: the input, handed out in order.
        columns: the input's columns.
        task: what mappers do, and the reducer executor.
        mappers, reducers: how many actors of each kind.
        balance: when to redistribute and how.
        grouping: how mappers choose the reducer of a record.
        signals: how reducers judge their load for a grouping that listens.
        in_flight_records: credit of each mapper.
        slice_records, slice_seconds: how much a reducer takes at a time.
        aggregate_seconds: time from the end of a round of aggregation to the next; None: there are none.
        rounds: the directory in which rounds are published; None publishes none.
        output: an existing directory to which reducers write their share as Parquet; None keeps results in memory.
        key_counts: whether reducers also give back the number of records of every key.
        python_path: directories that the actors add to their module search path.
        slowdown: how many times as long user code takes on each reducer; empty: as long as it takes.
        crowded: numbers of the reducers that share a processor with a busy process.
        stuck_seconds: a task that works on one step for this long says what on, and again after as long.
    """

    splits: tuple[Split, ...]
    columns: pa.Schema
    task: MapTask
    mappers: int
    reducers: int
    balance: BalanceOptions
    grouping: GroupingOptions
    signals: SignalSettings
    in_flight_records: int
    slice_records: int
    slice_seconds: float
    aggregate_seconds: float | None = None
    rounds: str | None = None
    output: str | None = None
    key_counts: bool = False
    python_path: tuple[str, ...] = ()
    slowdown: tuple[float, ...] = ()
    crowded: tuple[int, ...] = ()
    stuck_seconds: float = STUCK_SECONDS


@dataclass(frozen=True)
class Shipment:
    """A plan on its way to an actor, still pickled: the actor must know where to find the user's modules first.

    Attributes:
        python_path: where to look for them.
        pickled: the plan without its splits, which mappers get one by one.
        rows: how many input rows the splits have.
    """

    python_path: tuple[str, ...]
    pickled: bytes
    rows: int

    @staticmethod
    def pack(plan: RunPlan) -> Shipment:
        """The plan, ready to be sent.

        Raises:
            ConfigError: an executor cannot be pickled.
        """
        from ray import cloudpickle

        try:
            return Shipment(plan.python_path, cloudpickle.dumps(replace(plan, splits=())), total_rows(plan.splits))
        except Exception as error:
            raise ConfigError(
                f"the executors cannot be sent to the actors: {error!r}; keep what they hold picklable"
            ) from None

    def unpack(self) -> RunPlan:
        """The plan, in an actor.

        Raises:
            ConfigError: a module of the user's is not to be found there.
        """
        from ray import cloudpickle

        sys.path += [path for path in self.python_path if path not in sys.path]
        try:
            plan: RunPlan = cloudpickle.loads(self.pickled)
        except ImportError as error:
            hint = "on a cluster, name its directory in `ray.runtime_env.working_dir`"
            raise ConfigError(f"an executor's module is missing where the actors run: {error}; {hint}") from None
        return plan


def require_picklable(executor: AnyMapper | AnyReducer) -> None:
    """Check, before Ray is there, that an executor can be sent to actors.

    Raises:
        ConfigError: it cannot be pickled.
    """
    # What Ray reads of the environment it reads when it is imported, which is too early here. Spark brings the same
    # library; but only Ray's copy can pickle Ray's own handles, which nobody has who has not imported it.
    if "ray" in sys.modules:
        from ray import cloudpickle
    else:
        from pyspark import cloudpickle
    try:
        cloudpickle.dumps(executor)
    except Exception as error:
        why = f"{error!r}; keep what it holds picklable"
        raise ConfigError(f"{name_of(executor)} cannot be sent to the actors: {why}") from None


@dataclass(frozen=True, eq=False)
class ReducerOutput:
    """One reducer's share of the result.

    Attributes:
        rows: keys in it.
        states: the most keys that it held before other reducers' states were folded in.
        file: name of the Parquet file in the plan's output directory, or None.
        table: the result itself if it was kept in memory, or None.
        stats: how often its keys came.
        key_counts: table of `key` and `records` (processed records), if the plan asks for it.
        peak_memory: the largest resident set of the actor's process, in bytes.
    """

    rows: int
    states: int
    file: str | None
    table: pa.Table | None
    stats: KeyStats
    key_counts: pa.Table | None
    peak_memory: int


@dataclass(frozen=True)
class Times:
    """Wall-clock moments of a run, in seconds since the epoch."""

    started: float
    stream_started: float
    first_record: float | None
    stream_ended: float
    merged: float


@dataclass(frozen=True)
class RunOutcome:
    """What a run gives back: every reducer's share, the last statistics, the moments, and the mappers' peak memory."""

    outputs: tuple[ReducerOutput, ...]
    snapshot: Snapshot
    times: Times
    mapper_peak_memory: tuple[int, ...]
