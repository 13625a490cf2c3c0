"""Whole simulated jobs with partial results: what is published is right, and broken machines are caught."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from dpa.protocol.coordinator.cuts import Cuts, CutState
from dpa.protocol.graph import REDUCER
from dpa.protocol.rules import State, on
from dpa.protocol.task.operator import OperatorMachine
from dpa.protocol.task.state_exchange import ExchangeState, StateExchange
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.messages.exchange import BeginExchange, StateTransfer
from experiments.simulated_jobs.random_jobs import random_job, run_random_job
from experiments.simulation.violation import InvariantViolationError


@cache
def publishing() -> list[int]:
    """The seeds below 400 whose jobs publish partial results."""
    return [seed for seed in range(400) if random_job(seed).job.graph[REDUCER].publishing]


# --- machines that are broken on purpose


class DoesNotWait(StateExchange):
    """Publishes what is there when it has extracted; what comes later, it merges in the next epoch."""

    def _end(self) -> State | None:
        self._others = []
        return super()._end()

    def _transferred(self, sender: Address, message: StateTransfer) -> None:
        self._parts[len(self._parts)] = message.part

    RULES = (
        *(rule for rule in StateExchange.RULES if rule.kind is not StateTransfer),
        on(StateTransfer, ExchangeState, _transferred, "keep"),
    )


class MovesNothing(OperatorMachine):
    """Publishes what it has, though others may have states of the same keys."""

    def _begin_exchange(self, sender: Address, message: BeginExchange) -> Any:
        return super()._begin_exchange(sender, message if message.last else replace(message, transfer=False))


class GoesOnTooSoon(Cuts):
    """Lets sources go on while tasks publish."""

    @property
    def is_holding(self) -> bool:
        return self.state is CutState.DRAINING


BROKEN: dict[str, tuple[Any, str]] = {
    "does not wait for the states of others": (DoesNotWait, r"were published in epoch|two tasks published|still waits"),
    "moves nothing": (MovesNothing, r"two tasks published"),
    "goes on while tasks publish": (GoesOnTooSoon, r"are on their way at a cut|is to publish with|were published in"),
}

WHERE = {
    StateExchange: "dpa.protocol.task.operator.StateExchange",
    Cuts: "dpa.protocol.coordinator.machine.Cuts",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_machine_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variant, expected = BROKEN[broken]
    machines = {"operator": variant} if issubclass(variant, OperatorMachine) else {}
    if not machines:
        monkeypatch.setattr(WHERE[variant.__base__], variant)
    for seed in publishing():
        try:
            run_random_job(seed, **machines)
        except InvariantViolationError as error:
            assert re.search(expected, str(error)), f"seed {seed}: {error}"
            return
    pytest.fail(f"{len(publishing())} random jobs have not caught it")
