"""A result and partial results go nowhere where they would destroy what the job needs: code, inputs, stages."""

from pathlib import Path

import pytest
from output_samples import check_outputs, job, of, write

from dpa import config
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError

pytestmark = pytest.mark.usefixtures("elsewhere")

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


def test_a_place_is_known_by_a_link_and_by_another_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    file = job(tmp_path / "link", input={"format": "csv", "path": str(tmp_path / "data" / "a.csv")})
    with pytest.raises(ConfigError, match="link is a directory of the input"):
        check_outputs(file)


def test_an_input_that_is_a_loop_of_links_is_not_held_against_the_output(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    check_outputs(job(tmp_path / "out", input={"format": "csv", "path": str(tmp_path / "loop")}))


def test_an_earlier_result_that_is_the_input_is_not_overwritten(tmp_path: Path) -> None:
    write(job(tmp_path / "out"))
    for path in (tmp_path / "out", tmp_path / "out" / "part-00000.parquet", tmp_path / "o*" / "part-*.parquet"):
        with pytest.raises(ConfigError, match="out is a directory of the input"):
            check_outputs(job(tmp_path / "out", input={"format": "parquet", "path": str(path)}))


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
