"""Every machine is driven by events in any order, and only ever changes its state as its rules say."""

from __future__ import annotations

import ast
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

import dpa
from dpa.errors import DpaError
from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.machine import Machine
from dpa.protocol.machines import task_of
from dpa.protocol.rules import RuledMachine, State
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, FailureKind, StartFailed, TaskDied
from experiments.report.transitions import MACHINES
from experiments.simulated_jobs.random_jobs import run_random_job
from experiments.simulation.cluster import SimulatedCluster

Change = tuple[str, State, State]

RUNS: tuple[tuple[int, dict[str, bool]], ...] = (
    *((seed, {"placed": True}) for seed in (36, 32, 14, 2)),
    *((seed, {"migrates": True}) for seed in (39, 2)),
    (1, {"cuts": True}),
)
"""Seeds that reach every change of state, and how they are run."""


def named() -> set[Change]:
    """The changes of state that the rules name."""
    machines = [machine for of in MACHINES.values() for machine in of]
    return {
        (machine.__name__, state, following)
        for machine in machines
        for rule in machine.RULES
        for state in rule.states
        for following in rule.then
        if following is not None
    }


def walk(make: Callable[[], Machine], events: list[Event], draw: random.Random) -> None:
    """Let new machines handle the first of these events as they came, then some in any order."""
    for _ in range(2):
        machine, numbers = make(), defaultdict(count)
        ordered = events[: draw.randrange(len(events) + 1)]
        for number, event in enumerate([*ordered, *draw.choices(events, k=25)]):
            is_message = isinstance(event, Envelope)
            try:
                machine.handle(replace(event, seq=next(numbers[event.sender])) if is_message else event, 0.01 * number)
            except AssertionError:
                raise
            except Exception as error:  # what cannot come is refused, and leaves the state as it is
                assert isinstance(error, DpaError | LookupError), repr(error)


def test_machines_change_their_states_only_as_their_rules_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[Change] = set()

    def assign(machine: RuledMachine, state: State) -> None:
        before, machine.__dict__["state"] = machine.__dict__.get("state"), state
        if before is not None:
            found.add((type(machine).__name__, before, state))

    monkeypatch.setattr(
        RuledMachine, "state", property(lambda machine: machine.__dict__["state"], assign), raising=False
    )
    for seed, mode in RUNS:
        clusters: deque[SimulatedCluster] = deque(maxlen=1)
        run_random_job(seed, changes=True, **mode, watch=clusters.append)
        [cluster], events = clusters, defaultdict[Address, list[Event]](list)
        for _, address, event in cluster.log:
            events[address].append(event)
        events[COORDINATOR] += 20 * [TaskDied(COORDINATOR, FailureKind.RAISED, "why"), StartFailed("why")]
        draw, graph = random.Random(seed), cluster.graph
        for _ in range(4):
            walk(partial(CoordinatorMachine, graph), events[COORDINATOR], draw)
        del events[COORDINATOR]
        walk(partial(load_balancer_of, graph), events.pop(BALANCER), draw)
        for address, of in events.items():
            walk(partial(task_of, graph, address), of, draw)
    assert found - named() == set(), "no rule names them"
    assert named() - found == set(), "they never come"


def assigned(path: Path) -> Iterable[int]:
    """The lines that assign an attribute `state`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr == "state" and not isinstance(node.ctx, ast.Load):
            yield node.lineno


def test_only_the_rules_assign_states() -> None:
    package = Path(dpa.__file__).parent
    files = [*package.glob("protocol/**/*.py"), *package.glob("simulation/**/*.py"), *package.glob("runtime/**/*.py")]
    where = {path.relative_to(package).as_posix() for path in files if any(assigned(path))}
    assert where == {"protocol/rules.py"}
