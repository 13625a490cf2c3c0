"""What a job makes of `grouping`, `consistency` and `elastic`, and what it refuses, before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow, Job, Process, Reducer
from dpa.aggregates import Count
from dpa.balance.options import NoBalancingOptions
from dpa.errors import ConfigError
from dpa.executors import Record
from dpa.routing.groupings.options import BY_KIND, KINDS, SignalOptions
from dpa.testing import LocalBackend, run_local

TABLE = pa.table({"key": ["a"], "value": [1]})
SCATTERING = [kind for kind in KINDS if kind not in ("ring", "key")]
every_kind = pytest.mark.parametrize("kind", KINDS)


class Last(Reducer[Any, Any]):
    """Cannot merge."""

    def zero(self) -> Any:
        return None

    def reduce(self, state: Any, value: Any) -> Any:
        return value


class Running(Process[int, int]):
    """Emits the sum so far with each value: wrong wherever a state is lost, or a value is out of order."""

    def zero(self) -> int:
        return 0

    def process(self, key: str, state: int, value: int) -> tuple[int, Iterable[Record]]:
        return state + value, [{"key": key, "value": value, "so_far": state + value}]


def job(reducer: Any = None, **sections: Any) -> Job:
    return Job(**{"input": TABLE, "key": "key", "reducer": reducer or Count(), **sections})


def migrating(reducer: Any = None, **sections: Any) -> Job:
    return job(reducer or Last(), consistency="migrate", **sections)


def running(**options: Any) -> Flow:
    made = Flow("running")
    rows = made.read([{"key": f"k{n % 9}", "value": n} for n in range(300)], name="rows", parallelism=1)
    rows.key_by("key").process(Running(), name="running", **options)
    return made


@every_kind
def test_only_the_ring_is_balanced_however_the_grouping_is_given(kind: str) -> None:
    made = job(grouping=kind)
    made.check()
    assert made.config.grouping.kind == kind
    assert made.config.balance.strategy == ("adaptive" if kind == "ring" else "none")
    seeded = job(grouping={"kind": kind}, balance={"hash_seed": 5})
    assert seeded.config.balance.strategy == made.config.balance.strategy
    given = job(grouping=BY_KIND[kind]())
    assert (given.config.grouping, given.config.balance) == (made.config.grouping, made.config.balance)
    static = job(grouping=kind, balance=NoBalancingOptions(hash_seed=5)).config.balance
    assert static == job(grouping=kind, balance={"strategy": "none", "hash_seed": 5}).config.balance


@pytest.mark.parametrize("kind", SCATTERING)
def test_a_grouping_that_scatters_keys_is_refused_without_merge_and_where_states_migrate(kind: str) -> None:
    scatters = f"grouping: `{kind}` sends records of one key to several tasks, but "
    with pytest.raises(ConfigError, match=rf"{scatters}.*Last has no `merge`"):
        job(Last(), grouping=kind).check()
    with pytest.raises(ConfigError, match=f"{scatters}with `consistency: migrate`"):
        migrating(Count(), grouping=kind).check()


@every_kind
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


def test_what_a_job_says_of_its_grouping_reaches_mappers_and_reducers() -> None:
    said = {"kind": "consistent", "epsilon": 0.5, "virtual_workers": 7, "proportional": False, "pooled": True}
    signals = {"slot_seconds": 2.0, "theta_busy": 0.8, "theta_idle": 0.1, "utilisation": "queue"}
    made = job(grouping={**said, **signals})
    assert vars(made.config.grouping) == {**said, **signals}
    assert made.config.grouping.signals == SignalOptions(**signals)
    assert job(grouping="random_choices").config.grouping.signals is None


def test_states_that_migrate_need_no_merge_and_are_balanced_by_default(tmp_path: Path) -> None:
    for strategy in ("none", "halving", "doubling", "adaptive"):
        migrating(balance={"strategy": strategy}).check()
    for reducer in (Last(), Count()):
        made = migrating(reducer)
        made.check()
        [_, step] = made.spec.steps
        assert (step.balance.strategy, step.config.consistency) == ("adaptive", "migrate")
    migrating(balance={"strategy": "halving", "forwarding": "eager"}).check()
    migrating(Count(), output={"path": str(tmp_path / "out"), "publish": "table"}).check()


def test_a_process_is_balanced_where_its_states_migrate_which_reaches_the_stage() -> None:
    for options, strategy in (({}, "none"), ({"consistency": "migrate"}, "adaptive")):
        spec = running(**options).job().spec
        assert spec.steps[-1].balance.strategy == strategy
        stages = spec.plan({}, {"rows": TABLE.schema}).graph.stages
        assert [stage.migrates for stage in stages] == [False, bool(options)]


def test_states_move_half_way_in_a_local_run_and_the_result_is_that_of_plain_python() -> None:
    so_far: dict[str, int] = {}
    expected = []
    for n in range(300):
        so_far[f"k{n % 9}"] = so_far.get(f"k{n % 9}", 0) + n
        expected.append({"key": f"k{n % 9}", "value": n, "so_far": so_far[f"k{n % 9}"]})
    made = running(consistency="migrate", parallelism=3)
    assert sorted(run_local(made)["running"].to_pylist(), key=lambda row: row["value"]) == expected
    stays = running(consistency="migrate").run(backend=LocalBackend(redistributes=False))
    assert stays.table().num_rows == 300


def test_the_bounds_of_a_stage_reach_its_tasks() -> None:
    spec = job("sum", parallelism={"reducers": 2}, elastic={"max_tasks": 4, "busy": 0.8}).spec
    graph = spec.plan({"mapper": ()}, {"mapper": TABLE.schema}).graph
    elastic = graph["reducer"].elastic
    assert elastic is not None and (elastic.min_tasks, elastic.max_tasks, elastic.busy) == (1, 4, 0.8)
    assert graph["mapper"].elastic is None


def read_and_processed(parallelism: int, *between: str, **elastic: Any) -> Flow:
    """A flow that reads with some tasks, does something between on one, and processes."""
    flow = Flow()
    rows = flow.read(TABLE, name="lines", parallelism=parallelism, **elastic)
    for step in between:
        if step == "map":
            rows = rows.map(lambda row: row, name="map", parallelism=1)
        else:
            rows = rows.key_by("key").reduce("sum", name="sum", parallelism=1)
    rows.key_by("key").process(Running(), name="each")
    return flow


@pytest.mark.parametrize(
    ("parallelism", "between", "ordered"),
    [
        (1, (), {"lines": "each"}),
        (2, (), {}),
        (1, ("map",), {"lines": "each", "map": "each"}),
        (2, ("map",), {"map": "each"}),
        (1, ("sum",), {}),
    ],
)
def test_stages_of_one_task_before_a_process_keep_the_order_of_rows(
    parallelism: int, between: tuple[str, ...], ordered: dict[str, str]
) -> None:
    spec = read_and_processed(parallelism, *between).job().spec
    graph = spec.plan({"lines": ()}, {"lines": TABLE.schema}).graph
    assert {stage.name: stage.ordered_for for stage in graph.stages if stage.ordered_for is not None} == ordered


def test_the_one_reader_before_a_process_is_not_elastic() -> None:
    message = r"stages\.lines\.elastic: each takes the records of a key in the order in which one task emits them"
    with pytest.raises(ConfigError, match=message):
        read_and_processed(1, elastic={}).job().spec.compilation({"lines": TABLE.schema})
    read_and_processed(2, elastic={}).job().spec.compilation({"lines": TABLE.schema})


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (
            {"grouping": "key", "balance": {"strategy": "halving"}},
            "balance.strategy: `halving` redistributes the ring, which the grouping `key`",
        ),
        ({"consistency": "eventual"}, "consistency: Input should be 'merge' or 'migrate'"),
        (
            {"consistency": "migrate", "balance": {"strategy": "halving", "forwarding": "lazy"}},
            "balance.forwarding: `lazy` leaves records in queues though",
        ),
        (
            {"elastic": {}, "reducer": Last(), "balance": "none"},
            "elastic: the number of tasks cannot change: two states of a key cannot be merged; set",
        ),
        ({"elastic": {"tasks": 3}}, "elastic.*tasks"),
        ({"elastic": {"min_tasks": 0}}, "elastic.min_tasks"),
    ],
)
def test_sections_that_do_not_go_together_are_refused(sections: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        job(**sections).check()


def test_options_that_a_step_has_no_use_for_are_refused() -> None:
    why = r"Running is a process, .* set `consistency: migrate`, or the strategy to `none`"
    with pytest.raises(ConfigError, match=why):
        running(balance="halving").check()
    with pytest.raises(ConfigError, match=r"stages\.running\.elastic: .*cannot be merged"):
        running(elastic={}).check()
    running(elastic={}, consistency="migrate").check()
    mapped = Flow("rows")
    mapped.read([{"n": 1}], name="rows").map(dict, name="same", parallelism=2, consistency="migrate")
    with pytest.raises(ConfigError, match=r"stages.same: `map` has no use for `consistency`"):
        mapped.check()
    fused = Flow()
    fused.read(TABLE).map(lambda record: record, elastic={}).key_by("key").reduce("sum")
    why = r"stages\.map\.elastic: the step runs in the tasks before it: give it `parallelism`"
    with pytest.raises(ConfigError, match=why):
        fused.check()
