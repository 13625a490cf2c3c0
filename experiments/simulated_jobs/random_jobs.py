"""Random small jobs for the simulator, each made of a seed alone, and the check of their results."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa

from dpa.balance.options import BY_STRATEGY
from dpa.execution.keys import column_of, key_column, key_columns
from dpa.execution.mapping import MapTask
from dpa.execution.receivers import receiver_of
from dpa.execution.states import Reduced
from dpa.executors import Reducer
from dpa.protocol.graph import REDUCER, Publishing
from dpa.routing.groupings.options import BY_KIND, KINDS, RING
from dpa.routing.hashing import hash_column
from dpa.routing.keys import Key, KeyName, to_python
from dpa.sources.splits import memory_splits
from experiments.simulated_jobs.map_reduce import map_reduce_job
from experiments.simulated_jobs.random_tables import with_random_first_tables
from experiments.simulated_jobs.runs import run_made
from experiments.simulation.job import Network, SimulatedJob, SimulatedRun
from experiments.simulation.violation import InvariantViolationError


class CollectAlone(Reducer[list[int], int]):
    """Keeps every record's number: the result shows whether each was processed exactly once, and by its own key.

    `finish` empties the state, against the rules: a round of aggregation must not let it do so to states that go on.
    """

    def zero(self) -> list[int]:
        return []

    def reduce(self, state: list[int], value: int) -> list[int]:
        state.append(value)
        return state

    def finish(self, state: list[int]) -> dict[str, Any]:
        records = sorted(state)
        state.clear()
        return {"records": records}


class Collect(CollectAlone):
    """The same of a key that may have several states."""

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right


def _key(kind: str, rank: int) -> Key:
    """The key of a rank: a text, a date, a decimal, or a text and a number that may be null."""
    if kind == "composite":
        return f"key {rank // 3}", rank % 3 or None
    kinds: dict[str, Key] = {
        "text": f"key {rank}",
        "date": date(2026, 1, 1) + timedelta(rank),
        "decimal": Decimal(rank) / 4,
    }
    return kinds[kind]


@dataclass(frozen=True)
class RandomJob:
    """A job, the name of its key, and the records that each key must end with."""

    job: SimulatedJob
    key: KeyName
    expected: dict[Key, list[int]]

    def check(self, run: SimulatedRun, history: Callable[[], list[str]]) -> None:
        """Each key has all its records and no others, once, and so have the counts of records, and the rounds."""
        shares = run.shares[REDUCER]
        rows = _rows(shares, self.key)
        found = dict(rows)
        counts = Counter(key for key, _ in rows)
        if found != self.expected or any(count > 1 for count in counts.values()):
            keys = self.expected.keys() | found.keys()
            wrong = sorted(repr(key) for key in keys if found.get(key) != self.expected.get(key))
            raise InvariantViolationError(f"wrong result for {wrong}", history())
        _check_rounds(run, self, history)
        if sum(int(share.mapped.sum()) for share in shares) != sum(map(len, self.expected.values())):
            raise InvariantViolationError("the counts of records by key are wrong", history())


def random_job(seed: int, *, migrates: bool = False) -> RandomJob:
    """The job of a seed; or, if it `migrates`, one of which states move with their keys, and cannot be merged."""
    draw = random.Random(seed)
    kind_of_key = random.Random(f"key of {seed}").choice(["text", "date", "decimal", "composite"])
    name: KeyName = ("key", "number of key") if kind_of_key == "composite" else "key"
    keys = [_key(kind_of_key, rank) for rank in range(draw.randint(1, 30))]
    exponent = draw.choice([0.0, 0.8, 1.2, 3.0])
    weights = [1 / (rank + 1) ** exponent for rank in range(len(keys))]
    drawn = draw.choices(keys, weights, k=draw.randint(100 if migrates else 0, 250))
    expected: dict[Key, list[int]] = defaultdict(list)
    for number, key in enumerate(drawn):
        expected[key].append(number)
    table = pa.table({**key_columns(column_of(drawn, name), name), "number": pa.array(range(len(drawn)), pa.int64())})
    batch = draw.choice([1, 3, 10])
    reducer: CollectAlone = Collect()
    combine = draw.random() < 0.25
    options = random_stage_options(draw, batch, migrates=migrates)
    adaptive = options["balance"].strategy == "adaptive"
    slow, speed = draw.randrange(5), draw.choice([1.0, 5.0])
    aggregate = draw.random() < 0.3
    if migrates:
        reducer, combine, aggregate = CollectAlone(), False, False
    job = map_reduce_job(
        memory_splits(table, draw.choice([1, 20, 100])),
        MapTask(None, name, ("number",), receiver_of(reducer), combine, 0, batch, 1.0),
        mappers=draw.randint(1, 4),
        reducers=draw.randint(1, 5),
        map_seconds=draw.choice([0.0, 0.0001, 0.002]),
        service_seconds=lambda index: 0.001 * (speed if index == slow else 1.0),
        network=random_network(draw, seed),
        ticks=None if adaptive or aggregate else draw.choice([0, 0, 10]),
        tick_seconds=draw.choice([0.02, 0.1]) if adaptive or aggregate else 0.25,
        publishing=(Publishing(draw.choice([0.002, 0.02, 0.1])),) if aggregate else (),
        **options,
    )
    hashes = hash_column(key_column(table, name))
    job = dataclasses.replace(job, graph=with_random_first_tables(job.graph, seed, hashes), numbered=True)
    job = with_ticks_as_messages(job)
    return RandomJob(job, name, dict(expected))


_SLOW = 1 / 12
"""How often a message is slow, in half of the networks: others make chains of several while it is on its way."""

_FASTER = 8
"""And how much faster most messages are there, so that jobs take about as long."""


def random_network(draw: random.Random, seed: int) -> Network:
    """A network that is fast or slow, duplicates messages or not, and has slow messages among fast ones or not."""
    network = Network(0.0001, draw.choice([0.001, 0.02, 0.2]), draw.choice([0.0, 0.05, 0.3]))
    if random.Random(f"slow messages of {seed}").random() < 0.5:
        return network
    return dataclasses.replace(network, max_delay=network.max_delay / _FASTER, slow=_SLOW)


def with_ticks_as_messages(job: SimulatedJob) -> SimulatedJob:
    """The job with ticks no closer than a message takes: what is said at more of them is said anew on the way."""
    return dataclasses.replace(job, tick_seconds=max(job.tick_seconds, job.network.mean_delay))


def random_stage_options(draw: random.Random, batch: int, *, migrates: bool = False) -> dict[str, Any]:
    """How records come to a stage: any grouping, strategy and bounds, or, if it `migrates`, any that moves keys; blocks
    have up to `batch` records."""
    kind = RING if migrates else draw.choice([RING, RING, draw.choice(KINDS)])
    strategies = ["none"] if kind != RING else ["none", "halving", "doubling", "adaptive", "adaptive"]
    strategy = draw.choice(strategies[1:] if migrates else strategies) if kind == RING else "none"
    return {
        "consistency": "migrate" if migrates else "merge",
        "balance": _of(
            BY_STRATEGY[strategy],
            tau=(threshold := draw.choice([0.0, 0.2, 1.0])),
            max_imbalance=threshold,
            max_rounds=draw.choice([1, 2, 3]),
            min_queue=draw.choice([1, 5]),
            report_every=draw.choice([1, 5, 20]),
            report_seconds=draw.choice([None, 0.01]),
            report_when_idle=draw.random() < 0.5,
            check_seconds=draw.choice([0.0, 0.0, 0.01]),
            act_on_old_reports=draw.random() < 0.2,
            **draw.choice([{}, {"initial_tokens": 4}]),
            forwarding=draw.choice(["eager", "lazy"]),
            trigger=draw.choice(["", "", "", ""]),  # as `half_life` below
            min_delay=draw.choice([0.0, 0.01]),
            measure_seconds=draw.choice([0.001, 0.02]),
            tolerance=draw.choice([0.05, 0.5]),
            horizon=draw.choice([0.0, 1.0]),
            min_gain=draw.choice([0.0, 0.01]),
            max_moved=draw.choice([0.1, 1.0]),
            half_life=draw.choice([0.01, 1.0]),  # no option any more, and drawn so that seeds mean what they did
        ),
        "grouping": _of(
            BY_KIND[kind],
            epsilon=draw.choice([0.0, 0.01, 1.0]),
            virtual_workers=draw.choice([1, 3, 10]),
            proportional=(proportional := draw.random() < 0.5),
            pooled=draw.random() < 0.5,
            slot_seconds=draw.choice([0.001, 0.02, 0.1]),
            theta_busy=draw.choice([0.5, 0.9]),
            theta_idle=draw.choice([0.1, 0.4]),
            utilisation=(draw.choice(["queue", "busy", "demand"]), "demand")[proportional],
        ),
        "in_flight_records": draw.choice([batch, 50, 100]),
        "quantum_records": draw.choice([1, 4, 100]),
        "queue_seconds": draw.choice([None, None, 0.005, 0.05]),
        "in_flight_mb": draw.choice([256, 256, 256, 300 / 2**20]),
        "drain_seconds": {1: 0.0, 3: 0.02}.get(batch, 2.0),  # not drawn, so that seeds mean what they did
        **({"piece_keys": draw.choice([1, 2, 8_192])} if migrates else {}),
    }


_Options = TypeVar("_Options")


def _of(options: type[_Options], **drawn: Any) -> _Options:
    """Options of a class with those of the drawn values that it has a field for."""
    names = {field.name for field in dataclasses.fields(options)}  # type: ignore[arg-type]
    return options(**{name: value for name, value in drawn.items() if name in names})


def run_random_job(seed: int, max_steps: int = 1_000_000, *, migrates: bool = False, **options: Any) -> SimulatedRun:
    """Run the job of a seed, in at most so many steps, and check its result too; `migrates` as for `random_job`, the
    others as for `run_made`.

    Raises:
        InvariantViolationError: an invariant was broken, the job could not end, or its result is wrong.
    """
    return run_made(random_job(seed, migrates=migrates), seed, max_steps, **options)


def _rows(shares: Iterable[Reduced], key: KeyName) -> list[tuple[Key, list[int]]]:
    """Each key of a result, or of a round, and the numbers of its records."""
    tables = [share.table for share in shares if share.table.num_rows]
    return [
        row
        for table in tables
        for row in zip(to_python(key_column(table, key)), table["records"].to_pylist(), strict=True)
    ]


def _check_rounds(run: SimulatedRun, made: RandomJob, history: Callable[[], list[str]]) -> None:
    """Each round has records of the input, each once and at one reducer, among them all of the round before."""
    before: dict[Key, Counter[int]] = {}
    for number, shares in enumerate(run.published[REDUCER], start=1):
        rows = _rows(shares, made.key)
        found = {key: Counter(records) for key, records in rows}
        right = len(found) == len(rows)
        right &= all(records <= Counter(made.expected.get(key, [])) for key, records in found.items())
        right &= all(records <= found.get(key, Counter()) for key, records in before.items())
        if not right:
            raise InvariantViolationError(f"the partial results of round {number} are wrong", history())
        before = found
