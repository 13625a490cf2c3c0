"""Processes of a generation that has ended: which of them the next one takes, those among them that have just begun."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from programs_for_tests import PATIENCE

from dpa._util.outages import HERE
from dpa.errors import ProtocolError
from dpa.protocol.graph import REDUCER
from dpa.protocol.plan import RunPlan
from dpa.protocol.wire.addresses import RELAY, Address
from dpa.runtime._processes import Actor, KeptProcesses
from dpa.runtime.actors.actor import LoadBalancerActor, Share, StageActor, TaskActor
from dpa.runtime.actors.relay import RelayActor
from experiments.simulated_jobs.map_reduce import map_reduce

pytestmark = pytest.mark.usefixtures("ray")


@contextmanager
def two_of_a_kind(gate: Path) -> Iterator[tuple[Actor, Actor]]:
    """One that is not up before this file is there, and one that is."""

    class Waiting(TaskActor):
        """A class of a function, as workers cannot import this module."""

        def __init__(self, gate: str = str(gate)) -> None:
            while not Path(gate).exists():
                time.sleep(0.01)
            super().__init__()

        @ray.method(concurrency_group="control")
        def wait_for(self, gate: str) -> None:
            while not Path(gate).exists():
                time.sleep(0.01)

    gate.touch()
    up = Actor.create(Waiting)
    ray.get(up.greeted)
    gate.unlink()
    starting = Actor.create(Waiting)
    try:
        yield starting, up
    finally:
        for actor in (starting, up):
            ray.kill(actor.handle)


def test_processes_that_are_still_being_started_are_taken_behind_those_that_are_up(tmp_path: Path) -> None:
    with two_of_a_kind(tmp_path / "gate") as (starting, up):
        kept = KeptProcesses([starting, up], generation=1)
        assert [kept.actor(up.kind).handle for _ in range(2)] == [up.handle, starting.handle]
        assert [process.node for process in kept.taken] == [ray.get_runtime_context().get_node_id()]
        assert not starting.is_up
        (tmp_path / "gate").touch()
        assert ray.get(starting.handle.reset.remote(2), timeout=PATIENCE).pid


def test_a_process_that_has_died_while_it_was_started_is_not_taken(tmp_path: Path) -> None:
    with two_of_a_kind(tmp_path / "gate") as (starting, up):
        ray.kill(starting.handle)
        with pytest.raises(ray.exceptions.ActorDiedError):
            ray.get(starting.greeted, timeout=PATIENCE)
        another = KeptProcesses([starting], generation=1).actor(up.kind)
        assert another.handle not in (starting.handle, up.handle)
        ray.kill(another.handle)


def test_a_process_that_becomes_a_task_for_long_is_not_one_that_starts(tmp_path: Path) -> None:
    """Or the next generation would wait for what it becomes of the one before."""
    with two_of_a_kind(tmp_path / "gate") as (_, up):
        up.handle.wait_for.remote(str(tmp_path / "never"))
        later = replace(up, greeted=up.handle.greet.options(concurrency_group="watch").remote())
        ray.get(later.greeted, timeout=PATIENCE)
        another = KeptProcesses([later], generation=1).actor(up.kind)
        assert another.handle != up.handle
        ray.kill(another.handle)


def test_where_a_node_is_avoided_nothing_is_kept_that_may_be_starting_there(tmp_path: Path) -> None:
    with two_of_a_kind(tmp_path / "gate") as (starting, up):
        kept = KeptProcesses([starting, up], generation=1, avoided={"another"})
        assert kept.actor(up.kind).handle == up.handle
        (tmp_path / "gate").touch()
        with pytest.raises(ray.exceptions.ActorDiedError):
            ray.get(starting.handle.greet.remote(), timeout=PATIENCE)
        elsewhere = replace(starting, avoided=frozenset({"another"}))
        assert not elsewhere.may_be_on({"another"}) and elsewhere.may_be_on({"another", "a third"})
        assert not replace(starting, node="one").may_be_on({"another"})


def test_a_process_is_taken_only_for_what_it_was_started_with(tmp_path: Path) -> None:
    with two_of_a_kind(tmp_path / "gate") as (_, up):
        small, large = Share({"CPU": 0.25}), Share({"CPU": 0.5})
        kept = KeptProcesses([replace(up, share=small)], generation=1)
        others = [kept.actor(up.kind, share=large), kept.actor(up.kind)]
        assert up.handle not in [other.handle for other in others]
        assert kept.actor(up.kind, share=small).handle == up.handle
        for other in others:
            ray.kill(other.handle)


def test_a_process_that_an_earlier_generation_has_made_a_task_meanwhile_leaves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had not begun when the others were reset, and was asked for by both."""
    relay, balancer, coordinator, graph = RelayActor(), LoadBalancerActor(), SimpleNamespace(), map_reduce((), 1, 1)
    monkeypatch.setattr("dpa.runtime.actors.relay.name_process", lambda *given: None)
    for generation in (0, 1):
        before = relay._is_over
        relay.serve("job", Address(RELAY, 0), coordinator, generation)
        assert before.is_set() == (generation > 0), "or its thread would pass on what is said to the earlier one"
    with pytest.raises(ProtocolError, match="generation 0 has ended: this process is of generation 1"):
        relay.serve("job", Address(RELAY, 0), coordinator, 0)
    relay.reset(2)
    monkeypatch.setattr("dpa.runtime.actors._task.name_process", lambda *given: None)
    ended: list[int] = []
    monkeypatch.setattr(balancer, "reset", lambda generation: ended.append(generation) or object())
    for generation in (0, 1):
        balancer.become(RunPlan(graph, tasks={}, deliveries={}, generation=generation))
    assert ended == [1]
    task = StageActor()
    monkeypatch.setattr(task, "reset", lambda generation: ended.append(generation) or object())
    monkeypatch.setattr("dpa.runtime.actors.actor.ray.get", lambda given: given)
    plan = RunPlan(graph, tasks={}, deliveries={}, generation=3)
    with pytest.raises(KeyError, match=REDUCER):  # it has no user code
        task.become(Address(REDUCER, 0), [SimpleNamespace(rows=0, tasks=1, changes=None, unpack=lambda: plan), None])
    assert ended == [1, 3]
    HERE.end()


def test_a_process_whose_user_code_does_not_return_ends_rather_than_be_of_two_generations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    balancer, ended = LoadBalancerActor(), []
    monkeypatch.setattr(balancer, "reset", lambda generation: None)
    monkeypatch.setattr("dpa.runtime.actors.actor.os._exit", ended.append)
    balancer._leave_for(0)
    assert not ended, "it is of this generation"
    balancer._leave_for(1)
    assert ended == [1]
