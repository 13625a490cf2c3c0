"""Every experiment runs to its end in its quick form, and writes what it should."""

import json
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

EXPERIMENTS = sorted(
    file.stem for file in (ROOT / "experiments").glob("*.py") if "__main__" in file.read_text(encoding="utf-8")
)

LEFT_OUT = {
    "aggregation",
    "checkpoints",
    "endless",
    "event_times",
    "figure3",
    "looked",
    "makespan",
    "startup",
    "throughput",
}
"""They take longest. What they are made of is tested elsewhere, but for the runs on Ray of `figure3` and `table1`."""

PARTS = ("a", "c", "e")
"""Of the placement experiment."""

FIGURES = ("8", "13")
"""Of the consistent-grouping paper; the others are made by the same code, 14 and 15 with reducers on Ray."""


def test_what_is_treated_otherwise_exists() -> None:
    assert set(EXPERIMENTS) >= LEFT_OUT


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in LEFT_OUT])
def test_an_experiment_runs_in_its_quick_form_and_writes_its_result(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray: None, spark: "SparkSession"
) -> None:
    check(name, [f"experiments.{name}"], tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_of_consistent_grouping_is_made_in_its_quick_form(
    figure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray: None
) -> None:
    check(f"cg_{figure}", ["experiments.cg", "--figure", figure], tmp_path, monkeypatch)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_placement_experiment_is_made_in_its_quick_form(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(f"placement_{part}", ["experiments.placement", "--part", part], tmp_path, monkeypatch)


@pytest.mark.slow
def test_table_1_is_made_in_its_quick_form_in_virtual_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check("table1", ["experiments.table1", "--simulate"], tmp_path, monkeypatch)


def check(name: str, module: list[str], directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an experiment in this process, on the Ray and Spark that all tests share."""
    monkeypatch.setattr(sys, "argv", [*module, "--quick", "--results", str(directory)])
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.delitem(sys.modules, module[0], raising=False)  # a test of its parts may have imported it
    runpy.run_module(module[0], run_name="__main__", alter_sys=True)
    document = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
    assert set(document) == {"stamp", "data", "targets"}
    assert document["stamp"]["commit"]
    assert document["stamp"]["configuration"]["quick"] is True
    assert document["data"]
    assert all(set(target) == {"name", "wanted", "reached", "met"} for target in document["targets"])
    text = (directory / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    pictured = f"![{name}]({name}.png)" in text
    assert pictured == (directory / f"{name}.png").exists()
    assert {file.stem for file in directory.iterdir()} == {name}
