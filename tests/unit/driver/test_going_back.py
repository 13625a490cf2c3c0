"""A job whose checkpoints are older than what it has published: it is not resumed, and a command takes it back."""

from __future__ import annotations

import pickle
import shutil
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from first_checkpoints import write_checkpoint
from kafka_broker import make_topic
from typer.testing import CliRunner, Result

from dpa import Job, results
from dpa._checkpoints import app
from dpa.checkpoints import CheckpointStore
from dpa.driver.going_back import back_to
from dpa.errors import CheckpointError, ConfigError, JobFailedError
from dpa.protocol.checkpointing import Checkpointing
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.testing import LocalBackend

_ROWS = count()

FEED = """
import pyarrow as pa
from dpa import Feed, Page
from dpa.sources.splits import MemorySplit


class Few(Feed):
    is_open = True
    schema = pa.schema([("key", pa.string()), ("value", pa.int64())])

    def poll(self, split_rows, position=None):
        rows = pa.table({"key": ["a"] * 5, "value": [1] * 5}, self.schema)
        return Page([] if position else [MemorySplit(rows)], 1)
"""


class Publishing(LocalBackend):
    """Makes checkpoints, and publishes a row with each at every place, as a coordinator does; then fails."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self._epochs = epochs

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        def publish(epoch: int) -> None:
            for sink in plan.sinks:
                row = pa.table({"key": ["k"], "count": [next(_ROWS)], "change": ["insert"], "epoch": [epoch]})
                sink.commit([sink.stage(row, 0, epoch)], epoch, 1.0)

        self.end(write_checkpoint(plan, 1, self._epochs, publish), plan)
        raise JobFailedError("it died")

    def end(self, store: CheckpointStore, plan: RunPlan) -> None:
        """What happens before it fails."""


class BegunAgain(Publishing):
    """Begins its next generation once the newest checkpoint is removed."""

    def end(self, store: CheckpointStore, plan: RunPlan) -> None:
        assert plan.saved is not None
        chain = store.chain(plan.saved.job)
        (Path(store.place) / chain.job / "chain" / f"{chain.newest_slot().number:010d}.json").unlink()
        with pytest.raises(CheckpointError) as raised:
            Checkpointing(store, plan.saved, plan.graph, 1, pickle.dumps, plan.sinks)
        raise JobFailedError(str(raised.value))


def words(result: Result) -> str:
    return " ".join(result.output.split())


class Case:
    """A job in a directory, and its places by the names of its steps."""

    def __init__(self, directory: Path, **places: dict[str, Any]) -> None:
        self.directory, self.saved = directory, directory / "saved"
        self.places = places or {"counts": {}}
        pq.write_table(pa.table({"key": ["a"], "value": [1]}), directory / "in.parquet")
        self.read: dict[str, Any] = {"format": "parquet", "path": str(directory / "in.parquet")}

    def job(self) -> Job:
        steps = {
            name: {
                "from": "rows",
                "key_by": "key",
                "reduce": "count",
                "write": {"path": str(self.directory / name), "publish": "changes", **place},
            }
            for name, place in self.places.items()
        }
        return Job(
            name="counts",
            stages={"rows": {"read": self.read}, **steps},
            checkpoint={"path": str(self.saved), "keep": 100},
            python_path=[str(self.directory)],
        )

    def publish(self, epochs: int, *, resume: bool = True) -> None:
        """A driver that dies once so many epochs are published."""
        report = self.job().run(backend=Publishing(epochs), check=False, resume=str(self.saved) if resume else None)
        assert report.report.error == "it died"

    def values(self, name: str = "counts") -> list[int]:
        return [*results(self.directory / name).table["count"].to_pylist()]

    def numbers(self) -> list[int]:
        """Of the checkpoints, oldest first."""
        store = CheckpointStore.open(str(self.saved))
        return sorted(store.chain(*store.jobs()).checkpoints())

    def copy(self, name: str) -> None:
        shutil.copytree(self.saved, self.directory / name)

    def put_back(self, name: str) -> None:
        shutil.rmtree(self.saved)
        shutil.copytree(self.directory / name, self.saved)

    def back_to(self, number: int, *options: str) -> Result:
        return CliRunner().invoke(app, [str(self.saved), "back-to", "counts", str(number), *options])

    def refused(self) -> str:
        with pytest.raises(ConfigError) as raised:
            self.job().run(backend=Publishing(1), check=False, resume=str(self.saved))
        return str(raised.value)


@pytest.mark.parametrize("place", [{}, {"format": "delta"}], ids=["Parquet", "Delta"])
def test_what_was_published_behind_the_newest_checkpoint_is_refused_and_taken_back(
    tmp_path: Path, place: dict[str, Any]
) -> None:
    case = Case(tmp_path, counts=place)
    case.publish(2, resume=False)
    case.publish(4)
    published = case.values()
    [job] = CheckpointStore.open(str(case.saved)).jobs()
    numbers = case.numbers()
    for number in numbers[-2:]:
        (case.saved / job / "chain" / f"{number:010d}.json").unlink()

    said = case.refused()
    for part in (
        f"{tmp_path}/counts has epoch 6 of this job, and the newest is checkpoint {numbers[3]} of 2",
        ", which ends with epoch 4: rows would be lost, or there twice",
        f"`dpa checkpoints {case.saved} back-to {job} {numbers[3]}` takes back",
    ):
        assert part in said
    assert case.values() == published

    done = case.back_to(numbers[3])
    assert done.exit_code == 0, done.output
    assert "what was published after epoch 4 is taken back" in words(done)
    assert sorted(case.values()) == sorted(published)[:4]
    assert "nothing was published after epoch 4" in words(case.back_to(numbers[3]))
    case.publish(3)
    assert len(case.values()) == 7


def test_a_generation_does_not_begin_behind_an_older_checkpoint_either(tmp_path: Path) -> None:
    report = Case(tmp_path).job().run(backend=BegunAgain(3), check=False).report
    assert report.error is not None
    assert "counts has epoch 3 of this job, and the newest is checkpoint 3 of " in report.error


def test_a_job_goes_back_further_and_what_it_left_is_not_gone_on_with(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.publish(6, resume=False)
    numbers = case.numbers()
    assert case.back_to(numbers[1]).exit_code == 0
    assert len(case.values()) == 2 and case.numbers() == numbers[:2]
    listed = CliRunner().invoke(app, [str(case.saved), "list"]).output.splitlines()
    assert [line.split()[0] for line in listed if line.split()[0].isdigit()] == [str(number) for number in numbers[:2]]
    gone = case.back_to(numbers[4])
    assert gone.exit_code == 1
    assert f"has no checkpoint {numbers[4]} to go back to; there are" in words(gone)
    case.publish(1)
    assert len(case.values()) == 3 and case.numbers()[:2] == numbers[:2]
    assert CliRunner().invoke(app, [str(case.saved), "prune", "--keep", "1"]).exit_code == 0
    assert CliRunner().invoke(app, [str(case.saved), "verify"]).exit_code == 0


def test_an_older_copy_of_the_checkpoints_is_one_line_and_what_came_since_is_another(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.publish(2, resume=False)
    case.copy("older")
    case.publish(2)
    case.copy("newer")

    case.put_back("older")
    assert "has epoch 4 of this job" in case.refused()
    older = case.numbers()
    assert case.back_to(older[-1]).exit_code == 0
    case.publish(1)
    other = case.values()
    assert len(other) == 3

    case.put_back("newer")  # epoch 3 is there, but another one
    said = case.refused()
    assert "has epoch 3 of this job; from epoch 3 on its epochs do not belong to checkpoint" in said
    numbers = case.numbers()
    assert "go back to one before epoch 3" in words(case.back_to(numbers[-1]))
    assert case.values() == other
    assert case.back_to(numbers[1]).exit_code == 0
    case.publish(2)
    assert len(case.values()) == 4 and case.values()[:2] == other[:2]


def test_a_command_that_was_killed_is_given_again(tmp_path: Path) -> None:
    case = Case(tmp_path, one={}, other={"format": "delta"})
    case.publish(5, resume=False)
    number = case.numbers()[1]
    store = CheckpointStore.open(str(case.saved))
    going = back_to(store.chain(*store.jobs()), number)
    next(going)
    going.close()
    assert (len(case.values("one")), len(case.values("other"))) == (2, 5)
    assert f"{tmp_path}/other has epoch 5 of this job" in case.refused()
    assert case.back_to(number).exit_code == 0
    assert (len(case.values("one")), len(case.values("other"))) == (2, 2)
    case.publish(1)


def test_a_path_starts_where_the_job_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path, counts={"path": "counts"})
    monkeypatch.chdir(tmp_path)
    case.publish(3, resume=False)
    monkeypatch.chdir("/")
    assert "is taken back" in words(case.back_to(case.numbers()[0]))
    assert len(case.values()) == 1


def test_who_runs_the_job_is_stopped_by_it(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.publish(3, resume=False)
    store = CheckpointStore.open(str(case.saved))
    [job] = store.jobs()
    alive = store.chain(job)
    alive.claim()
    assert case.back_to(case.numbers()[0]).exit_code == 0
    with pytest.raises(CheckpointError, match="another coordinator has taken"):
        alive.commit(epoch=9, coordinator=alive.data.write(alive.next, "x", b""), tasks=[], records=0, seconds=0.0)


def test_nothing_changes_where_one_place_cannot_go_back(tmp_path: Path, kafka: str) -> None:
    topic = f"t{uuid4().hex}"
    make_topic(kafka, topic)
    broker = {"path": topic, "format": "kafka", "mode": "append", "args": {"bootstrap.servers": kafka}}
    case = Case(tmp_path, counts={}, records=broker)
    case.publish(3, resume=False)
    numbers, published = case.numbers(), case.values()
    done = case.back_to(numbers[0])
    assert done.exit_code == 1
    assert "cannot be taken back" in words(done)
    assert (case.numbers(), case.values()) == (numbers, published)
    assert case.back_to(numbers[-1]).exit_code == 0
    case.publish(1)


def test_passwords_are_those_of_the_job_file(tmp_path: Path) -> None:
    case = Case(tmp_path, counts={"format": "delta", "args": {"aws_secret_access_key": "hidden-from-all"}})
    case.publish(3, resume=False)
    assert not any(b"hidden-from-all" in file.read_bytes() for file in case.saved.rglob("*") if file.is_file())
    done = case.back_to(case.numbers()[0])
    assert done.exit_code == 1
    assert "no passwords of stages.counts.write: name the job file by --config" in words(done)
    (tmp_path / "job.yaml").write_text(
        f"stages:\n  rows: {{read: {{format: parquet, path: in.parquet}}}}\n"
        f"  counts: {{from: rows, key_by: key, reduce: count, write: {{path: {tmp_path}/counts, format: delta,"
        " publish: changes, args: {aws_secret_access_key: hidden-from-all}}}\n"
    )
    done = case.back_to(case.numbers()[0], "--config", str(tmp_path / "job.yaml"))
    assert done.exit_code == 0, done.output
    assert len(case.values()) == 1


def end_and_put_back(case: Case) -> None:
    """Run a job with an open input to its end, and put checkpoints back that it had before."""
    (case.directory / "few.py").write_text(FEED)
    case.read = {"format": "feed", "use": "few:Few"}
    case.publish(1, resume=False)
    case.copy("older")
    case.job().run(backend=LocalBackend(), resume=str(case.saved))
    case.saved.mkdir(exist_ok=True)
    case.put_back("older")


def test_checkpoints_of_a_job_that_has_ended_are_no_way_to_lose_what_its_input_has_now(tmp_path: Path) -> None:
    case = Case(tmp_path)
    end_and_put_back(case)
    said = case.refused()
    assert f"{tmp_path}/counts has all that this job has published: it had ended" in said
    assert f"{case.numbers()[0]}` takes back what was published since" in said
    assert case.back_to(case.numbers()[0]).exit_code == 0
    case.publish(1)


def test_a_whole_result_that_is_there_is_not_made_again_of_an_input_that_has_gone_on(tmp_path: Path) -> None:
    case = Case(tmp_path, counts={"publish": None})
    end_and_put_back(case)
    assert "what it reads now would be lost; begin a new job, which writes elsewhere" in case.refused()
    case.places = {"counts": {"publish": None, "path": str(tmp_path / "elsewhere")}}
    case.job().run(backend=LocalBackend(), resume=str(case.saved))
    assert len(pq.read_table(tmp_path / "elsewhere")) == 0, "the checkpoint has no states, and nothing has come since"
