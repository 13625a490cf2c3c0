"""The programs of `experiments.columns`: their lines are counted, and they give one result in one process."""

from pathlib import Path

import polars as pl
import pytest

from dpa import Flow, Job
from dpa.testing import LocalBackend
from experiments import columns
from experiments.column_programs import programs


def of_four_lines(rows: list[int]) -> int:
    """Whose docstring, and empty lines, are not counted."""
    total = 0

    for row in rows:
        total += row
    return total


def test_lines_of_a_program_are_those_of_its_body_and_results_that_differ_are_refused() -> None:
    assert columns.lines_of(of_four_lines) == 4
    assert columns.lines_of(programs.best_dpa) <= columns.MOST_LINES["dpa"]
    wanted = pl.DataFrame({"segment": ["a"], "total": [1.0]})
    columns.require_equal("one", pl.DataFrame({"total": [1.0 + 1e-12], "segment": ["a"]}), wanted)
    with pytest.raises(AssertionError, match="other"):
        columns.require_equal("other", pl.DataFrame({"segment": ["a"], "total": [1.1]}), wanted)


@pytest.fixture(scope="module")
def directory() -> Path:
    with columns.tables(2_000, 0) as found:
        yield found


@pytest.mark.parametrize("task", columns.TASKS)
def test_flow_and_job_file_give_what_polars_gives(task: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(directory / name) for name in ("orders.parquet", "customers.parquet")]
    wanted = getattr(programs, f"{task}_polars")(*paths)
    run = Flow.run
    monkeypatch.setattr(Flow, "run", lambda flow: run(flow, backend=LocalBackend()))
    flow = getattr(programs, f"{task}_dpa")(*paths)
    job = Job.from_file(str(directory / f"{task}.yaml")).run(backend=LocalBackend())
    for result in (flow, job):
        columns.require_equal("dpa", pl.DataFrame(result.table()), wanted)
