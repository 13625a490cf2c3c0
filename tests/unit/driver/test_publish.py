"""What may be published by epoch and to several places, and what a job publishes that has only its last epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from dpa import Flow, Job, Result, Sink, results, session, tumbling
from dpa.errors import ConfigError
from dpa.execution.receivers import receiver_of
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.executors import Process
from dpa.testing import LocalBackend
from tests.unit.output_samples import of

TABLE = pa.table({"word": ["a", "b", "a"], "n": [1, 2, 3], "at": [0, 10, 20]})


class Passing(Process):
    def zero(self) -> None:
        return None

    def process(self, key: Any, state: Any, value: Any) -> tuple[Any, list[Any]]:
        return state, [value]


def counting(output: Any) -> Job:
    return Job(input=TABLE, key="word", value=[], reducer="count", output=output)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ({"publish": "final"}, r"output.publish: no row of `reduce` is final before the end, but in windows"),
        ({"publish": "some"}, r"output.publish.mode: .*'final', 'changes' or 'table'"),
        ({"publish": {"mode": "table", "every": 0}}, r"output.publish.every: .*greater than 0"),
        ({"publish": "table", "format": "delta", "mode": "append"}, "`publish: table` replaces all rows"),
        ({"publish": "changes", "path": None}, "`publish` needs a place"),
        ({"publish": "table", "path": None, "use": "builtins:len"}, "cannot be called with rows and an epoch"),
        ({"path": None, "use": "builtins:print"}, "is given rows by epoch: set `publish`, or name a `dpa.Sink`"),
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
def test_what_cannot_be_published_is_refused(
    output: Any, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # `out` may be there, of a job that was run before the tests
    with pytest.raises(ConfigError, match=why):
        counting({"path": "out", **output} if isinstance(output, dict) else output).check()


def test_what_a_step_cannot_publish_is_refused(tmp_path: Path) -> None:
    flow = Flow("refused")
    rows = flow.read({"format": "parquet", "path": str(tmp_path), "time": {"column": "at"}})
    for made, mode, why in [
        (rows.map(lambda row: row, name="map"), "table", "a `map` has no table that changes: publish what is `final`"),
        (rows.top_k(2, by="n", name="top"), "changes", "`changes` are of a `reduce` that has one row for each key"),
        (
            rows.window(session("1s")).key_by("word").reduce("count", name="sessions"),
            "changes",
            "a session's bounds, which are in its key, change",
        ),
    ]:
        made.write(tmp_path / made.step, publish=mode)
        with pytest.raises(ConfigError, match=f"stages.{made.step}.write.publish: {why}"):
            flow.job().check()
        del flow._stages[made.step]["write"]
    rows.window(tumbling("1s")).key_by("word").reduce("count", name="windows").write(tmp_path / "w", publish="final")
    flow.job().spec.check()


def test_only_what_gives_no_row_before_windows_are_closed_waits_for_them(tmp_path: Path) -> None:
    flow = Flow("waiting")
    rows = flow.read({"format": "parquet", "path": str(tmp_path), "time": {"column": "at", "unit": "s"}})
    keyed = rows.window(tumbling("1s")).key_by("word")
    for made, mode in [
        (keyed.reduce("count", name="counts"), "final"),
        (keyed.process(Passing(), name="passes"), "final"),
        (keyed.reduce("count", name="so_far"), "changes"),
    ]:
        made.write(tmp_path / made.step, publish=mode)
    graph = flow.job().spec.plan({"read": ()}, {"read": TABLE.schema}).graph
    assert {stage.name: stage.publishing[0].closed for stage in graph.stages if stage.windows is not None} == {
        "counts": True,
        "passes": False,
        "so_far": False,
    }


def test_a_short_job_publishes_all_as_its_last_epoch(tmp_path: Path) -> None:
    path = tmp_path / "out"
    assert counting({"path": str(path), "publish": "changes"}).run(backend=LocalBackend()).table().num_rows == 2
    found = results(path)
    assert (found.epoch, sorted(found.table.to_pydict()["word"])) == (1, ["a", "b"])
    assert found.table["change"].to_pylist() == ["insert", "insert"] and found.table["epoch"].to_pylist() == [1, 1]
    given: list[tuple[int, int]] = []
    flow = Flow("given")
    flow.read(TABLE).key_by("word").process(Passing()).results(lambda rows, epoch: given.append((epoch, rows.num_rows)))
    flow.run(backend=LocalBackend())
    assert given == [(1, 3)]


class Noting(Sink):
    given: ClassVar[list[Any]] = []

    def stage(self, rows: pa.Table, task: int, epoch: int) -> int:
        return epoch

    def commit(self, staged: Any, epoch: int, seconds: float, *, is_last: bool = False) -> None:
        self.given.append((staged, epoch, is_last))


class Unending(Noting):
    def commit(self, staged: Any, epoch: int, seconds: float) -> None:  # type: ignore[override]
        self.given.append((staged, epoch))


def test_the_last_epoch_has_a_number_and_a_sink_must_take_that_it_is_the_last() -> None:
    def run(sink: Sink) -> None:
        flow = Flow("noted")
        rows = flow.read(TABLE).key_by("word").process(Passing(), name="passed", parallelism=1)
        rows.results(sink, publish="final")
        flow.run(backend=LocalBackend())

    run(Noting())
    assert Noting.given == [([1], 1, True)]
    due = r"Unending.commit cannot be called: .*'is_last'; write `def commit\(self, staged, epoch, seconds, \*, is_last"
    with pytest.raises(ConfigError, match=f"stages.passed.write.use: {due}"):
        run(Unending())


ROWS = 3_000
WORDS = pa.table(
    {
        "word": [f"w{number % 7}" for number in range(ROWS)],
        "at": pa.array([number * 1_000_000 for number in range(ROWS)], pa.timestamp("us")),
    }
)


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def run(make: Callable[[Any], Any]) -> Result:
    flow = Flow("several", limits={"batch_records": 50, "split_records": 200})
    make(flow.read(WORDS, time={"column": "at", "out_of_order": "0s"}))
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


def test_a_result_in_memory_is_published_elsewhere_as_well_and_a_job_file_has_a_list_too(tmp_path: Path) -> None:
    places = [{}, {"path": str(tmp_path / "changes"), "publish": "changes"}, {"path": str(tmp_path / "end")}]
    result = run(lambda read: read.key_by("word").reduce("count", write=places))
    assert result.table().num_rows == 7
    found = results(tmp_path / "changes")
    assert found.table.num_rows > 7 and rows(found.latest("word")) == rows(result.table())
    assert (tmp_path / "end" / "_job.yaml").exists()
    outputs = [str(tmp_path / "whole"), {"path": str(tmp_path / "table"), "publish": "table"}]
    assert rows(counting(outputs).run(backend=LocalBackend()).table()) == rows(results(tmp_path / "table").table)
    assert of({"output": "out"}).config.resolved()["output"]["path"] == "out"
    assert [each["path"] for each in of({"output": ["a", "b"]}).config.resolved()["output"]] == ["a", "b"]


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
