"""Dead letters are listed, shown, and replayed through mended executors into the result, each once."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dpa import Flow, Job, Reducer
from dpa.dead_letters import _replay
from dpa.dead_letters.__main__ import app
from dpa.dead_letters._letters import FoundLetters
from dpa.errors import ConfigError, TableError
from dpa.sinks.reading import published
from dpa.testing import LocalBackend
from experiments.s3_server import uri_of

BROKEN = """
    def pairs(record):
        if record["value"] in ("1", "5"):
            raise ValueError(f"{record['value']} is bad")
        yield "key", int(record["value"])
"""
MENDED = """
    def pairs(record):
        if record["value"] == "5":
            raise KeyError("five is still bad")
        yield "key", 100 * int(record["value"])
"""
JOB = """
input: {format: records, records: ["1", "2", "3", "5"]}
mapper: broken_pairs:pairs
reducer: sum
on_error: dead_letter
dead_letters: dead
output: {path: out}
"""


def invoked(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.mark.parametrize(
    "output",
    ["{path: out}", "{path: out, format: csv, single_file: true}", "{path: out, format: json, partition_by: key}"],
)
def test_the_command_replays_letters_into_a_keyed_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    job = JOB.replace("{path: out}", output)
    for name, text in (("broken_pairs.py", BROKEN), ("mended_pairs.py", MENDED), ("job.yaml", job)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    Job.from_file(tmp_path / "job.yaml").run(backend=LocalBackend())
    assert re.search(r"mapper +ValueError +2 +1 is bad", invoked("dead", "list"))
    shown = invoked("dead", "show", "--limit", "1")
    assert "letter 1 of 2" in shown and "offset 0" in shown and "raise ValueError" in shown
    [file] = (tmp_path / "dead").glob("*.parquet")
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(TableError, match=f"{file.name} is a file: name the directory"):
        invoked(str(file), "replay", "job.yaml")
    said = invoked("dead", "replay", "job.yaml", "--set", "mapper=mended_pairs:pairs")
    assert "2 records replayed" in said and "1 dead letter left" in said and "failed again (KeyError)" in said
    assert published(Path("out")).to_pylist() == [{"key": "key", "value": 2 + 3 + 100}]
    [left] = FoundLetters.read(str(tmp_path / "dead")).letters
    assert (left.error, left.record) == ("KeyError", '{"value": "5"}')


def test_letters_of_one_of_several_operations_of_a_step_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("""
on_error: dead_letter
dead_letters: dead
stages:
  texts: {read: {format: records, records: ["1", "x2", "3"]}}
  numbers: {from: texts, with_columns: {n: "cast(value as int)"}, select: [n], write: out}
""")
    Job.from_file(tmp_path / "job.yaml").run(backend=LocalBackend())
    assert re.search(r"numbers.with_columns +InvalidOperationError +1 ", invoked("dead", "list"))
    mended = "stages.numbers.with_columns.n=\"cast(replace(value, 'x', '') as int)\""
    assert "0 dead letters left" in invoked("dead", "replay", "job.yaml", "--set", mended)
    assert sorted(published(Path("out"))["n"].to_pylist()) == [1, 2, 3]


def parity(record: dict[str, Any]) -> dict[str, Any]:
    if STATE["broken"] and record["n"] > 7:
        raise ValueError("large")
    return {"n": record["n"], "odd": record["n"] % 2}


class Most(Reducer[int, int]):
    """Its state is its result."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        if STATE["broken"] and value == 4:
            raise ValueError("four")
        return max(state, value)

    def merge(self, left: int, right: int) -> int:
        return max(left, right)


class Mean(Most):
    def finish(self, state: int) -> float:
        return state / 2


STATE = {"broken": True}


def flow(tmp_path: Path, reducer: Any, dead: str | None = None) -> Job:
    made = Flow("replayed", on_error="dead_letter", dead_letters=dead or str(tmp_path / "dead"))
    rows = made.read(pa.table({"n": [*range(10)]}), name="rows").map(parity, name="parity")
    rows.write(tmp_path / "rows")
    rows.key_by("odd", value="n").reduce(reducer, name="most").write(tmp_path / "most")
    return made.job()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATE, "broken", True)


@pytest.mark.usefixtures("broken")
def test_rows_and_states_of_a_graph_are_merged_once_whatever_interrupts(tmp_path: Path) -> None:
    job = flow(tmp_path, Most())
    (tmp_path / "rows").symlink_to(tmp_path / "store")
    job.run(backend=LocalBackend())
    letters = FoundLetters.read(str(tmp_path / "dead"), trusted=True)
    assert sorted((letter.step, letter.error) for letter in letters.letters) == [
        ("most", "ValueError"),
        ("parity", "ValueError"),
        ("parity", "ValueError"),
    ]
    assert {row["odd"]: row["value"] for row in pq.read_table(tmp_path / "most").to_pylist()} == {0: 6, 1: 7}
    STATE["broken"] = False
    for _ in range(2):  # the second time as if the letters had not been removed after the first
        _replay.replay(job.spec, letters)
        assert sorted(pq.read_table(tmp_path / "rows")["n"].to_pylist()) == [*range(10)]
        assert {row["odd"]: row["value"] for row in pq.read_table(tmp_path / "most").to_pylist()} == {0: 8, 1: 9}
    assert FoundLetters.read(str(tmp_path / "dead")).letters == ()


@pytest.mark.usefixtures("broken")
def test_letters_in_object_storage_are_listed_and_replayed(tmp_path: Path, s3_port: int) -> None:
    place = uri_of(s3_port, f"results/{tmp_path.name}")
    job = flow(tmp_path, Most(), place)
    job.run(backend=LocalBackend())
    assert re.search(r"parity +ValueError +2 +large", invoked(place, "list"))
    letters = FoundLetters.read(place, trusted=True)
    STATE["broken"] = False
    for _ in range(2):
        _replay.replay(job.spec, letters)
        assert sorted(pq.read_table(tmp_path / "rows")["n"].to_pylist()) == [*range(10)]
    assert FoundLetters.read(place).letters == ()
    with pytest.raises(TableError, match=r"elsewhere holds no dead letters"):
        FoundLetters.read(uri_of(s3_port, "results/elsewhere"))


@pytest.mark.usefixtures("broken")
def test_what_cannot_be_replayed_is_said_and_changes_nothing(tmp_path: Path) -> None:
    job = flow(tmp_path, Mean())
    job.run(backend=LocalBackend())
    before = pq.read_table(tmp_path / "rows")
    letters = FoundLetters.read(str(tmp_path / "dead"), trusted=True)
    with pytest.raises(ConfigError, match=r"stages.most.reduce: .*Mean: its rows are no states .* run the job again"):
        _replay.replay(job.spec, letters)
    assert pq.read_table(tmp_path / "rows") == before
    [file] = (tmp_path / "dead").glob("*.parquet")
    file.chmod(0o666)
    with pytest.raises(TableError, match="is not trusted"):
        FoundLetters.read(str(tmp_path / "dead"), trusted=True)
    with pytest.raises(TableError, match="holds no dead letters"):
        FoundLetters.read(str(tmp_path))


@pytest.mark.parametrize(
    ("module", "broken", "value"),
    [("broken_pairs", BROKEN, 605), ("hopeless_pairs", "def pairs(record):\n    raise KeyError(record)", 1_100)],
)
def test_letters_that_failed_again_twice_alike_still_reach_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, broken: str, value: int
) -> None:
    """Also a result that had no rows, so that its types were not known."""
    monkeypatch.chdir(tmp_path)
    well = 'def pairs(record):\n    yield "key", 100 * int(record["value"])\n'
    job = JOB.replace("broken_pairs", module)
    for name, text in ((f"{module}.py", broken), ("well_pairs.py", well), ("job.yaml", job)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    Job.from_file(tmp_path / "job.yaml").run(backend=LocalBackend())
    for _ in range(3):
        assert "0 rows merged" in invoked("dead", "replay", "job.yaml")
    assert "0 dead letters left" in invoked("dead", "replay", "job.yaml", "--set", "mapper=well_pairs:pairs")
    assert published(Path("out")).to_pylist() == [{"key": "key", "value": value}]
