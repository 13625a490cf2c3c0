"""Whole simulated jobs with rounds of aggregation: what is published is right, and broken machines are caught."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

import pytest

from dpa.execution.receivers._record import RecordStates
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.graph import REDUCER
from dpa.protocol.rules import State, on
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.state_exchange import ExchangeState, StateExchange
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import ExtractDone
from dpa.protocol.wire.instructions import Extract, Instruction
from dpa.protocol.wire.messages.end import LastTable
from dpa.protocol.wire.messages.exchange import StateTransfer
from dpa.protocol.wire.messages.tables import DecisionReport
from dpa.simulation.cluster import InvariantViolationError
from dpa.simulation.job import SimulatedRun
from experiments.simulated_jobs.random_jobs import random_job, run_random_job


@cache
def with_rounds() -> list[int]:
    """The seeds below 400 whose jobs have rounds."""
    return [seed for seed in range(400) if random_job(seed).job.graph[REDUCER].aggregate_seconds is not None]


def test_the_random_jobs_have_rounds_worth_looking_at() -> None:
    happened: Counter[str] = Counter()
    for seed in with_rounds()[:40]:
        run = run_random_job(seed)
        stats = run.snapshot[REDUCER].aggregation
        assert stats is not None and stats.rounds == len(run.rounds[REDUCER])
        happened["rounds"] += stats.rounds > 0
        happened["several"] += stats.rounds > 3
        happened["states transferred"] += stats.states > 0
        happened["grown"] += _records(run, 0) < _records(run, -1)
        happened["redistributed"] += run.snapshot[REDUCER].version > 0 and stats.rounds > 0
    wanted = ("rounds", "several", "states transferred", "grown", "redistributed")
    assert all(happened[what] >= 5 for what in wanted), happened


def _records(run: SimulatedRun, number: int) -> int:
    rounds = run.rounds[REDUCER]
    return sum(int(share.records.sum()) for share in rounds[number]) if rounds else 0


def test_a_job_without_aggregation_publishes_nothing() -> None:
    seed = next(seed for seed in range(400) if seed not in with_rounds())
    run = run_random_job(seed)
    assert run.rounds[REDUCER] == () and run.snapshot[REDUCER].aggregation is None


# --- machines that are broken on purpose


class DoesNotWait(StateExchange):
    """Merges what is there when it has extracted; what comes later, it merges in the next round."""

    def _merge(self) -> State | None:
        self._others = []
        return super()._merge()

    def _transferred(self, sender: Address, message: StateTransfer) -> None:
        self._parts[len(self._parts)] = message.part

    RULES = (
        *(rule for rule in StateExchange.RULES if rule.kind is not StateTransfer),
        on(StateTransfer, ExchangeState, _transferred, "keep"),
    )


class LosesStates(StateExchange):
    """Merges nothing that others send."""

    def _transferred(self, sender: Address, message: StateTransfer) -> Any:
        return super()._transferred(sender, StateTransfer(message.number, None))


class SendsStatesTwice(StateExchange):
    """Keeps the states that it sent last, and sends them again."""

    def _extracted(self, sender: Address, event: ExtractDone) -> Any:
        given = event.parts or getattr(self, "_last", {})
        self._last = given
        return super()._extracted(sender, ExtractDone(given))


class ExtractsByItsOwnTable(OperatorMachine):
    """Sends states to those who own the keys now, which may be by another table, instead of to their initial owners."""

    def instruct(self, instruction: Instruction) -> None:
        super().instruct(Extract(self.table) if isinstance(instruction, Extract) else instruction)


class DoesNotTakeTurns(StateExchange):
    """Lets user code have records while it extracts or merges."""

    occupies_user_code = False


class EndsInARound(CoordinatorMachine):
    """Begins the last exchange although a round is in progress."""

    def _of_stage(self, sender: Address, message: LastTable | DecisionReport) -> None:
        if isinstance(message, LastTable):
            self.stages[message.stage]._rounds.in_progress = False
        super()._of_stage(sender, message)


BROKEN: dict[str, tuple[Any, str]] = {
    "does not wait for the states of others": (DoesNotWait, r"before reducer \d had packed|lacks \d+ records"),
    "loses states": (LosesStates, r"lacks \d+ records"),
    "sends states twice": (SendsStatesTwice, r"has \d+ records, but only|partial results|wrong result"),
    "extracts by its own table": (ExtractsByItsOwnTable, r"lacks \d+ records"),
    "processes a block while it extracts": (DoesNotTakeTurns, "while its user code was at work"),
    "ends in a round": (EndsInARound, "is to begin exchange|cannot take"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_machine_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variant, expected = BROKEN[broken]
    machines = {}
    if issubclass(variant, StateExchange):
        monkeypatch.setattr("dpa.protocol.task.operator.StateExchange", variant)
    else:
        machines["coordinator" if issubclass(variant, CoordinatorMachine) else "operator"] = variant
    for seed in with_rounds():
        try:
            run_random_job(seed, **machines)
        except InvariantViolationError as error:
            assert re.search(expected, str(error)), f"seed {seed}: {error}"
            return
    pytest.fail(f"{len(with_rounds())} random jobs have not caught it")


def test_a_round_that_finishes_the_states_themselves_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordStates, "preview", RecordStates.finish)
    with pytest.raises(InvariantViolationError, match=r"partial results|wrong result"):
        for seed in with_rounds()[:10]:
            run_random_job(seed)
