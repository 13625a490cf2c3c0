"""The steps of a job, as plain data: what each does, and to the rows of which other steps.

A step either becomes a stage, with tasks of its own, or is fused into the tasks of the stages before it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from dpa._util.declared import Declared
from dpa.balance.options import BalanceOptions, NoBalancingOptions
from dpa.config import Combiner, OutputConfig, StepConfig
from dpa.errors import ConfigError
from dpa.execution.publishing import Publishes
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.stateless import StatelessReceiver
from dpa.executors import AnyMapper, name_of
from dpa.operators import RowOperator
from dpa.protocol.flow_control import FlowControl
from dpa.protocol.graph import Publishing
from dpa.routing.groupings.options import GroupingOptions, ShuffleOptions
from dpa.routing.keys import KeyName, names_of
from dpa.sources.event_time import SourceTime, processing_time
from dpa.tolerance import OnError


@dataclass(frozen=True)
class Keying:
    """How rows become the records of a step.

    Attributes:
        key: name of the key column, or the names of several; of none: all records have the one key null.
        values: the columns that are the value; all but the key if None.
        function: what gives the key of a row in place of the columns that `key` names.
        mapper: what makes keys and values of a row in place of all that.
    """

    key: KeyName = ()
    values: tuple[str, ...] | None = None
    function: RowOperator | None = None
    mapper: AnyMapper | None = None

    @property
    def does(self) -> str:
        """What it does to rows, in a few words; empty where all records have one key."""
        if self.mapper is not None:
            return f"map {_short(self.mapper)}"
        by = names_of(self.key) if self.function is None else [_short(self.function)]
        return f"key by {', '.join(by)}" if by else ""


@dataclass(frozen=True)
class StepInput:
    """Rows of another step that a step takes; those of a join are on the left side, 0, or the right one, 1."""

    step: str
    keying: Keying = Keying()
    side: int = 0


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        name: unique in the job.
        config: its section of the job file.
        feeds: the rows it takes, in order; a step without any reads an input.
        receiver: what takes its records.
        declared: of a step that reads, the columns that an input in memory is declared to have, or None.
        word: the key of the job file that names what it does.
        combine: whether senders fold equal keys of a block first; `auto`: as long as that pays.
        tasks: how many; None: it runs in the tasks before it.
        grouping: how senders choose the task of a record.
        balance: when keys are redistributed, and how.
        flow: bounds on the records that wait for it.
        on_error: what becomes of a record on which its user code raises.
        is_result: whether its rows are a result, besides what other steps make of them.
        written_as: returns the key path that the job file has for a key of a step.
    """

    name: str
    config: StepConfig
    feeds: tuple[StepInput, ...] = ()
    receiver: Receiver = field(default_factory=StatelessReceiver)
    declared: Declared | None = None
    word: str = "read"
    combine: Combiner = False
    tasks: int | None = None
    grouping: GroupingOptions = field(default_factory=ShuffleOptions)
    balance: BalanceOptions = field(default_factory=NoBalancingOptions)
    flow: FlowControl = field(default_factory=FlowControl)
    on_error: OnError = "fail"
    is_result: bool = False
    written_as: Callable[[str, str], str] = field(default="stages.{}.{}".format, compare=False)

    @property
    def is_source(self) -> bool:
        return not self.feeds

    @property
    def processing_time(self) -> SourceTime | None:
        """Of rows whose time is when they are read; None: they have another, or none."""
        return None if self.config.read is None else processing_time(self.config.read.time)

    @property
    def fills(self) -> bool:
        """Whether of several feeds of one side some may lack columns, which are null then."""
        return self.config.allow_missing_columns

    def beside(self, feed: StepInput) -> tuple[StepInput, ...]:
        """The feeds on the same side, whose rows are taken as one."""
        return tuple(other for other in self.feeds if other.side == feed.side)

    @property
    def is_stage(self) -> bool:
        return self.tasks is not None

    @property
    def expected_seconds(self) -> float | None:
        """About how long a record takes, before any is measured; None: unknown."""
        known = self.receiver.expected_seconds
        return None if known is None else known * max(self.config.testing.slow_factor, default=1.0)

    @cached_property
    def outputs(self) -> Mapping[str, OutputConfig]:
        """Where its rows go, by the key path that says so, in the order of their numbers. A result that is written
        nowhere stays in memory."""
        found = {self.at(key): output for key, output in self.config.outputs.items()}
        return {self.at("write"): OutputConfig(), **found} if self.is_result and self.config.write is None else found

    @property
    def main(self) -> str:
        """The key path of the output that stands for the result: the one in memory, or else the first."""
        in_memory = (key for key, output in self.outputs.items() if output.is_memory)
        return next(in_memory, next(iter(self.outputs)))

    @property
    def publishes(self) -> tuple[Publishes | None, ...]:
        """What each of its outputs publishes by epoch; None: nothing before the end."""
        return tuple(None if output.publish is None else output.publish.mode for output in self.outputs.values())

    @property
    def publishing(self) -> tuple[Publishing, ...]:
        """How often each of its outputs is published. What its sink makes of that is not known yet."""
        closes = self.receiver.emits_when_closed and (self.receiver.windowing is not None or self.receiver.has_timers)
        return tuple(
            Publishing()
            if output.publish is None
            else Publishing(output.publish.every, closed=closes and output.publish.mode == "final")
            for output in self.outputs.values()
        )

    @property
    def needs_order(self) -> bool:
        migrates = self.config.consistency == "migrate"
        return self.receiver.needs_order or (migrates and not self.receiver.can_merge)

    @property
    def key(self) -> KeyName:
        """The columns that identify its rows; none where several may have one key."""
        return self.feeds[0].keying.key if self.receiver.has_row_a_key else ()

    def at(self, key: str) -> str:
        return self.written_as(self.name, key)

    @property
    def does(self) -> str:
        if self.is_source:
            return "read"
        return self.receiver.does(", ".join(names_of(self.feeds[0].keying.key)))


def _short(executor: object) -> str:
    return name_of(executor).rpartition(".")[2]


def with_feeding(steps: Collection[Step], *names: str) -> list[Step]:
    """The steps of these names, and all from which rows come to them, in the order of `steps`."""
    feeds, found = {step.name: step.feeds for step in steps}, [*names]
    for name in found:
        found += [feed.step for feed in feeds[name] if feed.step not in found]
    return [step for step in steps if step.name in found]


def in_order(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, each after all whose rows it takes, always in the same order; ConfigError with the key of one if they
    form a cycle."""
    by_name = {step.name: step for step in steps}
    try:
        order = TopologicalSorter({step.name: [feed.step for feed in step.feeds] for step in steps}).static_order()
        return tuple(by_name[name] for name in order)
    except CycleError as error:
        cycle = error.args[1][1:]
        start = cycle.index(next(step.name for step in steps if step.name in cycle))
        cycle = [*cycle[start:], *cycle[: start + 1]]
        raise ConfigError(f"the steps {' -> '.join(cycle)} form a cycle", f"stages.{cycle[0]}") from None
