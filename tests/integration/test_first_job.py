"""`dpa init`, and the job that it writes, as a beginner runs it: through the console script, on Ray and Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]


def dpa(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    script = "import sys; from dpa.command import app; sys.exit(app(prog_name='dpa'))"
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=180, check=False)


def test_the_job_of_init_runs_and_is_equal_to_the_reference(tmp_path: Path) -> None:
    made = dpa("init", "first", cwd=tmp_path)
    assert made.returncode == 0 and "cd first && dpa run job.yaml" in made.stdout
    assert {path.name for path in (tmp_path / "first").iterdir()} == {"job.yaml", "functions.py", "orders.csv"}

    done = dpa("run", "job.yaml", "--progress", "none", cwd=tmp_path / "first")
    assert done.returncode == 0, done.stderr
    assert "reference: match" in done.stdout.splitlines()
    totals = {row["shop"]: row["orders"] for row in pq.read_table(tmp_path / "first" / "out").to_pylist()}
    assert len(totals) == 21 and max(totals, key=totals.__getitem__) == "busy"

    (tmp_path / "first" / "job.yaml").write_text("mine", encoding="utf-8")
    again = dpa("init", "first", cwd=tmp_path)
    assert again.returncode == 2 and "first has functions.py and job.yaml and orders.csv already" in again.stderr
    assert (tmp_path / "first" / "job.yaml").read_text(encoding="utf-8") == "mine"
