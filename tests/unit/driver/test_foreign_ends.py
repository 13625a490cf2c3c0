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
from dpa.errors import ConfigError, ExecutorError, TableError
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


@pytest.mark.parametrize("backend", [LocalBackend(), SimulatedBackend()], ids=["local", "simulated"])
def test_a_job_reads_and_writes_through_what_a_package_registers(tmp_path: Path, backend: Backend) -> None:
    result = Job(file=parse(document(tmp_path))).run(backend=backend)
    lines = (tmp_path / "counts.json").read_text(encoding="utf-8").splitlines()
    assert {row["line"]: row["count"] for row in map(json.loads, lines)} == {"to be": 2, "or not": 1}
    output = result.report.main.output
    assert output is not None
    assert (output.path, output.rows) == (str(tmp_path / "counts.json"), 2)
    with pytest.raises(TableError, match=r"went to .*counts.json: read it there"):
        result.table()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts.json", "logs", "site", "work"]


def test_a_step_reads_and_writes_through_them_too(tmp_path: Path) -> None:
    given = document(tmp_path)
    stages = {
        "lines": {"read": given["input"]},
        "counts": {"from": "lines", "key_by": "line", "reduce": "count", "write": given["output"]},
    }
    Job(file=parse({"stages": stages})).run(backend=LocalBackend())
    assert (tmp_path / "counts.json").exists()


def test_a_failed_job_leaves_nothing_of_what_was_staged(tmp_path: Path) -> None:
    class Late(LocalBackend):
        def run(self, *arguments: Any) -> Any:
            super().run(*arguments)
            raise ExecutorError("too late")

    assert Job(file=parse(document(tmp_path))).run(backend=Late(), check=False).report.status == "failed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "site", "work"]


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
        (
            {"input": {"format": "feed", "use": "text_file"}},
            "input.use: no installed .* did you mean 'text_files'",
        ),
        ({"input": {"format": "feed", "use": "broken"}}, r"input.use: 'broken' \(their_ends.nothing:Nothing\) cannot"),
        ({"input": {"format": "feed", "use": "their_ends.text_files:SCHEMA"}}, "is Schema, not a `dpa.Feed`"),
        ({"output": {"use": "kafka"}}, "output.use: no installed package registers 'kafka' among its dpa.sinks; "),
        (
            {"output": {"use": "json_lines", "args": {"paht": "x"}}},
            "output.args: json_lines cannot be made .*'paht'",
        ),
        ({"output": {"use": "their_ends.text_files:SCHEMA"}}, "output.use: .* is Schema, not a `dpa.Sink`"),
        ({"sample": {"fraction": 0.5}}, "sample: is Spark's, and this input is a feed"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_key(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Job(file=parse(document(tmp_path, **section))).run(backend=LocalBackend())


class Unreadable(Sink):
    """Refuses, and has no `read`."""

    def check(self) -> None:
        raise KeyError("no such topic")

    def stage(self, rows: pa.Table, task: int, epoch: int) -> None:
        raise NotImplementedError

    def commit(self, staged: Any, epoch: int, seconds: float, *, is_last: bool = False) -> tuple[str, ...]:
        raise RuntimeError("the broker is gone")

    def abort(self) -> None:
        raise RuntimeError("and does not come back")


class Deaf(Unreadable):
    """Takes rows, but cannot publish them."""

    def check(self) -> None:
        """All is well."""

    def stage(self, rows: pa.Table, task: int, epoch: int) -> None:
        return None


class Dumb(Deaf):
    """Cannot even take rows."""

    def stage(self, rows: pa.Table, task: int, epoch: int) -> None:
        raise ValueError("no rows today")


def test_whatever_a_sink_raises_is_said_with_its_key(tmp_path: Path) -> None:
    def run(name: str, **sections: Any) -> Any:
        output = {"use": f"test_foreign_ends:{name}"}
        return Job(file=parse(document(tmp_path, output=output, **sections))).run(backend=LocalBackend(), check=False)

    with pytest.raises(ConfigError, match="output: KeyError: 'no such topic'"):
        run("Unreadable")
    with pytest.warns(RuntimeWarning, match="RuntimeError: and does not come back"):
        assert run("Deaf").report.error == "output: RuntimeError: the broker is gone"
        assert "test_foreign_ends.Dumb.stage failed on the share of task" in str(run("Dumb").report.error)
    with pytest.raises(ConfigError, match=r"reference: the sink 'test_foreign_ends:Deaf' has no `read`"):
        run("Deaf", reference={"sql": "SELECT line, count(*) AS count FROM input GROUP BY line"})


class Shown(Deaf):
    """Publishes, and returns what is no list of names."""

    names: Any = None

    def commit(self, staged: Any, epoch: int, seconds: float, *, is_last: bool = False) -> Any:
        return self.names

    def abort(self) -> None:
        """There is nothing to remove."""


class Counted(Shown):
    names = 1


def test_what_is_published_fails_no_job_whatever_commit_returns(tmp_path: Path) -> None:
    def run(name: str) -> Any:
        file = parse(document(tmp_path, output={"use": f"test_foreign_ends:{name}"}))
        return Job(file=file).run(backend=LocalBackend()).report

    assert (run("Shown").status, run("Shown").main.output.files) == ("ok", ())
    with pytest.warns(RuntimeWarning, match="output: Counted.commit returned 1, which names no files"):
        assert run("Counted").status == "ok"


def test_an_error_shows_no_password(tmp_path: Path) -> None:
    output = {"use": "json_lines", "args": {"path": "x", "password": "hunter2"}}
    with pytest.raises(ConfigError, match="json_lines cannot be made of") as error:
        Job(file=parse(document(tmp_path, output=output))).run(backend=LocalBackend())
    assert "hunter2" not in str(error.value)


class Torn(Feed):
    """Fails wherever it is asked to."""

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
    """Gives what is no page, and has what is no schema."""

    schema: Any = ("n",)

    def poll(self, split_rows: int, position: Any = None) -> Any:
        return [TornSplit()]


class WrongSplit(TornSplit):
    given: Any = pa.record_batch({"n": [1, 2]})

    def batches(self, batch_rows: int) -> Iterator[Any]:
        yield self.given


class TableSplit(WrongSplit):
    given = pa.table({"n": [1, 2, 3]})


def test_whatever_a_feed_gives_is_checked() -> None:
    feed = ForeignFeed(Wrong(), "wrong")
    with pytest.raises(TableError, match=r"wrong.schema: TypeError: it is a tuple, where a Schema of pyarrow, or None"):
        _ = feed.schema
    with pytest.raises(TableError, match=r"wrong.poll: TypeError: it gives a list, where a dpa.Page is due"):
        feed.poll(1)
    for kind, said in ((WrongSplit, "3 rows by its `rows`, and 2 by its `batches`"), (TableSplit, "gives a Table")):
        split = ForeignFeed(Torn(), "torn")._packed(kind())
        with pytest.raises(TableError, match=f"reading a split of torn: .*{said}"):
            table_of([split])


class Drifted(WrongSplit):
    """Gives rows of other columns than its feed declares, from the second batch on."""

    def batches(self, batch_rows: int) -> Iterator[Any]:
        yield pa.record_batch({"n": [1]})
        yield self.given


class Texts(Drifted):
    given = pa.record_batch({"n": ["1", "2"]})


class Renamed(Drifted):
    given = pa.record_batch({"m": [1, 2]})


class Widened(Drifted):
    given = pa.record_batch({"n": [1, 2], "m": ["a", "b"]})


class NotNull(Drifted):
    """What may be null is no part of a type."""

    given = pa.record_batch([[1, 2]], pa.schema([pa.field("n", pa.int64(), nullable=False)]))


class Drifting(Torn):
    def __init__(self, split: type[Drifted]) -> None:
        self.split = split

    def poll(self, split_rows: int, position: Any = None) -> Page:
        return Page([self.split()])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Texts, r" of drifting has the column 'n' as string, and the feed's `schema` declares it as int64"),
        (Renamed, r" of drifting has no column 'n', and the feed's `schema` declares it as int64"),
        (Widened, r" of drifting has the column 'm' as string, and the feed's `schema` does not declare it"),
    ],
)
def test_rows_are_held_against_the_columns_that_their_feed_declares(kind: type[Drifted], said: str) -> None:
    feed = ForeignFeed(Drifting(kind), "drifting")
    splits = [*all_splits(feed, 10)]
    with pytest.raises(TableError, match=f"a split{said}"):
        list(pickle.loads(pickle.dumps(splits[0])).after(0).batches(10))


def test_a_sample_is_held_against_them_too_and_what_may_be_null_is_not() -> None:
    [split] = all_splits(ForeignFeed(Drifting(NotNull), "drifting"), 10)
    assert sum(batch.num_rows for batch in split.batches(10)) == 3
    texts = Drifting(Texts)
    texts.sample = lambda *given: pa.table({"n": ["1"]})  # type: ignore[method-assign]
    with pytest.raises(TableError, match="the sample of drifting has the column 'n' as string"):
        ForeignFeed(texts, "drifting").sample(1)


def test_rows_have_their_columns_in_the_order_that_is_declared() -> None:
    feed = Drifting(Widened)
    feed.schema = pa.schema({"m": pa.string(), "n": pa.int64()})
    feed.sample = lambda *given: pa.table({"n": [1], "m": ["a"]})  # type: ignore[method-assign]
    with pytest.raises(TableError, match="the sample of drifting has the columns n, m, and `schema` orders m, n"):
        ForeignFeed(feed, "drifting").sample(1)


class Nowhere(Shown):
    """Does not know its place."""

    @property
    def place(self) -> str:
        raise LookupError("no such cluster")


class Misplaced(Shown):
    place: Any = Path("there")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Nowhere", "output: Nowhere.place: LookupError: no such cluster"),
        ("Misplaced", "output: Misplaced.place is PosixPath.*, where a text or None is due"),
    ],
)
def test_a_sink_whose_place_is_wrong_is_named(tmp_path: Path, name: str, said: str) -> None:
    file = parse(document(tmp_path, output={"use": f"test_foreign_ends:{name}"}))
    with pytest.raises(ConfigError, match=said):
        Job(file=file).check()
    with pytest.raises(ConfigError, match=said):
        Job(file=file).run(backend=LocalBackend())


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


def test_a_place_that_is_lost_once_rows_are_there_fails_no_job(tmp_path: Path) -> None:
    file = parse(document(tmp_path, output={"use": "test_foreign_ends:Moving"}))
    with pytest.warns(RuntimeWarning, match="output: Moving.place: LookupError: moved away"):
        report = Job(file=file).run(backend=LocalBackend()).report
    assert (report.status, report.main.output.path) == ("ok", "here")  # type: ignore[union-attr]


class Made(Shown):
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def read(self, staged: Any) -> pa.Table:
        raise NotImplementedError


def test_a_sink_is_made_once_for_a_run_and_the_checks_before_it(tmp_path: Path) -> None:
    import test_foreign_ends as named

    job = Job(file=parse(document(tmp_path, output={"use": "test_foreign_ends:Made"})))
    job.check()
    job.run(backend=LocalBackend())
    assert named.Made.made == 1
    job.run(backend=LocalBackend())
    assert named.Made.made == 2
