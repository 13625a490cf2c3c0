"""Progress, and the end of a stage: tasks to the coordinator, this to the load balancer and to tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from dpa.execution.schemas import ShareSchema
from dpa.measure.latency import LatencySketch
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.metrics import TaskStats
from dpa.protocol.wire.use import TaskUse
from dpa.routing.table import RoutingTable
from dpa.tolerance import Failed


@dataclass(frozen=True)
class RecordsFailed:
    """Records of a task on which user code has failed, and which are left out. `sender`, `edge`, `block`: of records
    that the task received, who sent them, on which edge, in which of its blocks."""

    failed: Failed
    sender: Address | None = None
    edge: int | None = None
    block: int | None = None


@dataclass(frozen=True)
class Progress(Message):
    """A task's statistics; `done` once it has emitted its last record and, where its stage has a sink, written its
    share. `use`: what the task has used so far, about once a second. `failed`: on what user code has just failed, said
    before the end of a cut or of the stage that it belongs to. `latency`: from source to processed, of the records
    since it was last given, about once a second."""

    stats: TaskStats
    done: bool = False
    use: TaskUse | None = field(default=None, repr=False)
    failed: RecordsFailed | None = None
    latency: LatencySketch | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Drain(Message):
    """All senders are done: report statistics whenever the queue is empty."""


@dataclass(frozen=True)
class Freeze(Message):
    """Publish no more tables of a stage, but for a `Thaw`."""

    stage: str


@dataclass(frozen=True, eq=False)
class LastTable(Message):
    """The load balancer's answer to `Freeze`: the stage's newest table, which all tasks have settled. `rounds`:
    redistributions that each task's load has caused, where the policy counts them."""

    stage: str
    table: RoutingTable
    rounds: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Finished(Message):
    """A task has finished its share of the stage's result, and waits for the schema that all shares will have.

    Attributes:
        latency: from source to processed, of all records that it processed.
        stage_latency: from emitted to processed, of the same records.
        schema: the columns of its share; None if the share is empty.
        initial_load: of the processed records, how many each task would have had by the plain ring; shape
            (tasks,), or empty where that is not known.
    """

    stats: TaskStats
    latency: LatencySketch
    stage_latency: LatencySketch
    schema: ShareSchema | None
    initial_load: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Deliver(Message, Instruction):
    """Operator: bring the share into this schema, which all shares have, write it if the stage has a sink, and emit it
    where stages follow. None if all shares are empty: then the one that `is_first` writes the columns. `epoch`: the
    last one, that it ends. What the task has its user code do; answered by `WriteDone`."""

    schema: pa.Schema | None
    is_first: bool = False
    epoch: int = 1
