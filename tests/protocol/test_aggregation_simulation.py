"""Whole simulated jobs with rounds of aggregation: what is published is right, and broken machines are caught."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from dpa.execution.record_states import RecordStates
from dpa.protocol import reducer as reducer_module
from dpa.protocol.aggregation import Exchange
from dpa.protocol.coordinator import CoordinatorMachine
from dpa.protocol.machine import Instruction, Pack, PackDone
from dpa.protocol.messages import Address, LastTable, Partial
from dpa.protocol.reducer import ReducerMachine
from dpa.simulation.cluster import InvariantViolationError, Outcome
from dpa.simulation.random_jobs import random_job, run_random_job

WITH_ROUNDS = [seed for seed in range(400) if random_job(seed)[0].aggregate_seconds is not None]


def test_the_random_jobs_have_rounds_worth_looking_at() -> None:
    happened: Counter[str] = Counter()
    for seed in WITH_ROUNDS[:40]:
        outcome = run_random_job(seed)
        stats = outcome.snapshot.aggregation
        assert stats is not None and stats.rounds == len(outcome.rounds)
        happened["rounds"] += stats.rounds > 0
        happened["several"] += stats.rounds > 3
        happened["states handed over"] += stats.states > 0
        happened["grown"] += _records(outcome, 0) < _records(outcome, -1)
        happened["redistributed"] += outcome.snapshot.epoch > 0 and stats.rounds > 0
    wanted = ("rounds", "several", "states handed over", "grown", "redistributed")
    assert all(happened[what] >= 5 for what in wanted), happened


def _records(outcome: Outcome, number: int) -> int:
    return sum(int(share.records.sum()) for share in outcome.rounds[number]) if outcome.rounds else 0


def test_a_job_without_aggregation_publishes_nothing() -> None:
    seed = next(seed for seed in range(400) if seed not in WITH_ROUNDS)
    outcome = run_random_job(seed)
    assert outcome.rounds == () and outcome.snapshot.aggregation is None


# --- machines that are broken on purpose


class DoesNotWait(Exchange):
    """Folds what is there when it has packed; what comes later, it folds in the next round."""

    @property
    def _complete(self) -> bool:
        return True

    def _partial(self, sender: Address, message: Partial) -> None:
        self._parts[len(self._parts)] = message.part

    def _require(self, step: str, otherwise: str) -> None:
        pass


class LosesPartials(Exchange):
    """Folds nothing that others hand over."""

    def _partial(self, sender: Address, message: Partial) -> None:
        super()._partial(sender, Partial(message.round, None))


class HandsOverTwice(Exchange):
    """Keeps the states that it handed over last, and hands them over again."""

    def packed(self, event: PackDone) -> None:
        given = event.parts or getattr(self, "_last", {})
        self._last = given
        super().packed(PackDone(given))


class PacksByItsOwnTable(ReducerMachine):
    """Hands states to those who own the keys now, who may hold another table, instead of to their homes."""

    def instruct(self, instruction: Instruction) -> None:
        super().instruct(Pack(self.table) if isinstance(instruction, Pack) else instruction)


class DoesNotTakeTurns(Exchange):
    """Lets user code pack while it has records."""

    def takes_turn(self) -> bool:
        super().takes_turn()
        return False


class MergesInARound(CoordinatorMachine):
    """Has the reducers merge although a round is in progress."""

    def _last_table(self, sender: Address, message: LastTable) -> None:
        self._rounds.in_progress = False
        super()._last_table(sender, message)


BROKEN: dict[str, tuple[Any, str]] = {
    "does not wait for partial states": (DoesNotWait, r"before reducer \d had packed|lacks \d+ records"),
    "loses partial states": (LosesPartials, r"lacks \d+ records"),
    "hands states over twice": (HandsOverTwice, r"has \d+ records, but only|results so far|wrong result"),
    "packs by its own table": (PacksByItsOwnTable, r"lacks \d+ records"),
    "packs while a block is processed": (DoesNotTakeTurns, "while its user code was at work"),
    "merges in a round": (MergesInARound, "is to merge in a round|cannot take"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_machine_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variant, expected = BROKEN[broken]
    machines = {}
    if issubclass(variant, Exchange):
        monkeypatch.setattr(reducer_module, "Exchange", variant)
    else:
        machines["coordinator" if issubclass(variant, CoordinatorMachine) else "reducer_machine"] = variant
    for seed in WITH_ROUNDS:
        try:
            run_random_job(seed, **machines)
        except InvariantViolationError as error:
            assert re.search(expected, str(error)), f"seed {seed}: {error}"
            return
    pytest.fail(f"{len(WITH_ROUNDS)} random jobs have not caught it")


def test_a_round_that_finishes_the_states_themselves_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordStates, "preview", RecordStates.finish)
    with pytest.raises(InvariantViolationError, match=r"results so far|wrong result"):
        for seed in WITH_ROUNDS[:10]:
            run_random_job(seed)
