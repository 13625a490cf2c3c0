"""What a job file may say about `elastic`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow, Job
from dpa.errors import ConfigError
from dpa.executors import Process, Reducer

TABLE = pa.table({"key": ["a"], "value": [1]})


class Alone(Reducer[int, int]):
    """Cannot merge."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        return state + value


def test_the_bounds_of_a_stage_reach_its_tasks() -> None:
    job = Job(input=TABLE, reducer="sum", parallelism={"reducers": 2}, elastic={"max_tasks": 4, "busy": 0.8})
    graph = job.spec.plan({"mapper": ()}, {"mapper": TABLE.schema}).graph
    elastic = graph["reducer"].elastic
    assert elastic is not None and (elastic.min_tasks, elastic.max_tasks, elastic.busy) == (1, 4, 0.8)
    assert graph["mapper"].elastic is None


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (
            {"elastic": {"min_tasks": 3}, "parallelism": {"reducers": 2}},
            "elastic: the stage begins with 2 tasks, not between",
        ),
        (
            {"elastic": {}, "reducer": Alone(), "balance": "none"},
            "elastic: the number of tasks cannot change: two states of a key cannot be merged; set",
        ),
        ({"elastic": {"tasks": 3}}, "elastic.*tasks"),
        ({"elastic": {"min_tasks": 0}}, "elastic.min_tasks"),
    ],
)
def test_what_cannot_be_elastic_is_refused(sections: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Job(**{"input": TABLE, "reducer": "sum", **sections}).check()


def test_a_step_that_runs_in_the_tasks_before_it_has_no_number_of_its_own() -> None:
    flow = Flow()
    flow.read(TABLE).map(lambda record: record, elastic={}).key_by("key").reduce("sum")
    with pytest.raises(
        ConfigError, match=r"stages\.map\.elastic: the step runs in the tasks before it: give it `parallelism`"
    ):
        flow.check()


class Each(Process[int, int]):
    def zero(self) -> int:
        return 0

    def process(self, key: str, state: int, value: int) -> tuple[int, list[dict[str, Any]]]:
        return state, []


def test_a_process_is_elastic_where_its_states_migrate() -> None:
    for consistency in ("merge", "migrate"):
        flow = Flow()
        flow.read(TABLE).key_by("key").process(Each(), elastic={}, consistency=consistency)
        if consistency == "migrate":
            flow.check()
        else:
            with pytest.raises(ConfigError, match=r"stages\.process\.elastic: .*cannot be merged"):
                flow.check()


def read_and_processed(parallelism: int, *between: str, **elastic: Any) -> Flow:
    """A flow that reads with so many tasks, does something between on one, and processes."""
    flow = Flow()
    rows = flow.read(TABLE, name="lines", parallelism=parallelism, **elastic)
    for step in between:
        if step == "map":
            rows = rows.map(lambda row: row, name="map", parallelism=1)
        else:
            rows = rows.key_by("key").reduce("sum", name="sum", parallelism=1)
    rows.key_by("key").process(Each(), name="each")
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
