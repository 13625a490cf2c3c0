"""Random small graphs for the simulator, each made of a seed alone, and the check of every stage's result.

Records are numbers. A number that reaches a stage along two paths reaches it twice. What a stage passes on depends on
its kind: all numbers that it has collected by key or processed, or those of a join's left side that the right side
matches or does not match.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpa.balance.options import AdaptiveOptions, HalvingOptions, NoBalancingOptions
from dpa.execution.emission import Emission
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of
from dpa.execution.receivers.base import Receiver
from dpa.execution.receivers.stateless import StatelessReceiver
from dpa.execution.reduce_task import ReduceStage
from dpa.executors import Process, Record
from dpa.operators import JoinOptions, RowKind, RowOperator
from dpa.protocol.graph import Edge, Graph, Publishing, Stage, StageInput
from dpa.protocol.task.user_code import StageTask
from dpa.protocol.wire.events import Redistribute, Rescale
from dpa.routing.groupings.options import KeyOptions
from dpa.routing.hashing import hash_column
from dpa.sources.splits import Split, memory_splits
from experiments.simulated_jobs.map_reduce import stage_options
from experiments.simulated_jobs.random_jobs import Collect, random_network, random_stage_options, with_ticks_as_messages
from experiments.simulated_jobs.random_tables import with_random_first_tables
from experiments.simulated_jobs.runs import run_made
from experiments.simulation.job import Network, SimulatedJob, SimulatedRun
from experiments.simulation.violation import InvariantViolationError

_MAX_STAGES = 6
_MOST_KEYS = 12
_ONE_OWNER = {"grouping": KeyOptions(), "balance": NoBalancingOptions(), "can_merge": False}
"""How records come to a stage whose states cannot be merged."""

Numbers = Counter[int]
Keys = Mapping[int, str]


class PassOn(Process[int, int]):
    """Emits each number when it comes, and how many of its key came at the end, as a number below 0."""

    def zero(self) -> int:
        return 0

    def process(self, key: str, state: int, value: int) -> tuple[int, Iterable[Record]]:
        """Count the number, and emit it."""
        return state + 1, [{"number": value}]

    def finish(self, key: str, state: int) -> Iterable[Record]:
        """Emit the count."""
        return [{"number": -state}]


@dataclass(frozen=True)
class ToKeyed:
    """Rows of a source, or of a stage of any kind, as rows of a number and its key at the next stage."""

    keys: Keys

    def __call__(self, record: Record) -> list[Record]:
        """A row for each number of a row; counts are no numbers."""
        numbers = record["records"] if "records" in record else [record["number"]]
        return [{"key": self.keys[number], "number": number} for number in numbers if number >= 0]


@dataclass(frozen=True)
class Kind:
    """What a stage does with numbers.

    Attributes:
        receiver: what its tasks run.
        passes: the numbers that it passes on, given those that reach it on each edge, in order, and their keys.
    """

    receiver: Receiver
    passes: Callable[[list[Numbers], Keys], Numbers]

    @property
    def is_collect(self) -> bool:
        """Whether its result has a row a key, with the numbers collected."""
        return isinstance(self.receiver.executor, Collect)


def _all(reaching: list[Numbers], keys: Keys) -> Numbers:
    return sum(reaching, Counter())


def _joined(*, matched: bool) -> Callable[[list[Numbers], Keys], Numbers]:
    def passes(reaching: list[Numbers], keys: Keys) -> Numbers:
        left, right = reaching
        known = {keys[number] for number in right}
        return Counter({number: times for number, times in left.items() if (keys[number] in known) is matched})

    return passes


_ON_KEY = (("key",), ("key",))
KINDS = {
    "collect": Kind(receiver_of(Collect()), _all),
    "process": Kind(receiver_of(PassOn()), _all),
    "rows": Kind(StatelessReceiver(), _all),
    "semi join": Kind(receiver_of(JoinOptions("semi", _ON_KEY)), _joined(matched=True)),
    "anti join": Kind(receiver_of(JoinOptions("anti", _ON_KEY)), _joined(matched=False)),
}
"""The kinds of stages; a join has two edges that enter it."""


@dataclass(frozen=True)
class RandomGraph:
    """A job, the kind of each operator stage, and the numbers that must be in its result."""

    job: SimulatedJob
    kinds: Mapping[str, str]
    expected: Mapping[str, Counter[int]]

    def check(self, run: SimulatedRun, history: Callable[[], list[str]]) -> None:
        """Every stage has the numbers that reach it, as often as they do."""
        for stage, expected in self.expected.items():
            rows = [row for share in run.shares[stage] for row in share.table.to_pylist()]
            found = _found(KINDS[self.kinds[stage]], rows, history)
            if found != expected:
                wrong = sorted((found - expected) + (expected - found))
                raise InvariantViolationError(f"wrong result of {stage}, a {self.kinds[stage]}: {wrong}", history())


def random_graph(seed: int) -> RandomGraph:
    """The graph of a seed: one or two sources, up to six operator stages; chains, diamonds, joins, fan-in, fan-out."""
    draw = random.Random(f"graph {seed}")
    numbers = range(draw.randint(0, 60))
    batch = draw.choice([1, 3, 10])
    sources = [f"source {position}" for position in range(draw.choice([1, 1, 2]))]
    operators = [f"stage {position}" for position in range(draw.randint(1, _MAX_STAGES))]
    edges = _random_edges(draw, sources, operators)
    keys = {name: _random_keys(draw, numbers) for name in operators}
    kinds = {name: _random_kind(draw, sum(edge.target == name for edge in edges)) for name in operators}
    passed: dict[str, Numbers] = {name: Counter(numbers) for name in sources}
    for name in operators:
        reaching = [passed[edge.source] for edge in edges if edge.target == name]
        passed[name] = KINDS[kinds[name]].passes(reaching, keys[name])
    graph = Graph(
        (
            *(Stage(name, draw.randint(1, 3), StageInput(_splits(draw, numbers))) for name in sources),
            *(Stage(name, draw.randint(1, 4), **_options(draw, kinds[name], batch)) for name in operators),
        ),
        edges,
    )
    graph = with_random_first_tables(graph, seed, hash_column(pa.array([f"key {rank}" for rank in range(_MOST_KEYS)])))
    combined = {edge: draw.random() < 0.2 for edge in edges}
    work = {stage.name: _work(graph, stage.name, kinds, keys, batch, combined) for stage in graph.stages}
    rounds = any(stage.publishing for stage in graph.stages)
    slow, ticking = draw.choice(operators), rounds or draw.random() < 0.7
    steps = _step_seconds(seed, sources)
    job = SimulatedJob(
        graph,
        work,
        step_seconds=lambda stage: steps.get(stage, 0.0001),
        service_seconds=lambda stage, index: 0.005 if stage == slow and index == 0 else 0.001,
        network=random_network(draw, seed),
        ticks=None if ticking else draw.choice([0, 10]),
        tick_seconds=draw.choice([0.02, 0.1]),
        numbered=True,
    )
    return RandomGraph(with_ticks_as_messages(job), kinds, {name: passed[name] for name in operators})


def asked_graph(seed: int) -> RandomGraph:
    """The small chain of a seed, of which somebody wants something all the time: redistributions, and other numbers of
    tasks. Some messages are slow, and the stage that the other feeds emits while records flow."""
    draw, numbers = random.Random(f"asked {seed}"), range(40)
    kinds = {"stage 0": "process", "stage 1": "collect"}
    edges = (Edge("source 0", "stage 0"), Edge("stage 0", "stage 1"))
    keys = {name: _random_keys(draw, numbers) for name in kinds}
    halving = HalvingOptions(min_queue=1, check_seconds=0.0, report_every=1, initial_tokens=64)
    options = stage_options(
        balance=draw.choice([halving, AdaptiveOptions(check_seconds=0.0, measure_seconds=0.001)]),
        in_flight_records=draw.choice([4, 20]),
        quantum_records=1,
        drain_seconds=0.0,
    )
    stages = (
        Stage("source 0", 2, StageInput(_splits(draw, numbers))),
        Stage("stage 0", 2, consistency="migrate", **options),
        Stage("stage 1", 2, consistency=draw.choice(["merge", "migrate"]), **options),
    )
    graph = Graph(stages, edges)
    job = SimulatedJob(
        graph,
        {stage.name: _work(graph, stage.name, kinds, keys, 1, dict.fromkeys(edges, False)) for stage in stages},
        step_seconds=lambda stage: 0.001,
        service_seconds=lambda stage, index: 0.003 if stage == "stage 1" else 0.001,
        network=Network(0.0001, 0.002, slow=1 / 4),
        ticks=None,
        tick_seconds=0.01,
        numbered=True,
        requests=tuple((draw.uniform(0.005, 0.15), _request(draw, turn)) for turn in range(20)),
    )
    return RandomGraph(job, kinds, {name: Counter(numbers) for name in kinds})


def _request(draw: random.Random, turn: int) -> Rescale | Redistribute:
    """For a stage of `asked_graph`."""
    if draw.random() < 0.5:
        return Redistribute(draw.choice(["stage 0", "stage 1", "stage 1"]), draw.randrange(2))
    return Rescale(turn, draw.choice(["source 0", "stage 0", "stage 1"]), draw.randint(1, 4))


def run_random_graph(seed: int, max_steps: int = 1_000_000, *, asked: bool = False, **options: Any) -> SimulatedRun:
    """Run the graph of a seed, in at most so many steps, and check the result of every stage; `asked`: whether it is
    that of `asked_graph`, the others as for `run_made`.

    Raises:
        InvariantViolationError: an invariant was broken, the job could not end, or a result is wrong.
    """
    return run_made(asked_graph(seed) if asked else random_graph(seed), seed, max_steps, **options)


def _step_seconds(seed: int, sources: list[str]) -> dict[str, float]:
    """Of two sources one is slow now and then, so that what the other feeds ends before it."""
    draw = random.Random(f"slow source of {seed}")
    return {draw.choice(sources): 0.005} if len(sources) > 1 and draw.random() < 0.5 else {}


def _random_edges(draw: random.Random, sources: list[str], operators: list[str]) -> tuple[Edge, ...]:
    """Edges that feed every operator from stages before it, some twice, and let every source feed one."""
    edges = []
    for position, name in enumerate(operators):
        before = [*sources, *operators[:position]]
        feeders = [draw.choice(before[-3:]) for _ in range(draw.choice([1, 1, 2, 3]))]
        edges += [Edge(feeder, name) for feeder in feeders]
    idle = [name for name in sources if all(edge.source != name for edge in edges)]
    return (*edges, *(Edge(name, draw.choice(operators)) for name in idle))


def _random_keys(draw: random.Random, numbers: range) -> dict[int, str]:
    """The key of each number at a stage, evenly distributed or skewed."""
    distinct, exponent = draw.randint(1, _MOST_KEYS), draw.choice([0.0, 1.2, 3.0])
    weights = [1 / (rank + 1) ** exponent for rank in range(distinct)]
    ranks = draw.choices(range(distinct), weights, k=len(numbers))
    return {number: f"key {rank}" for number, rank in zip(numbers, ranks, strict=True)}


def _random_kind(draw: random.Random, entering: int) -> str:
    joins = ["semi join", "anti join"] if entering == 2 else []
    return draw.choice(["collect", "collect", "process", "rows", *joins])


def _options(draw: random.Random, kind: str, batch: int) -> dict[str, Any]:
    """How records come to a stage."""
    migrates = kind != "rows" and draw.random() < 0.3
    options = random_stage_options(draw, batch, migrates=migrates)
    if kind == "process" and not migrates:
        options |= _ONE_OWNER
    rounds = (Publishing(draw.choice([0.002, 0.02])),) if draw.random() < 0.2 else ()
    return stage_options(**options, publishing=rounds if kind == "collect" else ())


def _work(
    graph: Graph,
    stage: str,
    kinds: Mapping[str, str],
    keys: Mapping[str, Keys],
    batch: int,
    combined: Mapping[Edge, bool],
) -> StageTask:
    """What the tasks of a stage do."""
    outputs = []
    for number, edge in graph.out_of(stage):
        kind = KINDS[kinds[edge.target]]
        receiver, combine = kind.receiver, combined[edge] and kind.is_collect
        side = [other for other, _ in graph.into(edge.target)].index(number) if receiver.has_sides else 0
        key = "key" if receiver.keeps_states else ()
        to_keyed = RowOperator(RowKind.FLAT_MAP, ToKeyed(keys[edge.target]))
        leaf = MapTask(None, key, None, receiver, combine, 0, batch, 1.0, side=side)
        outputs.append(Emission((leaf,), (to_keyed,)))
    emission = Emission(tuple(outputs)) if outputs else None
    if graph.is_source(stage):
        assert emission is not None
        return emission
    receiver = KINDS[kinds[stage]].receiver
    return ReduceStage(receiver, "key" if receiver.keeps_states else (), emission)


def _found(kind: Kind, rows: list[Record], history: Callable[[], list[str]]) -> Numbers:
    """The numbers of a result."""
    if kind.is_collect:
        keys = [row["key"] for row in rows]
        if len(set(keys)) < len(keys):
            raise InvariantViolationError("a key is twice in a result", history())
        return Counter(number for row in rows for number in row["records"])
    return Counter(row["number"] for row in rows if row["number"] >= 0)


def _splits(draw: random.Random, numbers: range) -> tuple[Split, ...]:
    table = pa.table({"number": pa.array(numbers, pa.int64())})
    return tuple(memory_splits(table, draw.choice([1, 7, 100])))
