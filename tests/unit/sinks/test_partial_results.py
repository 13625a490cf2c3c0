"""Results by epoch as Parquet: a reader sees whole epochs or says that there is none, whatever happens beside it."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from output_samples import check_outputs, names, of

import dpa
from dpa import results
from dpa.config import JobFile
from dpa.driver.outputs import Publication, outputs_of
from dpa.errors import ConfigError, TableError
from dpa.sinks import _layout
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import Target
from dpa.sources.manifest import MANIFEST
from tests.unit.output_samples import publishing


def share(*keys: str) -> pa.Table:
    return pa.table({"key": pa.array(keys), "count": pa.array([len(key) for key in keys], pa.int64())})


def run_of(directory: Path) -> ResultFiles:
    """As the newest run publishes there; the first one begins."""
    sink = publishing(ResultFiles(Target(str(directory), "overwrite")), "table")
    found, _ = sink._manifest()
    if found is not None and found.writer:
        sink.know(replace(sink.job_context, job=found.claimed_by))
        sink._writer = found.writer
    else:
        sink.begin()
        sink._lock.close()
    return sink


def publish(directory: Path, number: int, *shares: pa.Table) -> None:
    sink = run_of(directory)
    staged = [sink.stage(table, reducer, number) for reducer, table in enumerate(shares) if table.num_rows]
    sink.commit(staged, number, number / 2)


def job(directory: Path, output: object = None) -> JobFile:
    so_far = {"path": str(directory), "mode": "overwrite", "publish": "table"}
    return of({"key": "word", "output": [output or {}, so_far]})


def publication_of(file: JobFile) -> Publication:
    return outputs_of(file)["output.1"]


def test_the_newest_complete_epoch_is_read(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("a"), share("b"))
    publish(tmp_path, 2, share("a", "cc"), share("b"))
    run_of(tmp_path).stage(share("a", "cc", "ddd"), 0, 3)
    found = results(tmp_path)
    assert (found.epoch, found.seconds) == (2, 1.0)
    assert found.table.to_pydict() == {"key": ["a", "cc", "b"], "count": [1, 2, 1]}
    assert isinstance(found, dpa.Results)


def test_a_task_without_rows_leaves_no_file_and_an_epoch_may_have_none(tmp_path: Path) -> None:
    publish(tmp_path, 1, share(), share())
    assert results(str(tmp_path)).table.num_rows == 0
    publish(tmp_path, 2, share(), share("b"))
    [name] = run_of(tmp_path)._manifest()[0].files or ()
    assert name.startswith("part-00001-")
    assert results(tmp_path).table["key"].to_pylist() == ["b"]


def test_a_column_of_nulls_takes_the_type_that_it_has_elsewhere(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("a"), pa.table({"key": ["b"], "count": pa.nulls(1)}))
    assert results(tmp_path).table.to_pydict() == {"key": ["a", "b"], "count": [1, None]}


def test_keys_of_different_types_are_no_table(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("a"), pa.table({"key": [1], "count": [1]}))
    with pytest.raises(
        TableError, match=r"epoch 1 is no table, nor will the result be: .* key has incompatible types: string vs int64"
    ):
        results(tmp_path)


def test_a_directory_whose_name_looks_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    publish(tmp_path / "run=7", 1, share("a"))
    assert results(tmp_path / "run=7").table.column_names == ["key", "count"]


def test_only_the_epoch_before_the_newest_is_kept(tmp_path: Path) -> None:
    for number in range(1, 6):
        publish(tmp_path, number, share("a"))
    writer = run_of(tmp_path)._writer
    parts = [f"part-00000-{writer}-00000{number}.parquet" for number in (4, 5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST, *parts]


def test_an_epoch_that_is_deleted_while_it_is_read_gives_way_to_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, 1, share("a"))
    read, reads = _layout.table_in, []

    def overtaken(objects: Any, name: str, columns: pa.Schema | None) -> pa.Table:
        reads.append(name)
        if len(reads) == 1:
            for number in (2, 3):
                publish(tmp_path, number, share("a", "b"))
        return read(objects, name, columns)

    monkeypatch.setattr(_layout, "table_in", overtaken)
    assert (results(tmp_path).epoch, len(reads)) == (3, 2)


def test_a_reader_says_that_there_is_no_epoch_yet(tmp_path: Path) -> None:
    run_of(tmp_path).stage(share("a"), 0, 1)
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(TableError, match=f"{place} has no complete epoch, or not yet"):
            results(place)


def test_a_reader_says_that_files_were_removed(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("a"))
    next(tmp_path.glob("part-*")).unlink()
    with pytest.raises(TableError, match="epoch 1 lacks files"):
        results(tmp_path)


# --- what is there when a job begins


def test_what_a_dead_generation_still_publishes_is_not_seen(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("old"))
    zombie = pickle.loads(pickle.dumps(run_of(tmp_path)))
    staged = zombie.stage(share("older"), 0, 2)
    with publication_of(job(tmp_path)) as directory:
        with pytest.raises(TableError, match="another job has begun to write to"):
            zombie.commit([staged], 2, 9.0)
        assert results(tmp_path).table["key"].to_pylist() == ["old"]
        sink = pickle.loads(pickle.dumps(directory.sink))
        sink.commit([sink.stage(share("new"), 0, 1)], 1, 0.5)
        assert results(tmp_path).table["key"].to_pylist() == ["new"]


def test_a_directory_that_is_missing_is_made(tmp_path: Path) -> None:
    place = tmp_path / "some" / "where"
    check_outputs(job(place))
    with publication_of(job(place)):
        assert MANIFEST in names(place)


@pytest.mark.parametrize("stranger", ["data.csv", "epoch-1", "run-1", "LATEST.old", ".unseen"])
def test_a_directory_that_holds_anything_else_is_refused(tmp_path: Path, stranger: str) -> None:
    publish(tmp_path, 1, share("a"))
    (tmp_path / stranger).touch()
    with pytest.raises(ConfigError, match=f"output.1.path: .* holds {stranger}, no file of a result"):
        check_outputs(job(tmp_path))


def test_a_second_job_is_refused_while_the_first_one_publishes_there(tmp_path: Path) -> None:
    with publication_of(job(tmp_path)):
        publish(tmp_path, 1, share("a"))
        check_outputs(job(tmp_path))
        with (
            pytest.raises(ConfigError, match=r"output.1.path: another job publishes .* now; wait for its end"),
            publication_of(job(tmp_path)),
        ):
            pass
        assert results(tmp_path).epoch == 1
    with publication_of(job(tmp_path)):
        pass


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigError, match=r"output.1.path: .*Not a directory: .*, at .*file/so-far"),
        publication_of(job(tmp_path / "file" / "so-far")),
    ):
        pass


def test_a_file_or_a_uri_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"output.1.path: .*/file is a file; name a directory"):
        check_outputs(job(tmp_path / "file"))
    with pytest.raises(ConfigError, match="gs://bucket/x is a URI"):
        check_outputs(of({"output": {"path": "gs://bucket/x", "publish": "table"}}))


@pytest.mark.parametrize(("output", "path"), [("out", "out"), ("out", "out/so-far"), ("out/result", "out")])
def test_epochs_and_the_result_may_not_lie_one_in_the_other(tmp_path: Path, output: str, path: str) -> None:
    file = job(tmp_path / path, str(tmp_path / output))
    with pytest.raises(ConfigError, match=r"output.1.path: .* (lie one in the other|are one directory); name two"):
        check_outputs(file)
    check_outputs(job(tmp_path / "out" / "so-far", str(tmp_path / "out" / "result")))
