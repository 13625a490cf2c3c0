"""What may be published by epoch, and what a job publishes that has only its last epoch."""

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from dpa import Flow, Job, Sink, results, session, tumbling
from dpa.errors import ConfigError
from dpa.executors import Process
from dpa.testing import LocalBackend

TABLE = pa.table({"word": ["a", "b", "a"], "n": [1, 2, 3], "at": [0, 10, 20]})


class Passing(Process):
    """Passes rows on."""

    def zero(self) -> None:
        return None

    def process(self, key: Any, state: Any, value: Any) -> tuple[Any, list[Any]]:
        return state, [value]


def as_it_is(row: dict[str, Any]) -> dict[str, Any]:
    return row


def counting(**output: Any) -> Job:
    return Job(input=TABLE, key="word", value=[], reducer="count", output={"path": "out", **output})


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
    ],
)
def test_what_cannot_be_published_is_refused(
    output: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # `out` may be there, of a job that was run before the tests
    with pytest.raises(ConfigError, match=why):
        counting(**output).check()


def test_what_a_step_cannot_publish_is_refused(tmp_path: Path) -> None:
    flow = Flow("refused")
    rows = flow.read({"format": "parquet", "path": str(tmp_path), "time": {"column": "at"}})
    for made, mode, why in [
        (rows.map(as_it_is, name="map"), "table", "a `map` has no table that changes: publish what is `final`"),
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
    assert counting(path=str(path), publish="changes").run(backend=LocalBackend()).table().num_rows == 2
    found = results(path)
    assert (found.epoch, sorted(found.table.to_pydict()["word"])) == (1, ["a", "b"])
    assert found.table["change"].to_pylist() == ["insert", "insert"] and found.table["epoch"].to_pylist() == [1, 1]
    given: list[tuple[int, int]] = []
    flow = Flow("given")
    flow.read(TABLE).key_by("word").process(Passing()).results(lambda rows, epoch: given.append((epoch, rows.num_rows)))
    flow.run(backend=LocalBackend())
    assert given == [(1, 3)]


class Noting(Sink):
    """Notes what it is given."""

    given: ClassVar[list[Any]] = []

    def stage(self, rows: pa.Table, task: int, epoch: int) -> int:
        return epoch

    def commit(self, staged: Any, epoch: int, seconds: float, *, is_last: bool = False) -> None:
        self.given.append((staged, epoch, is_last))


class Unending(Noting):
    """Does not want to know which epoch is the last."""

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
