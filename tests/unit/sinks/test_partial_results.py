"""Results by epoch as Parquet: a reader sees whole epochs or says that there is none, whatever happens beside it."""

import pickle
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
from dpa.sinks.sink import Sink, Target
from dpa.sources.manifest import MANIFEST
from tests.unit.output_samples import publishing


def share(*keys: str) -> pa.Table:
    return pa.table({"key": pa.array(keys), "count": pa.array([len(key) for key in keys], pa.int64())})


def begun(directory: Path) -> ResultFiles:
    """What publishes there, of a job that lets others begin."""
    sink = publishing(ResultFiles(Target(str(directory), "overwrite")), "table")
    sink.begin()
    sink._lock.close()
    return sink


def publish(sink: Sink, number: int, *shares: pa.Table) -> None:
    staged = [sink.stage(table, reducer, number) for reducer, table in enumerate(shares)]
    sink.commit(staged, number, number / 2)


def job(directory: Path | str, output: object = None) -> JobFile:
    so_far = {"path": str(directory), "mode": "overwrite", "publish": "table"}
    return of({"key": "word", "output": [output or {}, so_far]})


def publication_of(file: JobFile) -> Publication:
    return outputs_of(file)["output.1"]


def test_the_newest_complete_epoch_is_read(tmp_path: Path) -> None:
    place = tmp_path / "run=7"  # which readers of Parquet take for a partition
    sink = begun(place)
    publish(sink, 1, share("a"), share("b"))
    publish(sink, 2, share("a", "cc"), pa.table({"key": ["b"], "count": pa.nulls(1)}))
    sink.stage(share("a", "cc", "ddd"), 0, 3)
    found = results(str(place))
    assert (found.epoch, found.seconds) == (2, 1.0)
    assert found.table.to_pydict() == {"key": ["a", "cc", "b"], "count": [1, 2, None]}
    assert isinstance(found, dpa.Results)


def test_only_the_epoch_before_the_newest_is_kept(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    for number in range(1, 6):
        publish(sink, number, share("a"))
    parts = [f"part-00000-{sink._writer}-00000{number}.parquet" for number in (4, 5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST, *parts]


def test_an_epoch_deleted_meanwhile_gives_way_to_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = begun(tmp_path)
    publish(sink, 1, share("a"))
    read, reads = _layout.table_in, []

    def overtaken(objects: Any, name: str, columns: pa.Schema | None) -> pa.Table:
        reads.append(name)
        if len(reads) == 1:
            for number in (2, 3):
                publish(sink, number, share("a", "b"))
        return read(objects, name, columns)

    monkeypatch.setattr(_layout, "table_in", overtaken)
    assert (results(tmp_path).epoch, len(reads)) == (3, 2)


def test_a_reader_says_that_there_is_no_epoch_yet_or_no_table_or_that_files_were_removed(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    sink.stage(share("a"), 0, 1)
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(TableError, match=f"{place} has no complete epoch, or not yet"):
            results(place)
    publish(sink, 1, share("a"), pa.table({"key": [1], "count": [1]}))
    why = r"epoch 1 is no table, nor will the result be: .* key has incompatible types: string vs int64"
    with pytest.raises(TableError, match=why):
        results(tmp_path)
    for part in tmp_path.glob("part-*"):
        part.unlink()
    with pytest.raises(TableError, match="epoch 1 lacks files"):
        results(tmp_path)


# --- what is there when a job begins


def test_what_a_dead_generation_still_publishes_is_not_seen(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    publish(sink, 1, share("old"))
    zombie = pickle.loads(pickle.dumps(sink))
    staged = zombie.stage(share("older"), 0, 2)
    with publication_of(job(tmp_path)) as directory:
        with pytest.raises(TableError, match="another job has begun to write to"):
            zombie.commit([staged], 2, 9.0)
        assert results(tmp_path).table["key"].to_pylist() == ["old"]
        sink = pickle.loads(pickle.dumps(directory.sink))
        sink.commit([sink.stage(share("new"), 0, 1)], 1, 0.5)
        assert results(tmp_path).table["key"].to_pylist() == ["new"]


def test_a_second_job_is_refused_while_the_first_one_publishes_there(tmp_path: Path) -> None:
    place = tmp_path / "some" / "where"
    check_outputs(job(place))
    with publication_of(job(place)) as directory:
        assert MANIFEST in names(place)
        publish(directory.sink, 1, share("a"))
        check_outputs(job(place))
        with (
            pytest.raises(ConfigError, match=r"output.1.path: another job publishes .* now; wait for its end"),
            publication_of(job(place)),
        ):
            pass
        assert results(place).epoch == 1
    with publication_of(job(place)):
        pass


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigError, match=r"output.1.path: .*Not a directory: .*, at .*file/so-far"),
        publication_of(job(tmp_path / "file" / "so-far")),
    ):
        pass


@pytest.mark.parametrize("stranger", ["data.csv", "epoch-1", "run-1", "LATEST.old", ".unseen"])
def test_a_directory_that_holds_anything_else_is_refused(tmp_path: Path, stranger: str) -> None:
    publish(begun(tmp_path), 1, share("a"))
    (tmp_path / stranger).touch()
    with pytest.raises(ConfigError, match=f"output.1.path: .* holds {stranger}, no file of a result"):
        check_outputs(job(tmp_path))


@pytest.mark.parametrize(
    ("path", "output", "why"),
    [
        ("{}/file", "{}/out", r"/file is a file; name a directory"),
        ("gs://bucket/x", "{}/out", "gs://bucket/x is a URI"),
        ("{}/out", "{}/out", "are one directory; name two"),
        ("{}/out/so-far", "{}/out", "lie one in the other; name two"),
        ("{}/out", "{}/out/result", "lie one in the other; name two"),
    ],
)
def test_what_is_no_directory_of_its_own_is_refused(tmp_path: Path, path: str, output: str, why: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"output.1.path: .*{why}"):
        check_outputs(job(path.format(tmp_path), output.format(tmp_path)))
    check_outputs(job(tmp_path / "out" / "so-far", str(tmp_path / "out" / "result")))
