"""`dpa init`, and the job that it writes, as a beginner runs it, on Ray and Spark: the tutorial's test does so through
the console script."""

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from dpa.command import app


def dpa(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="dpa")


@pytest.mark.usefixtures("ray", "spark")
def test_the_job_of_init_runs_and_is_equal_to_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = dpa("init", "first")
    assert made.exit_code == 0 and "cd first && dpa run job.yaml" in made.stdout
    assert {path.name for path in (tmp_path / "first").iterdir()} == {"job.yaml", "functions.py", "orders.csv"}

    monkeypatch.chdir(tmp_path / "first")
    monkeypatch.setattr(sys, "path", [*sys.path])
    done = dpa("run", "job.yaml", "--progress", "none")
    sys.modules.pop("functions", None)
    assert done.exit_code == 0, done.stderr
    assert "reference: match" in done.stdout.splitlines()
    totals = {row["shop"]: row["orders"] for row in pq.read_table("out").to_pylist()}
    assert len(totals) == 21 and max(totals, key=totals.__getitem__) == "busy"

    Path("job.yaml").write_text("mine", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    again = dpa("init", "first")
    assert again.exit_code == 2 and "first has functions.py and job.yaml and orders.csv already" in again.stderr
    assert Path("first/job.yaml").read_text(encoding="utf-8") == "mine"
