"""A result that was written to a directory is read from there for as long as it is there, and no other one for it."""

import dataclasses
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import report_samples as samples

from dpa.errors import TableError
from dpa.result import OutputReport, Result, when_written

FILE = "part-00000.parquet"


def ended(directory: Path, value: int) -> Result:
    """A job that has written one part to a directory, one second after the one of `value - 1`."""
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.table({"word": ["a"], "value": [value]}), directory / FILE)
    os.utime(directory / FILE, (value, value))
    output = OutputReport(str(directory), 1, (FILE,))
    return Result(samples.report(output=output), {}, {"reducer": when_written(output)})


def test_a_later_result_in_the_same_directory_is_not_taken_for_it(tmp_path: Path) -> None:
    first, second = ended(tmp_path / "out", 1), ended(tmp_path / "out", 2)
    assert second.table()["value"].to_pylist() == [2]
    with pytest.raises(TableError, match=r"/out: the result of .* was replaced or removed after the job had ended"):
        first.table()
    (tmp_path / "out" / FILE).unlink()
    with pytest.raises(TableError, match="was replaced or removed"):
        second.table()


def test_each_stage_with_a_result_has_a_table() -> None:
    made = samples.graph_report()
    stages = (*made.stages[:-1], dataclasses.replace(made.main, output=OutputReport(rows=1)))
    tables, keys = {"bargains": pa.table({"key": ["a"]})}, {"bargains": "stages.bargains.write.path"}
    result = Result(dataclasses.replace(made, stages=stages), tables, _keys=keys)
    assert result.table().equals(result.table("bargains"))
    assert result.unsaved == ("stages.bargains.write.path", result.table())
    with pytest.raises(TableError, match="bargains has no result of a stage 'priced', but of bargains"):
        result.table("priced")


def test_a_stage_of_a_report_is_found_by_its_name_and_the_last_operator_is_the_main_one() -> None:
    report = samples.graph_report()
    assert report["priced"].name == report.bottleneck.stage == "priced"
    assert [stage.name for stage in report.sources] == ["trades", "quotes"]
    assert report.main is report["bargains"]
    assert (report.taken_in("quotes"), report.given_out("trades")) == (1_249_998, 14_999_994)
    with pytest.raises(KeyError):
        report["nowhere"]

    report = samples.empty_report(status="failed")
    assert (report.main.skew, report.main.tasks, report.main.output, report.main.latency) == (None, (), None, None)
