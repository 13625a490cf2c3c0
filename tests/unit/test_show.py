"""`dpa show`: a data file, and the steps of a job file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dpa.command import app

STAGES = """
stages:
  orders: {read: {path: orders.csv}}
  large: {from: orders, filter: cents > 2}
  totals: {from: large, key_by: shop, agg: {cents: sum(cents)}, write: out}
"""
MAP_REDUCE = "python_path: [.]\ninput: {path: orders.csv}\nmapper: mine:doubled\nkey: shop\nreducer: sum\n"
MINE = "def doubled(order):\n    yield order['shop'], 2 * order['cents']\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files stand elsewhere: their paths are relative to the job file."""
    monkeypatch.chdir(tmp_path)
    files = {"orders.csv": "shop,cents\na,1\na,3\nb,4\n", "graph.yaml": STAGES, "job.yaml": MAP_REDUCE, "mine.py": MINE}
    (tmp_path / "in").mkdir()
    for name, text in files.items():
        (tmp_path / "in" / name).write_text(text, encoding="utf-8")


def shown(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["show", *arguments])


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return sorted(line.split() for line in result.stdout.splitlines()[3:])


def test_the_first_rows_of_a_data_file_are_shown() -> None:
    assert rows(shown("in/orders.csv", "--rows", "2")) == [["a", "1"], ["a", "3"]]


def test_each_step_of_a_graph_is_shown_and_the_last_one_by_default() -> None:
    assert rows(shown("in/graph.yaml")) == [["a", "3"], ["b", "4"]]
    assert rows(shown("in/graph.yaml", "large", "--set", "stages.large.filter=cents < 4")) == [["a", "1"], ["a", "3"]]
    assert not Path("in/out").exists()


def test_the_mapper_of_a_job_of_one_mapper_and_one_reducer_is_called() -> None:
    assert rows(shown("in/job.yaml")) == [["a", "8"], ["b", "8"]]
    assert len(rows(shown("in/job.yaml", "mapper"))) == 3


def test_columns_and_statistics_are_shown() -> None:
    assert shown("in/graph.yaml", "large", "--schema").stdout.split() == ["shop:", "string", "cents:", "int64"]
    described = shown("in/orders.csv", "--describe").stdout
    assert "null_count" in described and "2.666667" in described


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in/graph.yaml", "lrage"], "in/graph.yaml has no step 'lrage'; did you mean 'large'?"),
        (["in/orders.csv", "large"], "in/orders.csv: STEP and --set belong to a job file"),
        (["in/none.csv"], "none.csv"),
        (["in/order"], "in/order: no such file or directory; did you mean 'orders.csv'?"),
        (["in/orders"], "in/orders: no such file or directory; did you mean 'orders.csv'?"),
        (["in/none.yaml"], "cannot read the job file"),
    ],
)
def test_a_mistake_gives_status_2_and_one_line(arguments: list[str], message: str) -> None:
    result = shown(*arguments)
    assert (result.exit_code, message in result.stderr, result.stdout) == (2, True, ""), result.output
