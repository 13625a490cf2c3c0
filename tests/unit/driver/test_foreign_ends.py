"""A package of somebody else's brings a feed and a sink, and job files name them."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dpa import Feed, Job, Page, Sink
from dpa.config import parse
from dpa.driver.backend import Backend
from dpa.errors import ConfigError, TableError
from dpa.run import app
from dpa.sources.feed import all_splits, table_of
from dpa.sources.foreign import ForeignFeed
from dpa.testing import LocalBackend
from experiments.simulation.backend import SimulatedBackend

pytestmark = pytest.mark.usefixtures("elsewhere")

EXAMPLES = Path(__file__).parents[3] / "jobs"
ENTRY_POINTS = """
[dpa.sources]
text_files = their_ends.text_files:TextFiles
broken = their_ends.nothing:Nothing

[dpa.sinks]
json_lines = their_ends.json_lines:JsonLines
no_sink = their_ends.text_files:Lines
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package, installed as pip would; and two files that its feed reads."""
    site = tmp_path / "site"
    for directory in (site / "their_ends", site / "their_ends-1.0.dist-info", tmp_path / "logs"):
        directory.mkdir(parents=True)
    for name in ("text_files", "json_lines"):
        (site / "their_ends" / f"{name}.py").write_bytes((EXAMPLES / f"{name}.py").read_bytes())
    (site / "their_ends-1.0.dist-info" / "METADATA").write_text("Name: their-ends\nVersion: 1.0\n", encoding="utf-8")
    (site / "their_ends-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (tmp_path / "logs" / "1.txt").write_text("to be\nor not\n", encoding="utf-8")
    (tmp_path / "logs" / "2.txt").write_text("to be\n", encoding="utf-8")
    monkeypatch.syspath_prepend(site)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "their_ends"]:
        del sys.modules[name]


def document(tmp_path: Path, **sections: Any) -> dict[str, Any]:
    return {
        "input": {"format": "feed", "use": "text_files", "args": {"directory": str(tmp_path / "logs")}},
        "key": "line",
        "reducer": "count",
        "output": {"use": "json_lines", "args": {"path": str(tmp_path / "counts.json")}},
        **sections,
    }


def into(tmp_path: Path, name: str, **sections: Any) -> dict[str, Any]:
    return document(tmp_path, output={"use": f"test_foreign_ends:{name}"}, **sections)


def run(document: dict[str, Any], backend: Backend | None = None, *, check: bool = True) -> Any:
    return Job(file=parse(document)).run(backend=backend or LocalBackend(), check=check)


@pytest.mark.parametrize("backend", [LocalBackend(), SimulatedBackend()], ids=["local", "simulated"])
def test_a_job_reads_and_writes_through_what_a_package_registers(tmp_path: Path, backend: Backend) -> None:
    given = document(tmp_path)
    result = run(given, backend)
    lines = (tmp_path / "counts.json").read_text(encoding="utf-8").splitlines()
    assert {row["line"]: row["count"] for row in map(json.loads, lines)} == {"to be": 2, "or not": 1}
    output = result.report.main.output
    assert (output.path, output.rows) == (str(tmp_path / "counts.json"), 2)
    with pytest.raises(TableError, match=r"went to .*counts.json: read it there"):
        result.table()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts.json", "logs", "site", "work"]
    (tmp_path / "counts.json").unlink()
    counts = {"from": "lines", "key_by": "line", "reduce": "count", "write": given["output"]}
    run({"stages": {"lines": {"read": given["input"]}, "counts": counts}}, backend)
    assert (tmp_path / "counts.json").exists()


def test_the_command_line_validates_them(tmp_path: Path) -> None:
    job = tmp_path / "work" / "job.yaml"
    job.write_text(json.dumps(document(tmp_path)), encoding="utf-8")
    accepted = CliRunner().invoke(app, [str(job), "--validate"])
    assert accepted.exit_code == 0, accepted.output
    refused = CliRunner().invoke(app, [str(job), "--validate", "--set", "input.args.directory=/nowhere"])
    assert refused.exit_code == 2
    assert "input.args: text_files cannot be made of {'directory': '/nowhere'}: ValueError" in refused.output
    assert not (tmp_path / "counts.json").exists()


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"input": {"format": "feed", "use": "text_file"}}, "input.use: no installed .* did you mean 'text_files'"),
        ({"input": {"format": "feed", "use": "broken"}}, r"input.use: 'broken' \(their_ends.nothing:Nothing\) cannot"),
        ({"input": {"format": "feed", "use": "their_ends.text_files:SCHEMA"}}, "is Schema, not a `dpa.Feed`"),
        ({"output": {"use": "kafka"}}, "output.use: no installed package registers 'kafka' among its dpa.sinks; "),
        ({"output": {"use": "json_lines", "args": {"paht": "x"}}}, "output.args: json_lines cannot be made .*'paht'"),
        ({"output": {"use": "their_ends.text_files:SCHEMA"}}, "output.use: .* is Schema, not a `dpa.Sink`"),
        ({"sample": {"fraction": 0.5}}, "sample: is Spark's, and this input is a feed"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_key(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(document(tmp_path, **section))


class Unreadable(Sink):
    def check(self) -> None:
        raise KeyError("no such topic")

    def stage(self, rows: pa.Table, task: int, epoch: int) -> None:
        raise NotImplementedError

    def commit(self, staged: Any, epoch: int, seconds: float, *, is_last: bool = False) -> tuple[str, ...]:
        raise RuntimeError("the broker is gone")

    def abort(self) -> None:
        raise RuntimeError("and does not come back")


class Deaf(Unreadable):
    def check(self) -> None:
        """All is well."""

    def stage(self, rows: pa.Table, task: int, epoch: int) -> None:
        return None


class Dumb(Deaf):
    def stage(self, rows: pa.Table, task: int, epoch: int) -> None:
        raise ValueError("no rows today")


def test_whatever_a_sink_raises_is_said_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="output: KeyError: 'no such topic'"):
        run(into(tmp_path, "Unreadable"))
    with pytest.warns(RuntimeWarning, match="RuntimeError: and does not come back"):
        assert run(into(tmp_path, "Deaf"), check=False).report.error == "output: RuntimeError: the broker is gone"
        said = run(into(tmp_path, "Dumb"), check=False).report.error
        assert "test_foreign_ends.Dumb.stage failed on the share of task" in said
    reference = {"sql": "SELECT line, count(*) AS count FROM input GROUP BY line"}
    with pytest.raises(ConfigError, match=r"reference: the sink 'test_foreign_ends:Deaf' has no `read`"):
        run(into(tmp_path, "Deaf", reference=reference))
    output = {"use": "json_lines", "args": {"path": "x", "password": "hunter2"}}
    with pytest.raises(ConfigError, match="json_lines cannot be made of") as error:
        run(document(tmp_path, output=output))
    assert "hunter2" not in str(error.value)


class Shown(Deaf):
    """Publishes, and returns what is no list of names."""

    names: Any = None

    def commit(self, staged: Any, epoch: int, seconds: float, *, is_last: bool = False) -> Any:
        return self.names

    def abort(self) -> None:
        """There is nothing to remove."""


class Counted(Shown):
    names = 1


class Nowhere(Shown):
    @property
    def place(self) -> str:
        raise LookupError("no such cluster")


class Misplaced(Shown):
    place: Any = Path("there")


class Moving(Shown):
    """Knows its place only while nothing is there."""

    published = False

    @property
    def place(self) -> str:
        if self.published:
            raise LookupError("moved away")
        return "here"

    def commit(self, staged: Any, epoch: int, seconds: float, *, is_last: bool = False) -> Any:
        self.published = True


def test_what_is_published_fails_no_job_whatever_commit_returns_and_becomes_of_the_place(tmp_path: Path) -> None:
    report = run(into(tmp_path, "Shown")).report
    assert (report.status, report.main.output.files) == ("ok", ())
    with pytest.warns(RuntimeWarning, match="output: Counted.commit returned 1, which names no files"):
        assert run(into(tmp_path, "Counted")).report.status == "ok"
    with pytest.warns(RuntimeWarning, match="output: Moving.place: LookupError: moved away"):
        report = run(into(tmp_path, "Moving")).report
    assert (report.status, report.main.output.path) == ("ok", "here")


class Torn(Feed):
    schema = pa.schema({"n": pa.int64()})

    def poll(self, split_rows: int, position: Any = None) -> Page:
        if position is not None:
            raise OSError("the disk has gone")
        return Page([TornSplit()] if split_rows > 1 else [object()], None if split_rows > 1 else 1)  # type: ignore[list-item]


class TornSplit:
    rows = 3

    def after(self, rows: int) -> TornSplit:
        return self

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        raise ValueError("torn")


def test_whatever_a_feed_raises_is_a_table_error_in_its_name() -> None:
    feed = ForeignFeed(Torn(), "torn")
    with pytest.raises(TableError, match="object is no split: it lacks `rows`, `after` or `batches`"):
        feed.poll(1)
    with pytest.raises(TableError, match=r"torn.poll: OSError: the disk has gone"):
        feed.poll(10, 1)
    [split] = all_splits(feed, 10)
    with pytest.raises(TableError, match=r"reading a split of torn: ValueError: torn \(.*test_foreign_ends.py:\d+\)"):
        table_of([pickle.loads(pickle.dumps(split))])
    with pytest.raises(TableError, match="cannot be imported where they are read"):
        list(type(split)(b"cno_such_module\nName\n.", "torn", 1).batches(1))  # type: ignore[call-arg]


class Wrong(Torn):
    schema: Any = ("n",)

    def poll(self, split_rows: int, position: Any = None) -> Any:
        return [TornSplit()]


class Given(TornSplit):
    def __init__(self, *given: Any) -> None:
        self.given = given

    def batches(self, batch_rows: int) -> Iterator[Any]:
        yield from self.given


def test_whatever_a_feed_gives_is_checked() -> None:
    feed = ForeignFeed(Wrong(), "wrong")
    with pytest.raises(TableError, match=r"wrong.schema: TypeError: it is a tuple, where a Schema of pyarrow, or None"):
        _ = feed.schema
    with pytest.raises(TableError, match=r"wrong.poll: TypeError: it gives a list, where a dpa.Page is due"):
        feed.poll(1)
    for given, said in (
        (pa.record_batch({"n": [1, 2]}), "3 rows by its `rows`, and 2 by its `batches`"),
        (pa.table({"n": [1, 2, 3]}), "gives a Table"),
    ):
        split = ForeignFeed(Torn(), "torn")._packed(Given(given))
        with pytest.raises(TableError, match=f"reading a split of torn: .*{said}"):
            table_of([split])


TEXTS = pa.record_batch({"n": ["1", "2"]})
NOT_NULL = pa.record_batch([[1, 2]], pa.schema([pa.field("n", pa.int64(), nullable=False)]))


class Drifting(Torn):
    """Gives rows of other columns than it declares, from the second batch on; `sampled`: what it gives as a sample."""

    def __init__(self, then: pa.RecordBatch, sampled: pa.Table | None = None, **columns: pa.DataType) -> None:
        self.then, self.sampled = then, sampled
        self.schema = pa.schema(columns or {"n": pa.int64()})

    def poll(self, split_rows: int, position: Any = None) -> Page:
        return Page([Given(pa.record_batch({"n": [1]}), self.then)])

    def sample(self, *given: Any) -> Any:
        return self.sampled


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (TEXTS, r" of drifting has the column 'n' as string, and the feed's `schema` declares it as int64"),
        (
            pa.record_batch({"m": [1, 2]}),
            r" of drifting has no column 'n', and the feed's `schema` declares it as int64",
        ),
        (
            pa.record_batch({"n": [1, 2], "m": ["a", "b"]}),
            r" of drifting has the column 'm' as string, and the feed's `schema` does not declare it",
        ),
    ],
    ids=["another type", "another name", "one more"],
)
def test_rows_are_held_against_the_columns_that_their_feed_declares(then: pa.RecordBatch, said: str) -> None:
    splits = [*all_splits(ForeignFeed(Drifting(then), "drifting"), 10)]
    with pytest.raises(TableError, match=f"a split{said}"):
        list(pickle.loads(pickle.dumps(splits[0])).after(0).batches(10))


def test_a_sample_is_held_against_them_and_their_order_too_and_what_may_be_null_is_not() -> None:
    [split] = all_splits(ForeignFeed(Drifting(NOT_NULL), "drifting"), 10)
    assert sum(batch.num_rows for batch in split.batches(10)) == 3
    texts = Drifting(TEXTS, pa.table({"n": ["1"]}))
    with pytest.raises(TableError, match="the sample of drifting has the column 'n' as string"):
        ForeignFeed(texts, "drifting").sample(1)
    reordered = Drifting(TEXTS, pa.table({"n": [1], "m": ["a"]}), m=pa.string(), n=pa.int64())
    with pytest.raises(TableError, match="the sample of drifting has the columns n, m, and `schema` orders m, n"):
        ForeignFeed(reordered, "drifting").sample(1)


def test_a_sink_whose_place_is_wrong_is_named(tmp_path: Path) -> None:
    for name, said in (
        ("Nowhere", "output: Nowhere.place: LookupError: no such cluster"),
        ("Misplaced", "output: Misplaced.place is PosixPath.*, where a text or None is due"),
    ):
        job = Job(file=parse(into(tmp_path, name)))
        for call in (job.check, lambda job=job: job.run(backend=LocalBackend())):
            with pytest.raises(ConfigError, match=said):
                call()


class Made(Shown):
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def read(self, staged: Any) -> pa.Table:
        raise NotImplementedError


def test_a_sink_is_made_once_for_a_run_and_the_checks_before_it(tmp_path: Path) -> None:
    import test_foreign_ends as named

    job = Job(file=parse(into(tmp_path, "Made")))
    job.check()
    job.run(backend=LocalBackend())
    assert named.Made.made == 1
    job.run(backend=LocalBackend())
    assert named.Made.made == 2
