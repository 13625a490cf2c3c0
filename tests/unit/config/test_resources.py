"""`resources` of a job, of its mappers and reducers, and of steps: what each task requests, and how plans say it."""

from __future__ import annotations

from typing import Any

import pytest

from dpa import Flow, Job
from dpa.errors import ConfigError
from dpa.protocol.wire.nodes import Resources
from dpa.report._plan_content import facts

ROWS = [{"word": "tea"}, {"word": "ink"}]


def requested(**sections: Any) -> dict[str, Resources]:
    return dict(Job(input=ROWS, key="word", value=[], reducer="count", **sections).spec.demand.each)


def test_tasks_request_what_their_stage_says_and_else_what_the_job_says() -> None:
    asked = requested(resources={"cpus": 1, "reducers": {"cpus": 2, "memory": "2GiB", "custom": {"GPU": 1}}})
    assert asked == {"mapper": Resources(1.0), "reducer": Resources(2.0, 2**31, {"GPU": 1.0})}
    assert requested() == {"mapper": Resources(), "reducer": Resources()}


def test_steps_have_resources_of_their_own_in_python_as_in_job_files() -> None:
    flow = Flow("words", resources={"cpus": 0.5})
    flow.read(ROWS, name="rows").key_by("word").reduce("count", name="counts", resources={"cpus": 2})
    asked = flow.job().spec.demand
    assert asked.each == {"rows": Resources(0.5), "counts": Resources(2.0)}
    assert asked.tasks == {"rows": 2, "counts": 4}


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"cpus": -1}, "greater than or equal to 0"),
        ({"memory": "4 apples"}, "could not interpret byte unit"),
        ({"custom": {"CPU": 1}}, "'CPU' is no resource of your own: use the keys `cpus` and `memory`"),
    ],
)
def test_what_cannot_be_requested_is_an_error_at_its_key(resources: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"resources\.{next(iter(resources))}.*{message}"):
        requested(resources=resources)


def test_a_graph_has_no_mappers_and_reducers_that_could_request_something() -> None:
    flow = Flow("words", resources={"reducers": {"cpus": 2}})
    flow.read(ROWS, name="rows").key_by("word").reduce("count", name="counts")
    with pytest.raises(ConfigError, match="go without `stages`: give steps `resources`"):
        flow.job()


def test_a_plan_shows_what_tasks_request() -> None:
    resources = {"reducers": {"cpus": 1, "memory": "1536MiB", "custom": {"license": 2}}}
    job = Job(input=ROWS, key="word", value=[], reducer="count", resources=resources)
    forecast = job.forecast()
    said = {stage.name: next(facts(stage, forecast)) for stage in forecast.stages}
    assert said == {"mapper": "2 tasks", "reducer": "4 tasks x 1 CPU, 1.5 GiB of memory, 2 license"}
