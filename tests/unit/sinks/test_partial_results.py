"""Partial results on disk: a reader sees whole rounds or says that there is none, whatever happens beside it."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from output_samples import of

import dpa
from dpa import partial_results
from dpa.config import JobFile
from dpa.driver.partial_results import RoundsPublication, check_partial_results
from dpa.errors import ConfigError, TableError
from dpa.sinks import partial_results as rounds
from dpa.sinks.partial_results import RoundsDirectory


def share(*keys: str) -> pa.Table:
    return pa.table({"key": pa.array(keys), "count": pa.array([len(key) for key in keys], pa.int64())})


def publish(directory: Path, number: int, *shares: pa.Table) -> None:
    sink = RoundsDirectory(str(directory))
    sink.commit([sink.stage(table, reducer, number) for reducer, table in enumerate(shares)], number, number / 2)


def job(directory: Path, **sections: object) -> JobFile:
    return of({"key": "word", "aggregation": {"seconds": 1, "path": str(directory)}, **sections})


def rounds_of(file: JobFile) -> RoundsPublication:
    assert file.config.aggregation is not None
    assert file.config.aggregation.path is not None
    return RoundsPublication(file, file.config.aggregation.path, "aggregation")


def test_the_newest_complete_round_is_read(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("a"), share("b"))
    publish(tmp_path, 2, share("a", "cc"), share("b"))
    RoundsDirectory(str(tmp_path)).stage(share("a", "cc", "ddd"), 0, 3)
    found = partial_results(tmp_path)
    assert (found.round, found.seconds) == (2, 1.0)
    assert found.table.to_pydict() == {"key": ["a", "cc", "b"], "count": [1, 2, 1]}
    assert isinstance(found, dpa.PartialResults)


def test_an_empty_share_leaves_no_file_and_an_empty_round_is_a_round(tmp_path: Path) -> None:
    publish(tmp_path, 1, share(), share())
    assert partial_results(str(tmp_path)).table.num_rows == 0
    publish(tmp_path, 2, share(), share("b"))
    assert [path.name for path in (tmp_path / "round-000002").iterdir()] == ["part-00001.parquet"]
    assert partial_results(tmp_path).table["key"].to_pylist() == ["b"]


def test_a_column_of_nulls_takes_the_type_that_it_has_elsewhere(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("a"), pa.table({"key": ["b"], "count": pa.nulls(1)}))
    assert partial_results(tmp_path).table.to_pydict() == {"key": ["a", "b"], "count": [1, None]}


def test_keys_of_different_types_are_no_table(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("a"), pa.table({"key": [1], "count": [1]}))
    with pytest.raises(
        TableError, match=r"round 1 is no table, nor will the result be: .*keys of types int64 and string"
    ):
        partial_results(tmp_path)


def test_a_directory_whose_name_looks_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    publish(tmp_path / "run=7", 1, share("a"))
    assert partial_results(tmp_path / "run=7").table.column_names == ["key", "count"]


def test_only_the_round_before_the_newest_is_kept(tmp_path: Path) -> None:
    for number in range(1, 6):
        publish(tmp_path, number, share("a"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "round-000004", "round-000005"]
    latest = json.loads((tmp_path / "LATEST").read_text(encoding="utf-8"))
    assert latest == {"round": 5, "seconds": 2.5, "rows": 1, "parts": ["part-00000.parquet"]}


def test_a_round_that_is_deleted_while_it_is_read_gives_way_to_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, 1, share("a"))
    read, reads = rounds.pq.read_table, []

    def overtaken(path: Path, **options: object) -> pa.Table:
        reads.append(path)
        if len(reads) == 1:
            for number in (2, 3):
                publish(tmp_path, number, share("a", "b"))
        return read(path, **options)

    monkeypatch.setattr(rounds.pq, "read_table", overtaken)
    assert (partial_results(tmp_path).round, len(reads)) == (3, 2)


def test_a_reader_says_that_there_is_no_round_yet(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    RoundsDirectory(str(tmp_path)).stage(share("a"), 0, 1)
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(TableError, match=f"{place} has no complete round of aggregation, or not yet"):
            partial_results(place)


def test_a_reader_says_that_files_were_removed(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("a"))
    (tmp_path / "round-000001" / "part-00000.parquet").unlink()
    with pytest.raises(TableError, match="round 1 lacks files"):
        partial_results(tmp_path)


def test_a_reader_says_that_shares_are_of_different_types(tmp_path: Path) -> None:
    publish(tmp_path, 4, share("a"), pa.table({"key": ["b"], "count": ["many"]}))
    with pytest.raises(TableError, match=r"round 4 is no table.*int64 for key 'a' and string for key 'b'"):
        partial_results(tmp_path)


# --- what is there when a job begins


def test_rounds_of_an_older_run_are_removed_when_a_job_begins(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        publish(tmp_path, number, share("a"))
    check_partial_results(job(tmp_path))
    with rounds_of(job(tmp_path)) as directory:
        assert partial_results(tmp_path).round == 3
        directory.clear()
        directory.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_missing_is_made(tmp_path: Path) -> None:
    place = tmp_path / "some" / "where"
    check_partial_results(job(place))
    with rounds_of(job(place)) as directory:
        directory.clear()
    assert list(place.iterdir()) == []


def test_without_a_path_nothing_is_looked_at() -> None:
    check_partial_results(of({"key": "word", "aggregation": {"seconds": 1}}))


@pytest.mark.parametrize("stranger", ["data.csv", "round-1", "round-000001.txt", "LATEST.old", ".hidden"])
def test_a_directory_that_holds_anything_else_is_refused(tmp_path: Path, stranger: str) -> None:
    publish(tmp_path, 1, share("a"))
    (tmp_path / stranger).touch()
    with pytest.raises(ConfigError, match=f"aggregation.path: .* holds {stranger}, no round of aggregation"):
        check_partial_results(job(tmp_path))


def test_a_round_that_holds_anything_else_is_refused_and_never_removed(tmp_path: Path) -> None:
    publish(tmp_path, 1, share("a"))
    (tmp_path / "round-000001" / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"holds round-000001/notes.txt, no round of aggregation"):
        check_partial_results(job(tmp_path))
    with (
        rounds_of(job(tmp_path)) as directory,
        pytest.raises(ConfigError, match="cannot remove the rounds"),
    ):
        directory.clear()
    publish(tmp_path, 2, share("a"))
    publish(tmp_path, 3, share("a"))
    assert (tmp_path / "round-000001" / "notes.txt").exists()


def test_a_second_job_is_refused_while_the_first_one_publishes_there(tmp_path: Path) -> None:
    with rounds_of(job(tmp_path)):
        publish(tmp_path, 1, share("a"))
        check_partial_results(job(tmp_path))
        with (
            pytest.raises(ConfigError, match=r"aggregation.path: another job publishes .* now; wait for its end"),
            rounds_of(job(tmp_path)),
        ):
            pass
        assert partial_results(tmp_path).round == 1
    with rounds_of(job(tmp_path)) as directory:
        directory.clear()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigError, match=r"aggregation.path: cannot write there: .*file"),
        rounds_of(job(tmp_path / "file" / "so-far")),
    ):
        pass


def test_a_file_or_a_uri_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"aggregation.path: .*/file is a file; name a directory"):
        check_partial_results(job(tmp_path / "file"))
    with pytest.raises(ConfigError, match="s3://bucket/x is a URI"):
        check_partial_results(of({"aggregation": {"seconds": 1, "path": "s3://bucket/x"}}))


@pytest.mark.parametrize(("output", "path"), [("out", "out"), ("out", "out/so-far"), ("out/result", "out")])
def test_rounds_and_the_result_may_not_lie_one_in_the_other(tmp_path: Path, output: str, path: str) -> None:
    file = job(tmp_path / path, output={"path": str(tmp_path / output)})
    with pytest.raises(ConfigError, match=r"aggregation.path: .* (lie one in the other|are one directory); name two"):
        check_partial_results(file)
    check_partial_results(job(tmp_path / "out" / "so-far", output={"path": str(tmp_path / "out" / "result")}))
