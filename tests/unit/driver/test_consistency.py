"""What a job makes of `consistency`, and what it refuses, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow, Job, Process, Reducer
from dpa.aggregates import Count
from dpa.errors import ConfigError
from dpa.executors import Record
from dpa.routing.groupings.options import KINDS
from dpa.testing import LocalBackend, run_local


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
    return Job(input=[{"key": "a"}], key="key", reducer=reducer or Last(), consistency="migrate", **sections)


def flow(**options: Any) -> Flow:
    made = Flow("running")
    rows = made.read([{"key": f"k{n % 9}", "value": n} for n in range(300)], name="rows", parallelism=1)
    rows.key_by("key").process(Running(), name="running", **options)
    return made


@pytest.mark.parametrize("strategy", ["none", "halving", "doubling", "adaptive"])
def test_states_that_migrate_need_no_merge_whatever_the_strategy(strategy: str) -> None:
    job(balance={"strategy": strategy}).check()


@pytest.mark.parametrize("reducer", [Last(), Count()], ids=["without merge", "with merge"])
def test_a_job_whose_states_migrate_is_balanced_by_default(reducer: Any) -> None:
    made = job(reducer)
    made.check()
    [_, step] = made.spec.steps
    assert (step.balance.strategy, step.config.consistency) == ("adaptive", "migrate")


def test_a_process_is_balanced_where_its_states_migrate() -> None:
    strategies = {
        name: flow(**options).job().spec.steps[-1].balance.strategy
        for name, options in {"merge": {}, "migrate": {"consistency": "migrate"}}.items()
    }
    assert strategies == {"merge": "none", "migrate": "adaptive"}


def test_consistency_reaches_the_stage() -> None:
    spec = flow(consistency="migrate").job().spec
    graph = spec.plan({}, {"rows": pa.schema({"key": pa.string(), "value": pa.int64()})}).graph
    assert [stage.migrates for stage in graph.stages] == [False, True]


def test_without_it_a_process_is_told_that_its_states_can_migrate() -> None:
    wanted = "Running is a process, .* set `consistency: migrate`, or the strategy to `none`"
    with pytest.raises(ConfigError, match=wanted):
        flow(balance="halving").check()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("ring", "key")])
def test_a_grouping_that_gives_a_key_several_reducers_is_refused(kind: str) -> None:
    wanted = f"grouping: `{kind}` sends records of one key to several tasks, but with `consistency: migrate`"
    with pytest.raises(ConfigError, match=wanted):
        job(Count(), grouping=kind).check()


def test_partial_results_may_be_published(tmp_path: Path) -> None:
    job(Count(), output={"path": str(tmp_path / "out"), "publish": "table"}).check()


def test_lazy_forwarding_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"balance.forwarding: `lazy` leaves records in queues though"):
        job(balance={"strategy": "halving", "forwarding": "lazy"}).check()
    job(balance={"strategy": "halving", "forwarding": "eager"}).check()


def test_a_step_without_a_key_has_no_use_for_it() -> None:
    made = Flow("rows")
    made.read([{"n": 1}], name="rows").map(dict, name="same", parallelism=2, consistency="migrate")
    with pytest.raises(ConfigError, match=r"stages.same: `map` has no use for `consistency`"):
        made.check()


def test_there_are_two_modes() -> None:
    with pytest.raises(ConfigError, match="consistency: Input should be 'merge' or 'migrate'"):
        Job(input=[{"key": "a"}], reducer=Count(), consistency="eventual")


def test_states_move_half_way_in_a_local_run_and_the_result_is_that_of_plain_python() -> None:
    so_far: dict[str, int] = {}
    expected = []
    for n in range(300):
        so_far[f"k{n % 9}"] = so_far.get(f"k{n % 9}", 0) + n
        expected.append({"key": f"k{n % 9}", "value": n, "so_far": so_far[f"k{n % 9}"]})
    made = flow(consistency="migrate", parallelism=3)
    assert sorted(run_local(made)["running"].to_pylist(), key=lambda row: row["value"]) == expected


def test_a_local_backend_that_redistributes_nothing_leaves_states_where_they_are() -> None:
    result = flow(consistency="migrate").run(backend=LocalBackend(redistributes=False))
    assert result.table().num_rows == 300
