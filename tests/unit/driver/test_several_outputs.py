"""Steps whose rows go to several places, each published in its own way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from dpa import Flow, Job, Result, results, tumbling
from dpa.errors import ConfigError
from dpa.execution.receivers import receiver_of
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.executors import Process
from dpa.testing import LocalBackend
from tests.unit.output_samples import of

ROWS = 3_000
TABLE = pa.table(
    {
        "word": [f"w{number % 7}" for number in range(ROWS)],
        "at": pa.array([number * 1_000_000 for number in range(ROWS)], pa.timestamp("us")),
    }
)


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def run(make: Callable[[Any], Any]) -> Result:
    flow = Flow("several", limits={"batch_records": 50, "split_records": 200})
    make(flow.read(TABLE, time={"column": "at", "out_of_order": "0s"}))
    return flow.run(backend=LocalBackend(row_seconds=0.005))


def test_each_output_of_windows_gets_all_rows_however_it_is_published(tmp_path: Path) -> None:
    given: list[tuple[int, pa.Table]] = []

    def make(read: Any) -> None:
        windows = read.window(tumbling("100s")).key_by("word").reduce("count", name="windows", parallelism=2)
        windows.write(tmp_path / "whole").write(tmp_path / "delta", format="delta", publish="final")
        windows.write(tmp_path / "slow", publish={"mode": "final", "every": 4})
        windows.write(tmp_path / "so-far", publish={"mode": "table", "every": 2})
        windows.results(lambda table, epoch: given.append((epoch, table)))

    result = run(make)
    whole = rows(result.table())
    assert len(whole) == ROWS // 100 * 7
    assert rows(DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()) == whole
    for name in ("slow", "so-far"):
        found = results(tmp_path / name)
        assert (rows(found.table), found.is_last) == (whole, True)
    epochs = [epoch for epoch, _ in given]
    assert rows(pa.concat_tables(table for _, table in given)) == whole
    assert len(epochs) > 5 and epochs == sorted({*epochs})
    [report] = [stage for stage in result.report.stages if stage.output is not None]
    assert report.output is not None and report.output.path == str(tmp_path / "whole")
    assert [output.path for output in report.more_outputs][:3] == [
        str(tmp_path / name) for name in ("delta", "slow", "so-far")
    ]
    assert {output.rows for output in (report.output, *report.more_outputs)} == {len(whole)}


def test_a_result_in_memory_is_published_elsewhere_as_well(tmp_path: Path) -> None:
    places = [{}, {"path": str(tmp_path / "changes"), "publish": "changes"}, {"path": str(tmp_path / "end")}]
    result = run(lambda read: read.key_by("word").reduce("count", write=places))
    assert result.table().num_rows == 7
    found = results(tmp_path / "changes")
    assert found.table.num_rows > 7 and rows(found.latest("word")) == rows(result.table())
    assert (tmp_path / "end" / "_job.yaml").exists()


def test_a_job_file_has_a_list_too_and_checks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job(
        input=TABLE,
        key="word",
        value=[],
        reducer="count",
        output=["whole", {"path": "table", "publish": "table"}],
    )
    assert rows(job.run(backend=LocalBackend()).table()) == rows(results("table").table)
    assert of({"output": "out"}).config.resolved()["output"]["path"] == "out"
    assert [each["path"] for each in of({"output": ["a", "b"]}).config.resolved()["output"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ([], r"output: .*at least 1"),
        ([{}, {}], r"output: one output stays in memory: give the others a `path`"),
        (["a", {"path": "b", "mod": "append"}], r"output.1.mod: unknown key; did you mean 'mode'\?"),
        ({"path": "b", "mod": "append"}, r"output.mod: unknown key; did you mean 'mode'\?"),
        ([{"path": "a", "publish": "table"}, "a"], r"output.1.path: a and a, of output.0.path, are one directory"),
        (["a", {"path": "b", "publish": "final"}], r"output.1.publish: no row of `reduce` is final before the end"),
        (
            [{"path": "a", "publish": "changes"}, {"path": "b", "publish": "changes"}],
            r"output.0.publish: of one step the `changes` are published once",
        ),
    ],
)
def test_what_cannot_be_is_refused(output: Any, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=why):
        Job(input=TABLE, key="word", value=[], reducer="count", output=output).check()


class Passing(Process):
    """Passes rows on."""

    def zero(self) -> None:
        return None

    def process(self, key: Any, state: Any, value: Any) -> tuple[Any, list[Any]]:
        return state, [value]


def test_rows_that_a_task_takes_over_are_published_once_where_others_keep_them() -> None:
    stage = ReduceStage(receiver_of(Passing()), (), publishes=("final", None, "final"))
    giver, taker = ReduceTask(stage, 0), ReduceTask(stage, 1)
    giver._emit(pa.record_batch({"n": [1, 2]}))
    assert giver.published(1, 0).num_rows == 2
    giver._emit(pa.record_batch({"n": [3]}))
    taker.add_rows(giver._kept)
    taker._emit(pa.record_batch({"n": [4]}))
    assert [taker.published(2, number)["n"].to_pylist() for number in (0, 2)] == [[3, 4], [1, 2, 3, 4]]
    taker._emit(pa.record_batch({"n": [5]}))
    taker.finish()
    taker.conform(None)
    assert [taker.published_last(3, number)["n"].to_pylist() for number in range(3)] == [[5], [1, 2, 3, 4, 5], [5]]
