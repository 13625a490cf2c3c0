"""States that migrate, in the simulator: no interleaving loses a state, has two of a key, or changes the order of its
records, and machines that are broken on purpose are caught."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dpa.errors import ConfigError
from dpa.protocol.balancer.machine import BalanceState, StageBalance
from dpa.protocol.graph import REDUCER, map_reduce
from dpa.protocol.rules import State
from dpa.protocol.task.hand_over import Giving
from dpa.protocol.task.record_queue import Forwards, MigratingQueue
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import RangesExtracted
from dpa.protocol.wire.messages.end import Freeze
from dpa.protocol.wire.messages.migration import Settled
from dpa.routing.groupings.options import BY_KIND
from dpa.routing.hashing import Hashes, Interval
from dpa.routing.table import RoutingTable
from experiments.simulated_jobs.random_graphs import random_graph
from experiments.simulated_jobs.random_jobs import run_random_job
from experiments.simulation.violation import InvariantViolationError

SEEDS, CHUNK = 90, 30
MOST = 150
"""Seeds in which a broken machine must be caught."""

FIRST = (3, 51, 40, 49, 35, 81)
"""Those that catch all that the least ones do not, to begin with."""

ENOUGH_STEPS = 60_000


@cache
def run_of(seed: int):
    """The run of a seed, for all tests that look at it."""
    return run_random_job(seed, migrates=True)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_random_jobs_whose_states_migrate_keep_every_invariant(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            run_of(seed)
        except InvariantViolationError as violation:
            pytest.fail("\n".join([f"seed {seed}: {violation}", *violation.history[-40:]]))


def test_states_really_migrate_in_the_random_jobs() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        stage = run_of(seed).snapshot[REDUCER]
        happened["redistributed"] += stage.version > 0
        happened["twice"] += stage.version > 1
        happened["forwarded"] += sum(task.forwarded for task in stage.tasks) > 0
    assert all(happened[what] >= 10 for what in ("redistributed", "twice", "forwarded")), happened


def test_the_random_graphs_have_stages_of_all_kinds_whose_states_migrate() -> None:
    found: Counter[str] = Counter()
    for seed in range(100):
        made = random_graph(seed)
        found.update(made.kinds[stage.name] for stage in made.job.graph.queue_fed() if stage.migrates)
    assert set(found) == {"collect", "process", "semi join", "anti join"}


@pytest.mark.parametrize("grouping", [options() for options in BY_KIND.values()], ids=lambda grouping: grouping.kind)
def test_states_migrate_only_where_a_key_has_one_task(grouping) -> None:
    if not grouping.splits_keys:
        map_reduce((), 1, 2, grouping=grouping, consistency="migrate")
        return
    with pytest.raises(ConfigError, match=f"the states of stage 'reducer' cannot migrate by '{grouping.kind}'"):
        map_reduce((), 1, 2, grouping=grouping, consistency="migrate")


# --- machines that are broken on purpose


class WaitsForNobody(MigratingQueue):
    """Queues what comes by the newest table, though the task that gives may still have older records."""

    def _waits(self, before: RoutingTable, sender: Address, hashes: Hashes) -> npt.NDArray[np.bool_]:
        return np.zeros(len(hashes), dtype=bool)


class LeavesInDisorder(MigratingQueue):
    """Forwards what is leaving, the last first."""

    def states_given(self, interval: Interval) -> Forwards:
        return super().states_given(interval)[::-1]


class LosesWhatLeaves(MigratingQueue):
    """Drops what is leaving."""

    def states_given(self, interval: Interval) -> Forwards:
        super().states_given(interval)
        return []


class ForgetsStates(Giving):
    """Sends no states."""

    def _extracted(self, sender: Address, event: RangesExtracted) -> Any:
        return super()._extracted(sender, RangesExtracted(replace(event.piece, parts={})))


class ExtractsWithoutItsTurn(Giving):
    """Does not wait until user code returns."""

    def begin(self, receivers: Iterable[int], senders: Iterable[Address]) -> None:
        super().begin(receivers, senders)
        self.advance()


class FreezesBeforeAllHaveSettled(StageBalance):
    """Names the last table at once."""

    def _freeze_settled(self, sender: Address, message: Freeze) -> State:
        self._settled.clear()
        return self._end()

    RULES = tuple(
        replace(rule, then=(BalanceState.FROZEN,)) if rule.kind is Freeze else rule for rule in StageBalance.RULES
    )

    def dispatch(self, name: object, sender: Address, event: Any) -> None:
        if not (isinstance(event, Settled) and self.state is BalanceState.FROZEN):
            super().dispatch(name, sender, event)


QUEUE, GIVING = "dpa.protocol.task.operator.MigratingQueue", "dpa.protocol.task.hand_over.Giving"
BALANCE = "dpa.protocol.balancer.machine.StageBalance"
IN_DISORDER = "records of key .* from mapper . are out of order at task"
ELSEWHERE = "processed key .*, whose state is"

BROKEN: dict[str, tuple[str, Any, str]] = {
    "waits for nobody": (QUEUE, WaitsForNobody, f"{IN_DISORDER}|{ELSEWHERE}"),
    "leaves in disorder": (QUEUE, LeavesInDisorder, IN_DISORDER),
    "loses what leaves": (QUEUE, LosesWhatLeaves, "records emitted to reducer, but|counts .* records in flight"),
    "forgets states": (GIVING, ForgetsStates, f"{ELSEWHERE} on its way|while the state of key .* was on its way"),
    "extracts without its turn": (
        GIVING,
        ExtractsWithoutItsTurn,
        "was to carry out a .* while its user code was at work",
    ),
    "freezes before all have settled": (BALANCE, FreezesBeforeAllHaveSettled, "is to finish before table . is settled"),
}
"""What a machine does wrong: the name that it replaces; its class; the finding, of which there is one of each kind."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_machine_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, broken, expected = BROKEN[name]
    monkeypatch.setattr(where, broken)
    for seed in (*FIRST, *range(MOST)):
        try:
            run_random_job(seed, ENOUGH_STEPS, migrates=True)
        except InvariantViolationError as error:
            assert re.search(expected, str(error)), error
            assert error.history
            return
    pytest.fail(f"{MOST} random jobs have not caught it")
