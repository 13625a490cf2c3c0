"""Where a result may go: nothing but a result of ours is ever replaced, two jobs never write to one place, and what a
job needs is not destroyed: code, inputs, stages."""

import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from shutil import which

import pyarrow as pa
import pytest
import yaml
from output_samples import RESULT, check_outputs, job, names, of, publication, value_in, write

from dpa import config
from dpa._util.as_yaml import as_yaml
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError, JobFailedError, TableError
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.sink import SinkContext, Target

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_a_result_replaces_an_older_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    for value in (1, 2):
        write(job(tmp_path / "results" / "out"), value)
        assert value_in(tmp_path / "results" / "out") == value
        assert names(tmp_path / "results" / "out") == RESULT
        assert names(tmp_path / "results") == ["out"]
    resolved = yaml.safe_load((tmp_path / "results" / "out" / "_job.yaml").read_text(encoding="utf-8"))
    assert resolved["key"] == "word"
    for mode in ("error", "overwrite"):
        (tmp_path / mode).mkdir()
        write(job(tmp_path / mode, mode))
        assert names(tmp_path / mode) == RESULT
    file = job("gone/../out")  # needs nothing that the given path passes through
    write(file)
    with publication(file) as output:
        assert output.sink.place == str(tmp_path / "work" / "out")


@pytest.mark.parametrize("stranger", ["data.csv", ".hidden", "part-1.parquet", "_SUCCESS", "part-00000.parquet.crc"])
def test_what_holds_anything_but_a_result_is_never_overwritten(tmp_path: Path, stranger: str) -> None:
    write(job(tmp_path / "out"))
    (tmp_path / "out" / stranger).touch()
    for mode, why in (("overwrite", f"holds {stranger}, no file of a result"), ("error", f"not empty: .* {stranger};")):
        with pytest.raises(ConfigError, match=rf"output.path: .*/out .*{why}.*name another directory"):
            check_outputs(job(tmp_path / "out", mode))
        with pytest.raises(ConfigError, match=why), publication(job(tmp_path / "out", mode)):
            pass
    assert names(tmp_path / "out") == sorted([*RESULT, stranger])
    assert names(tmp_path) == ["out", "work"]


def test_what_only_looks_like_a_result_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "of others").mkdir()
    (tmp_path / "of others" / "part-00000.parquet").touch()
    with pytest.raises(ConfigError, match=r"holds part-00000.parquet and no _job.yaml, so it is no result"):
        check_outputs(job(tmp_path / "of others"))
    write(job(tmp_path / "out"))
    (tmp_path / "out" / "part-00001.parquet").mkdir()
    (tmp_path / "out" / "part-00002.parquet").symlink_to(tmp_path / "of others" / "part-00000.parquet")
    with pytest.raises(ConfigError, match=r"holds part-00001.parquet and 1 more, no file of a result"):
        check_outputs(job(tmp_path / "out"))


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_what_comes_there_while_the_job_runs_stays_and_fails_the_job(tmp_path: Path, mode: str) -> None:
    if mode == "overwrite":
        write(job(tmp_path / "out"))
    with publication(job(tmp_path / "out", mode)) as output:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "data.csv").touch()
        with pytest.raises(JobFailedError, match=r"output.path: .*data.csv.*; it was not so when the job began"):
            output.commit([])
    assert names(tmp_path / "out") == (["data.csv"] if mode == "error" else [*RESULT[:1], "data.csv", *RESULT[1:]])
    assert names(tmp_path) == ["out", "work"]


def test_a_result_that_cannot_be_put_in_its_place_fails_the_job_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(job(tmp_path / "out"), 1)
    rename, renames = Path.rename, []

    def busy(self: Path, goal: Path) -> Path:
        renames.append(goal)
        if len(renames) == 2:
            raise OSError(16, "Device or resource busy")
        return rename(self, goal)

    with publication(job(tmp_path / "out")) as output:
        monkeypatch.setattr(Path, "rename", busy)
        with pytest.raises(JobFailedError, match=r"output.path: the result cannot be put at .*: .*resource busy"):
            output.commit([])
    assert value_in(tmp_path / "out") == 1
    assert names(tmp_path) == ["out", "work"]


def test_a_link_to_a_directory_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "store" / "here")
    for value in (1, 2):
        write(job(tmp_path / "out"), value)
        assert value_in(tmp_path / "store" / "here") == value
        assert (tmp_path / "out").is_symlink()
    assert names(tmp_path / "store") == ["here"]


def test_a_place_that_cannot_be_written_is_refused_on_the_way_in(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigError, match=r"output.path: cannot write there: .*file"),
        publication(job(tmp_path / "file" / "out")),
    ):
        pass


def test_a_mount_point_gets_its_result_and_an_older_one_stays_until_then(tmp_path: Path) -> None:
    for name in ("out", "volume"):
        (tmp_path / name).mkdir()
    bind = ["mount", "--bind", str(tmp_path / "volume"), str(tmp_path / "out")]
    if which("mount") is None or subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        for value in (1, 2):
            write(job(tmp_path / "out"), value)
            assert (value_in(tmp_path / "out"), names(tmp_path / "volume")) == (value, RESULT)
        with publication(job(tmp_path / "out")):
            check_outputs(job(tmp_path / "out"))
            with pytest.raises(ConfigError, match="another job writes"), publication(job(tmp_path / "out")):
                pass
        assert (value_in(tmp_path / "out"), names(tmp_path / "volume")) == (2, RESULT)
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path / "out")], check=True)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """The root of a file system, with the directory that some of them have there."""
    (tmp_path / "volume").mkdir()
    mount = ["mount", "-t", "tmpfs", "none", str(tmp_path / "volume")]
    if which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    (tmp_path / "volume" / "lost+found").mkdir(mode=0o700)
    yield tmp_path / "volume"
    subprocess.run(["umount", "--lazy", str(tmp_path / "volume")], check=True)


def test_a_volume_may_hold_what_its_file_system_keeps_there(tmp_path: Path, volume: Path) -> None:
    write(job(volume, "error"), 1)
    write(job(volume), 2)
    assert (value_in(volume / "part-00000.parquet"), names(volume)) == (2, sorted([*RESULT, "lost+found"]))
    (volume / "part").mkdir()
    (volume / "part" / "lost+found").mkdir()
    with pytest.raises(ConfigError, match=r"part holds lost\+found, no file of a result"):
        check_outputs(job(volume / "part"))


def test_rounds_may_be_published_on_a_volume(volume: Path) -> None:
    (volume.parent / "link").symlink_to(volume)
    for path in (volume, volume.parent / "link"):
        check_outputs(of({"key": "word", "output": {"path": str(path), "publish": "table"}}))


@pytest.mark.parametrize("section", [{}, {"publish": "table"}])
@pytest.mark.parametrize(
    ("path", "why"), [("a\0b", ""), ("loop", ""), ("x" * 300, ".*File name too long")], ids=["null", "loop", "long"]
)
def test_a_place_that_cannot_be_looked_at_is_refused(section: dict[str, object], path: str, why: str) -> None:
    Path("loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=rf"path: cannot look at what is there: {why}"):
        check_outputs(of({"output": {**section, "path": path}}))


@pytest.mark.parametrize("name", ["mkdir", "unlink"])
def test_an_interrupt_while_a_result_is_begun_or_ended_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write(job(tmp_path / "out"))
    real = getattr(Path, name)

    def interrupted(self: Path, *arguments: object, **options: object) -> None:
        if self.name in ("new", ".lock"):
            signal.raise_signal(signal.SIGINT)
        real(self, *arguments, **options)

    monkeypatch.setattr(Path, name, interrupted)
    with pytest.raises(KeyboardInterrupt), publication(job(tmp_path / "out")):
        pass
    monkeypatch.undo()
    assert names(tmp_path) == ["out", "work"]


def test_without_a_path_nothing_is_looked_at_and_nothing_made(tmp_path: Path) -> None:
    file = of({"key": "word"})
    check_outputs(file)
    with publication(file) as output:
        assert (output.sink.place, output.commit([])) == (None, ())
    assert names(tmp_path) == ["work"]


def test_a_second_job_with_the_same_output_is_refused_while_the_first_one_runs(tmp_path: Path) -> None:
    with publication(job(tmp_path / "out")) as first:
        with (
            pytest.raises(ConfigError, match=r"output.path: another job writes to .*/out now.*wait for its end"),
            publication(job(tmp_path / "out")),
        ):
            pass
        first.commit([first.sink.stage(pa.table({"value": [1]}), 0, 0)])
    write(job(tmp_path / "out"), 2)
    assert names(tmp_path) == ["out", "work"]


def killed(tmp_path: Path) -> ResultDirectory:
    """The sink of a job that was killed, where an older result is."""
    write(job(tmp_path / "out"), 1)
    sink = publication(job(tmp_path / "out")).__enter__().sink
    assert isinstance(sink, ResultDirectory) and sink._replacement is not None
    return sink


def test_what_a_killed_job_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed(tmp_path)._replacement._owned.release()  # type: ignore[union-attr]
    assert len(names(tmp_path)) == 3
    write(job(tmp_path / "out"), 2)
    assert names(tmp_path) == ["out", "work"]
    assert value_in(tmp_path / "out") == 2


def test_a_result_that_a_killed_job_had_moved_away_is_put_back_before_it_is_judged(tmp_path: Path) -> None:
    replacement = killed(tmp_path)._replacement
    (tmp_path / "out").rename(replacement.work / "old")  # type: ignore[union-attr]
    replacement._owned.release()  # type: ignore[union-attr]
    check_outputs(job(tmp_path / "out", "error"))
    with pytest.raises(ConfigError, match="not empty"), publication(job(tmp_path / "out", "error")):
        pass
    assert value_in(tmp_path / "out") == 1
    assert names(tmp_path) == ["out", "work"]


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_job_that_is_resumed_once_its_result_is_there_leaves_it_as_it_is(tmp_path: Path, mode: str) -> None:
    sinks = [ResultDirectory(Target(str(tmp_path / "out"), mode)) for _ in range(3)]
    for sink in sinks[:2]:
        sink.know(SinkContext("one"))
    for sink, value in zip(sinks, (1, 2), strict=False):
        sink.check()
        sink.begin()
        assert sink.commit([sink.stage(pa.table({"value": [value]}), 0, 0)], 1, 0.0, is_last=True) == (
            "part-00000.parquet",
        )
        sink.abort()
    assert (value_in(tmp_path / "out"), names(tmp_path)) == (1, ["out", "work"])
    if mode == "error":
        with pytest.raises(TableError, match="is not empty"):
            sinks[2].check()


def test_a_result_is_on_the_disk_before_it_comes_to_its_place_and_so_is_its_name_before_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    rename, fsync = Path.rename, os.fsync

    def syncing(file: int) -> None:
        fsync(file)
        done.append(Path(f"/proc/self/fd/{file}").readlink().name)

    def renaming(source: Path, goal: Path) -> Path:
        renamed = rename(source, goal)
        done.append(f"{source.name} becomes {goal.name}")
        return renamed

    write(job(tmp_path / "out"))
    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    write(job(tmp_path / "out"))
    rest = done[done.index("part-00000.parquet") :]
    assert rest == ["part-00000.parquet", "_job.yaml", "new", "out becomes old", "new becomes out", tmp_path.name]


def test_inline_records_are_written_as_they_are_and_what_yaml_has_no_form_for_as_text(tmp_path: Path) -> None:
    records = [{"k": b"\xff", "v": 1}, {"k": b"\xfe", "day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 12)}]
    given = {"input": {"format": "records", "records": records}, "key": "k"}
    with publication(of({**given, "output": {"path": str(tmp_path / "out")}})) as output:
        output.commit([])
    resolved = yaml.safe_load((tmp_path / "out" / "_job.yaml").read_text(encoding="utf-8"))
    assert resolved["input"]["records"] == records
    written = yaml.safe_load(as_yaml({"records": [Decimal("1.50")], "path": tmp_path}))
    assert written == {"records": ["1.50"], "path": str(tmp_path)}


CSV = "input: {format: csv, path: PATH}"
SQL = "input: {format: sql, query: SELECT 1, views: {v: {format: csv, path: PATH}}}"


@pytest.mark.parametrize("mode", ["error", "overwrite"])
@pytest.mark.parametrize(
    ("text", "output", "which"),
    [
        ("key: word", "work", "is the working directory"),
        ("key: word", "", "holds the working directory"),
        (CSV.replace("PATH", "../data/a.csv"), "project", "is the job file's directory"),
        (CSV.replace("PATH", "../data/a.csv"), "data", "is a directory of the input"),
        (CSV.replace("PATH", "../data/none.csv"), "data", "is a directory of the input"),
        (CSV.replace("PATH", "../data"), "data", "is a directory of the input"),
        (CSV.replace("PATH", "../data/deep"), "data", "holds a directory of the input"),
        (CSV.replace("PATH", "[../link.csv, x.csv]"), "data", "is a directory of the input"),
        (CSV.replace("PATH", '"../da*/*.csv"'), "data", "is a directory of the input"),
        (CSV.replace("PATH", '"../data/*/*.csv"'), "data", "holds a directory of the input"),
        (CSV.replace("PATH", '"../{other,data}/a.csv"'), "data", "is a directory of the input"),
        (CSV.replace("PATH", '"file:ROOT/data/a.csv"'), "data", "is a directory of the input"),
        (SQL.replace("PATH", "../data/a.csv"), "data", "is a directory of the input"),
        ("python_path: [../code]", "code", "is a directory of python_path"),
        ("spark: {stage_dir: ../stage/here}", "stage", "holds the directory where inputs are staged"),
        ("spark: {stage_dir: 'file:ROOT/stage'}", "stage", "is the directory where inputs are staged"),
        ("dead_letters: ../out/letters", "out", "lie one in the other"),
        ("dead_letters: ../out", "out/result", "lie one in the other"),
        (CSV.replace("PATH", "../data, recursive: true"), "data/out", "lies in the input .*/data, .* outside of it"),
        (CSV.replace("PATH", "../data, recursive: true, glob: '*.csv'"), "data/o.csv", "lies in the input .*/data, "),
    ],
)
def test_a_place_that_the_job_needs_is_refused(tmp_path: Path, text: str, output: str, which: str, mode: str) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "b.csv").touch()
    (tmp_path / "data" / "a.csv").touch()
    (tmp_path / "link.csv").symlink_to(tmp_path / "data" / "a.csv")
    (tmp_path / "project").mkdir()
    path, where = tmp_path / "project" / "job.yaml", f"output: {{path: ../{output}, mode: {mode}}}"
    given = "reducer: count" if "input:" in text else "reducer: count\ninput: {format: given}"
    path.write_text(f"{text.replace('ROOT', str(tmp_path))}\n{where}\n{given}", encoding="utf-8")
    file = config.load(path)
    with pytest.raises(ConfigError, match=rf"job.yaml:[12]: \w+.path: .*{which}"):
        check_outputs(file)


def test_a_place_is_known_by_a_link_and_by_another_name_and_so_is_an_earlier_result_that_is_the_input(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    file = job(tmp_path / "link", input={"format": "csv", "path": str(tmp_path / "data" / "a.csv")})
    with pytest.raises(ConfigError, match="link is a directory of the input"):
        check_outputs(file)
    write(job(tmp_path / "out"))
    for path in (tmp_path / "out", tmp_path / "out" / "part-00000.parquet", tmp_path / "o*" / "part-*.parquet"):
        with pytest.raises(ConfigError, match="out is a directory of the input"):
            check_outputs(job(tmp_path / "out", input={"format": "parquet", "path": str(path)}))
    (tmp_path / "loop").symlink_to("loop")
    check_outputs(job(tmp_path / "out", input={"format": "csv", "path": str(tmp_path / "loop")}))


@pytest.mark.parametrize(
    "given",
    [
        {"format": "csv", "path": "data"},
        {"format": "csv", "path": "data/*.csv"},
        {"format": "csv", "path": "s3://bucket/data/*"},
        {"format": "text", "path": "data", "recursive": True, "glob": "*.py"},
    ],
)
def test_a_place_beside_or_below_what_the_job_needs_is_good(tmp_path: Path, given: dict[str, object]) -> None:
    (tmp_path / "work" / "data").mkdir()
    file = job(tmp_path / "work" / "data" / "out", input=given, python_path=["."])
    for _ in range(2):
        check_outputs(file)
        write(file)


@pytest.mark.parametrize("how", [{}, {"publish": "table"}])
def test_results_by_epoch_are_held_to_the_same_places(tmp_path: Path, how: dict[str, str]) -> None:
    (tmp_path / "old" / "below").mkdir(parents=True)
    sections = {"input": {"format": "parquet", "path": str(tmp_path / "old" / "below")}}
    with pytest.raises(ConfigError, match=r"output.path: .*/old holds a directory of the input"):
        check_outputs(of({**sections, "output": {"path": str(tmp_path / "old"), **how}}))


def test_a_place_is_looked_at_before_an_executor_can_change_the_working_directory(tmp_path: Path) -> None:
    write(job(tmp_path / "work" / "data"))
    module = "import os\nos.chdir('..')\nclass Sum:\n    def reduce(self, key, values): return values\n"
    (tmp_path / "wanders.py").write_text(module, encoding="utf-8")
    text = "input: {format: parquet, path: work/data}\nkey: word\nreducer: wanders:Sum\n"
    (tmp_path / "job.yaml").write_text(text + "output: {path: data, mode: overwrite}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"output.path: data is a directory of the input"):
        JobSpec(config.load(tmp_path / "job.yaml")).check()


def test_a_relative_place_is_below_the_directory_in_which_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = JobSpec(of({"input": {"format": "records", "records": ["a"]}, "key": "value", "output": {"path": "out"}}))
    spec.check()
    monkeypatch.chdir(tmp_path)
    [output] = spec.for_one_run().outputs.values()
    assert output.sink.place == str(tmp_path / "out")


@pytest.mark.parametrize("named", ["first", "second"])
def test_two_directories_are_compared_though_one_is_a_uri(tmp_path: Path, named: str) -> None:
    """The one that is a URI is compared with the other, and the other with it."""
    uri, plain = f"file://{tmp_path}/out", str(tmp_path / "out" / "inside")
    output, partial = (uri, plain) if named == "first" else (plain, uri)
    with pytest.raises(ConfigError, match=r"output.1.path: .* of output.0.path, lie one in the other"):
        check_outputs(of({"output": [output, {"path": partial, "publish": "table"}]}))
