"""The page `docs/from-polars-or-spark.md`: every block runs, and what dpa gives is what polars and Spark give."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import yaml

from dpa import Flow, Job
from dpa.flow import Stream
from dpa.testing import LocalBackend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = (Path(__file__).parents[2] / "docs" / "from-polars-or-spark.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## \d+\. (.*?)$\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL))
TOOLS = ("polars", "Spark", "dpa", "job file")

ON_RAY = {"checked", "cluster"}
"""The flows that run on Ray; the others run in this process."""

ROW_SECONDS = {"bills": 10.0}
"""Virtual seconds that a row takes, where a checkpoint is to come before the row that fails."""

ADDED = {"window_end", "rank"}
"""Columns that dpa has and polars has not."""

NOT_IN_POLARS = [
    "Check against Spark",
    "Read a stream",
    "Publish results every few seconds",
    "Resume",
    "Run on a cluster",
]

NO_ROWS = ["Read files", "Write partitioned files", "Write one file", "Look at rows"]
"""Sections whose names are compared in those that follow, or whose files are."""

Rows = list[dict[str, Any]]
Found = dict[str, dict[str, Rows]]
"""By section of the page, and by the name that a block gives."""


def blocks(text: str, tool: str) -> list[str]:
    """The lines below the name of the tool, alone or with others whose code is the same."""
    named = re.findall(r"^# ([\w, ]+)\n(.*?)(?=^# [\w, ]+\n|^```)", text, re.MULTILINE | re.DOTALL)
    return [block for tools, block in named if tool in re.split(", | and ", tools)]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of each tool, one with the files of the page."""
    found = {tool: tmp_path_factory.mktemp(tool.replace(" ", "-")) for tool in TOOLS}
    for directory in found.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(directory)
            exec(compile(blocks(TEXT, "data")[0], "data", "exec"), {})
            Path("out").mkdir()
    return found


def run_blocks(tool: str, directory: Path, names: dict[str, Any], kind: type) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the blocks of a tool; gives of each section what is new and of a kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for title, text in SECTIONS.items():
            before = dict(names)
            for block in blocks(text, tool):
                exec(compile(block, f"{title}, {tool}", "exec"), names)
            new = (name for name in names if names[name] is not before.get(name))
            yield title, {name: names[name] for name in new if isinstance(names[name], kind)}


@pytest.fixture(scope="module")
def of_polars(directories: dict[str, Path]) -> Found:
    ran = run_blocks("polars", directories["polars"], {}, pl.LazyFrame)
    return {title: {name: rows_of(given.collect()) for name, given in new.items()} for title, new in ran}


@pytest.fixture(scope="module")
def of_spark(directories: dict[str, Path], spark: "SparkSession") -> Iterator[Found]:
    from pyspark.sql import DataFrame

    places = spark._jvm.org.apache.hadoop.fs
    local = places.FileSystem.get(spark._jsc.hadoopConfiguration())
    before = local.getWorkingDirectory()
    local.setWorkingDirectory(places.Path(str(directories["Spark"])))
    ran = run_blocks("Spark", directories["Spark"], {}, DataFrame)
    yield {
        title: {name: rows_of(pl.DataFrame(given.toArrow())) for name, given in new.items() if not given.isStreaming}
        for title, new in ran
    }
    local.setWorkingDirectory(before)
    for view in spark.catalog.listTables():  # other tests find the session as it was
        spark.catalog.dropTempView(view.name)


@pytest.fixture(scope="module")
def of_dpa(directories: dict[str, Path], ray: None, spark: "SparkSession") -> Found:
    names: dict[str, Any] = {"__name__": "page"}
    tables: dict[Stream, Rows] = {}
    run = Flow.run

    def run_with_results(flow: Flow, **options: Any) -> Any:
        steps = make_results(flow._stages, f"steps/{flow.name}")
        streams = [each for each in names.values() if isinstance(each, Stream) and each.flow is flow]
        options.pop("address", None)  # the Ray of the tests stands for the cluster
        seconds = ROW_SECONDS.get(flow.name, 1e-5)
        result = run(flow, backend="ray" if flow.name in ON_RAY else LocalBackend(row_seconds=seconds), **options)
        with_rows = [stream for stream in streams if stream.step in steps]
        tables.update({stream: rows_of(pl.DataFrame(result.table(stream.step))) for stream in with_rows})
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Flow, "run", run_with_results)
        found = dict(run_blocks("dpa", directories["dpa"], names, Stream))
    return {
        title: {name: tables[stream] for name, stream in new.items() if stream in tables}
        for title, new in found.items()
    }


@pytest.fixture(scope="module")
def of_job_file(directories: dict[str, Path], spark: "SparkSession") -> Found:
    [given] = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    stages = yaml.safe_load(given)["stages"]
    results_of = make_results(stages, "steps")
    directory = directories["job file"]
    (directory / "shop.py").write_text(blocks(SECTIONS["A custom function"], "dpa")[0].partition("sized =")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.syspath_prepend(directory)
        result = Job(name="shop", stages=stages).run(backend=LocalBackend())
    tables = {name: rows_of(pl.DataFrame(result.table(name))) for name in results_of}
    return dict.fromkeys(SECTIONS, tables)


def make_results(stages: dict[str, Any], place: str) -> set[str]:
    """Have all steps write their rows but those that read; gives their names."""
    names = {name for name, step in stages.items() if "read" not in step}
    for name in names:
        stages[name].setdefault("write", {"path": f"{place}/{name}", "mode": "overwrite"})
    return names


def rows_of(frame: pl.DataFrame) -> Rows:
    naive = frame.with_columns(pl.col(pl.Datetime("us", "*")).dt.replace_time_zone(None))
    return naive.to_dicts()


def check(found: Rows, wanted: Rows) -> None:
    columns = set(wanted[0])
    assert columns <= set(found[0]) <= columns | ADDED
    ordered = [sorted(([row[name] for name in sorted(columns)] for row in rows), key=str) for rows in (found, wanted)]
    assert len(found) == len(wanted)
    for row, other in zip(*ordered, strict=True):
        for value, expected in zip(row, other, strict=True):
            is_close = isinstance(value, float) and math.isclose(value, expected)
            assert is_close or value == expected, (row, other)


@pytest.mark.parametrize("tool", ["of_spark", "of_dpa", "of_job_file"])
@pytest.mark.parametrize("title", [title for title in SECTIONS if title not in (*NOT_IN_POLARS, *NO_ROWS)])
def test_a_section_gives_what_polars_gives(title: str, tool: str, of_polars: Found, request: Any) -> None:
    found: Found = request.getfixturevalue(tool)
    compared = of_polars[title].keys() & found[title].keys()
    assert compared or (tool == "of_job_file" and title == "Rows that fail")
    for name in compared:
        check(found[title][name], of_polars[title][name])


def test_what_polars_cannot_do_gives_the_same_rows(of_polars: Found, of_spark: Found, of_dpa: Found) -> None:
    orders = [
        {"customer": "ann", "n": 4},
        {"customer": "bob", "n": 4},
        {"customer": "cid", "n": 1},
        {"customer": "dan", "n": 1},
    ]
    check(of_spark["Read a stream"]["live_counts"], orders)
    check(of_dpa["Read a stream"]["live_counts"], orders)
    check(of_dpa["Run on a cluster"]["counts"], orders)
    check(of_dpa["Publish results every few seconds"]["published"], of_polars["Tumbling windows"]["hourly"])
    prices = {"ann": 2200, "bob": 3000, "dan": 450}
    check(of_dpa["Resume"]["bill"], [{"customer": name, "price": price} for name, price in prices.items()])


def test_tools_write_the_same_files(
    directories: dict[str, Path], of_polars: Found, of_spark: Found, of_dpa: Found, of_job_file: Found
) -> None:
    places, statistics = [], []
    for out in (directory / "out" for directory in directories.values()):
        places.append(pl.read_parquet(out / "by_country/**/*.parquet", hive_partitioning=True))
        assert {place.name for place in (out / "by_country").glob("*=*")} == {"country=DE", "country=FR", "country=IT"}
        [file] = [*(out / "stats.csv").glob("*.csv")] or [out / "stats.csv"]
        statistics.append(pl.read_csv(file, try_parse_dates=True))
    for frame in places[1:]:
        check(rows_of(frame), rows_of(places[0]))
    for frame in statistics[1:]:
        check(rows_of(frame), rows_of(statistics[0]))


def test_the_page_has_thirty_tasks_in_dpa() -> None:
    assert len(SECTIONS) == 30
    assert all(blocks(text, "dpa") for text in SECTIONS.values())
    labels = re.findall(r"^# ([\w, ]+)\n", TEXT.partition("\n")[2], re.MULTILINE)
    assert {tool for label in labels for tool in re.split(", | and ", label)} == {"data", *TOOLS[:-1]}
    assert re.findall(r"^```python\n(?!# )", TEXT, re.MULTILINE) == [], "lines say which tool they are of"
