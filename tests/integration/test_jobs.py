"""The jobs in `configs/`, on a small piece of their input, against the real Spark reference."""

import sysconfig
from pathlib import Path

import pytest

from dpa import Job
from dpa.testing import LocalBackend

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tree of source files, with one that is not UTF-8."""
    tree = tmp_path_factory.mktemp("text")
    (tree / "inner").mkdir()
    for name in ("argparse.py", "inspect.py", "ast.py"):
        source = Path(sysconfig.get_paths()["stdlib"]) / name
        (tree / "inner" / name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    (tree / "latin.py").write_bytes("# caf\xe9 cr\xe8me, def na\xefve\nimport os\n".encode("latin-1"))
    (tree / "not-source.txt").write_text("nothing of this counts", encoding="utf-8")
    return tree


@pytest.mark.usefixtures("ray", "spark")
@pytest.mark.parametrize("name", ["wordcount", "first_letter", "naive_bayes"])
def test_the_result_of_a_shipped_job_equals_sparks(name: str, text: Path, tmp_path: Path) -> None:
    few = "parallelism={mappers: 1, reducers: 2}"
    overrides = [f"input.path={text}", few, "limits.batch_records=2000"]
    if name != "first_letter":
        overrides += [f"output.path={tmp_path / 'out'}"]
    if name == "naive_bayes":
        overrides += ["balance.report_every=500", "balance.min_queue=1"]
    job = Job.from_file(ROOT / "configs" / f"{name}.yaml", overrides)
    job.validate()
    result = job.run(backend="ray" if name == "wordcount" else LocalBackend())  # one of them on real actors
    report = result.report
    assert report.reference.checked
    assert report.reference.matches, report.reference.differences
    assert report.reference.rows == result.table().num_rows > 0
    assert report.main.skew.spark is not None


@pytest.mark.usefixtures("spark")
def test_the_paper_workload_is_counted_exactly_and_names_its_hot_keys() -> None:
    overrides = ["reducer.args.seconds=0.002", "balance.strategy=doubling", "parallelism.mappers=1"]
    report = Job.from_file(ROOT / "configs" / "paper" / "wl4.yaml", overrides).run(backend=LocalBackend()).report
    assert report.reference.matches
    assert report.main.skew.static == pytest.approx(0.49, abs=0.005)
    assert {hot.key for hot in report.main.hot_keys[:2]} == {"o", "u"}


@pytest.mark.usefixtures("spark")
def test_the_profiles_of_users_equal_sparks() -> None:
    report = Job.from_file(ROOT / "configs" / "clicks.yaml", ["input.rows=20000"]).run(backend=LocalBackend()).report
    assert report.reference.matches, report.reference.differences
    assert [(hot.key, round(hot.share, 1)) for hot in report.main.hot] == [(0, 0.4)]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_sampled_selected_and_filtered_input_is_what_the_reference_sees(form: str, tmp_path: Path) -> None:
    rows = [(f"k{number % 7}", number) for number in range(2_000)]
    if form == "csv":
        lines = ["name,amount", *(f"{name},{amount}" for name, amount in rows)]
    else:
        lines = [f'{{"name": "{name}", "amount": {amount}}}' for name, amount in rows]
    (tmp_path / f"data.{form}").write_text("\n".join(lines), encoding="utf-8")
    job = tmp_path / "job.yaml"
    job.write_text(
        f"""
input:
  format: {form}
  path: data.{form}
  options: {{header: "true", inferSchema: "true"}}
  select: [name, amount * 2 AS amount]
  where: amount >= 100
sample: {{fraction: 0.5, by: name}}
key: name
value: amount
parallelism: {{mappers: 1, reducers: 2}}
reducer: {{use: sum, args: {{column: amount}}}}
reference: {{sql: "SELECT name, sum(amount) AS amount FROM input GROUP BY name"}}
""",
        encoding="utf-8",
    )
    report = Job.from_file(job).run(backend=LocalBackend()).report
    assert report.reference.matches
    assert 700 < report.records.read < 1_200
