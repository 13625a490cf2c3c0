"""Every experiment runs to its end in its quick form, and writes what it should."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EXPERIMENTS = sorted(
    file.stem for file in (ROOT / "experiments").glob("*.py") if "__main__" in file.read_text(encoding="utf-8")
)

TIMEOUT_SECONDS = 300
"""For one experiment; on two idle cores each needs less than a minute."""


LEFT_OUT = {"aggregation", "figure3", "throughput"}
"""They take longest, and what they are made of is tested elsewhere: rounds of aggregation, `table1`, `memory`."""

FIGURES = ("8", "13", "15")
"""Of the consistent-grouping paper; the others are made by the same code."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in LEFT_OUT])
def test_an_experiment_runs_in_its_quick_form_and_writes_its_result(name: str, tmp_path: Path) -> None:
    check(name, [f"experiments.{name}"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_of_consistent_grouping_is_made_in_its_quick_form(figure: str, tmp_path: Path) -> None:
    check(f"cg_{figure}", ["experiments.cg", "--figure", figure], tmp_path)


def check(name: str, module: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", *module, "--quick", "--results", str(tmp_path)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert set(document) == {"stamp", "data", "targets"}
    assert document["stamp"]["commit"]
    assert document["stamp"]["configuration"]["quick"] is True
    assert document["data"]
    assert all(set(target) == {"name", "wanted", "reached", "met"} for target in document["targets"])
    text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    pictured = f"![{name}]({name}.png)" in text
    assert pictured == (tmp_path / f"{name}.png").exists()
    assert {file.stem for file in tmp_path.iterdir()} == {name}
