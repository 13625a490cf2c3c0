"""What a job makes of `grouping`, and what it refuses, before anything starts."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from dpa import Job, Reducer
from dpa.aggregates import Count
from dpa.balance.options import NoBalancingOptions
from dpa.errors import ConfigError
from dpa.routing.groupings.options import BY_KIND, KINDS, SignalOptions


class Last(Reducer[Any, Any]):
    """Cannot merge."""

    def zero(self) -> Any:
        return None

    def reduce(self, state: Any, value: Any) -> Any:
        return value


def job(reducer: Any = None, **sections: Any) -> Job:
    return Job(input=[{"key": "a"}], key="key", reducer=reducer or Count(), **sections)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_ring_is_balanced(kind: str) -> None:
    made = job(grouping=kind)
    made.check()
    assert made.config.grouping.kind == kind
    assert made.config.balance.strategy == ("adaptive" if kind == "ring" else "none")
    assert (
        job(grouping={"kind": kind}, balance={"hash_seed": 5}).config.balance.strategy == made.config.balance.strategy
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_section_that_is_an_object_means_the_same(kind: str) -> None:
    given = job(grouping=BY_KIND[kind]())
    assert (given.config.grouping, given.config.balance) == (
        job(grouping=kind).config.grouping,
        job(grouping=kind).config.balance,
    )
    static = job(grouping=kind, balance=NoBalancingOptions(hash_seed=5)).config.balance
    assert static == job(grouping=kind, balance={"strategy": "none", "hash_seed": 5}).config.balance


def test_a_strategy_for_another_grouping_than_the_ring_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"balance.strategy: `halving` redistributes the ring, which the grouping `key`"
    ):
        job(grouping="key", balance={"strategy": "halving"}).check()
    job(grouping="key", balance={"strategy": "none"}).check()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("ring", "key")])
def test_a_reducer_that_cannot_merge_is_refused_where_keys_are_scattered(kind: str) -> None:
    wanted = rf"grouping: `{kind}` sends records of one key to several tasks, but .*Last has no `merge`"
    with pytest.raises(ConfigError, match=wanted):
        job(Last(), grouping=kind).check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_grouping_is_refused_where_numba_is_not_installed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    if BY_KIND[kind].is_compiled:
        with pytest.raises(ConfigError, match=rf"grouping: `{kind}` needs numba: pip install 'dpa\[groupings\]'"):
            job(grouping=kind).check()
    else:
        job(grouping=kind).check()


def test_a_bound_on_memory_of_states_that_cannot_be_merged_needs_rocksdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    job(grouping="key", limits={"state_mb": 100}).check()
    job(Last(), grouping="key").check()
    with pytest.raises(ConfigError, match=r"limits.state_mb: states .*: pip install 'dpa\[spill\]'"):
        job(Last(), grouping="key", limits={"state_mb": 100}).check()


def test_key_grouping_needs_no_merge() -> None:
    job(Last(), grouping="key").check()


def test_what_a_job_says_of_its_grouping_reaches_mappers_and_reducers() -> None:
    said = {"kind": "consistent", "epsilon": 0.5, "virtual_workers": 7, "proportional": False, "pooled": True}
    signals = {"slot_seconds": 2.0, "theta_busy": 0.8, "theta_idle": 0.1, "utilisation": "queue"}
    made = job(grouping={**said, **signals})
    assert vars(made.config.grouping) == {**said, **signals}
    assert made.config.grouping.signals == SignalOptions(**signals)
    assert job(grouping="random_choices").config.grouping.signals is None
