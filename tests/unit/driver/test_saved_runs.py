"""A job that is resumed, as its driver sees it: what it finds, what it refuses, and what it leaves."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from first_checkpoints import write_checkpoint
from typer.testing import CliRunner
from word_counts import Warned, counting

from dpa import Job
from dpa.checkpoints import CheckpointStore
from dpa.driver._saved_run import _with_new_keys
from dpa.errors import ConfigError, JobFailedError
from dpa.protocol.checkpointing import Checkpointing
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.recovery import Death
from dpa.protocol.wire.addresses import Address
from dpa.run import app
from dpa.testing import LocalBackend

WORDS = [f"word {number % 7}" for number in range(1_000)]


class Dying(LocalBackend):
    """Adds a checkpoint behind 600 rows of the input, as a coordinator does, if it is to; then fails."""

    def __init__(self, checkpoints: int = 1, *, lives: int = 0, others: int = 0) -> None:
        """`lives`: how often it begins again before it fails; `others`: how many drivers take the job over then."""
        super().__init__()
        self._checkpoints, self._lives, self._others = checkpoints, lives, others

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        assert plan.saved is not None
        if self._checkpoints:
            store = write_checkpoint(plan, 600)
            for generation in range(1, self._lives + self._others + 1):
                if generation <= self._lives:
                    hooks.restart(Death(Address("reducer", 0), "killed", generation=generation - 1))
                Checkpointing(store, plan.saved, plan.graph, plan.saved.generation + generation, pickle.dumps)
        raise JobFailedError("it died")


def job(tmp_path: Path, **sections: Any) -> Job:
    rows = pa.table({"word": WORDS, "value": [1] * len(WORDS)})
    return counting(rows, tmp_path, **{"checkpoint": {"path": str(tmp_path / "saved")}, **sections})


def died(tmp_path: Path, checkpoints: int = 1, **sections: Any) -> str | None:
    """Where the checkpoints are of a job that has failed."""
    dying = job(tmp_path, **sections)
    assert dying.run(backend=Dying(checkpoints), check=False).report.status == "failed"
    return dying.resumable


def test_a_resumed_job_says_so_and_removes_its_checkpoints_in_the_end(tmp_path: Path) -> None:
    place = died(tmp_path)
    assert place is not None and re.fullmatch(rf"{tmp_path}/saved/counts-[0-9a-f]{{32}}", place)
    again, told = job(tmp_path), Warned()
    result = again.run(told, backend=LocalBackend(), resume=str(tmp_path / "saved"))
    assert dict(zip(*result.table().to_pydict().values(), strict=True)) == Counter(WORDS)
    [recovery] = result.report.recoveries
    assert (recovery.task, recovery.rows, recovery.generation) == ("driver", None, 0)
    assert recovery.cause == told.warnings[0]
    assert told.warnings[0].startswith("resumed after 600 rows of the input, with the checkpoints of counts-")
    made = result.report.checkpoints
    assert made is not None and (made.read, made.read_before, made.written) == (600, 600, 0)
    assert again.resumable is None and not [*(tmp_path / "saved").iterdir()]


@pytest.mark.parametrize("lives", [0, 2])
def test_who_is_fenced_by_another_driver_is_not_to_resume(tmp_path: Path, lives: int) -> None:
    begun = job(tmp_path)
    assert begun.run(backend=Dying(lives=lives), check=False).report.status == "failed"
    assert begun.resumable is not None, "nobody else goes on with it"
    fenced = job(tmp_path)
    assert fenced.run(backend=Dying(lives=lives, others=1), check=False).report.status == "failed"
    assert fenced.resumable is None


def test_it_may_have_other_tasks_another_grouping_and_another_balance_and_fail_again(tmp_path: Path) -> None:
    first = died(tmp_path)
    other = {
        "parallelism": {"mappers": 1, "reducers": 7},
        "grouping": {"kind": "key"},
        "limits": {"split_records": 10},
        "output": {"path": str(tmp_path / "out")},
        "recovery": {"attempts": 9},
    }
    again = job(tmp_path, **other)
    assert again.run(backend=Dying(), check=False, resume=first).report.status == "failed"
    assert again.resumable == first
    job(tmp_path, balance={"strategy": "none"}).run(backend=LocalBackend(), resume=first)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"reducer": "sum"}, r'reducer.use: is "sum", and was "count" when the checkpoint was'),
        ({"consistency": "migrate"}, 'consistency: is "migrate", and was "merge" when the checkpoint was made'),
        ({"key": "value"}, 'key: is "value", and was "word"'),
        ({"balance": {"hash_seed": 7}}, "balance.hash_seed: is 7, and was 0"),
        ({"seed": 7}, "seed: is 7, and was 0"),
        ({"on_error": "skip"}, 'on_error: is "skip", and was "fail"'),
        (
            {"input": {"format": "generated", "use": "builtins:dict", "rows": 9}},
            'input.format: is "generated", and was "parquet"',
        ),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_what_states_and_rows_depend_on_must_stay(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    place = died(tmp_path)
    with pytest.raises(ConfigError, match=message):
        job(tmp_path, **sections).run(backend=LocalBackend(), resume=place)
    assert place is not None and Path(place).is_dir(), "another try can go on with it"


def test_keys_that_an_older_version_did_not_have_have_their_defaults() -> None:
    now = {"read": {"path": "in", "new": False, "given": 2}, "newer": None}
    then = {"read": {"path": "in", "old": 1}}
    found = _with_new_keys(then, now, {"read": {"path": "in", "given": 2}})
    assert found == {"read": {"path": "in", "new": False, "old": 1}, "newer": None}


def test_steps_keep_their_names_and_stay_results_or_not(tmp_path: Path) -> None:
    def graph(name: str, **more: Any) -> Job:
        rows = {"read": {"format": "records", "records": [{"word": word} for word in WORDS]}}
        counts = {"from": "rows", "key_by": "word", "reduce": "count", **more}
        stages = {"rows": rows, name: counts, "copies": {"from": name, "map": "copy:copy"}}
        return Job(name="named", stages=stages, checkpoint={"path": str(tmp_path / "saved")})

    graph("counts").run(backend=Dying(), check=False)
    for changed, message in (
        (graph("sums"), "stages: the job has the steps rows, sums, copies, and the checkpoint rows, counts, copies"),
        (graph("counts", write=str(tmp_path / "out")), 'counts.write: is "a result", and was "no result" when'),
    ):
        with pytest.raises(ConfigError, match=message):
            changed.run(backend=LocalBackend(), resume=str(tmp_path / "saved"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"word": WORDS[:-1], "value": [1] * 999}, "input: has 999 rows in 1 file .*, and had 1,000 rows in 1 file"),
        ({"word": WORDS, "value": [1.0] * 1_000}, "value: double now, and had .*value: int64"),
        ({"word": [word * 9 for word in WORDS], "value": [1] * 1_000}, "has files of other names or sizes now"),
    ],
    ids=["rows", "columns", "bytes"],
)
def test_an_input_that_has_changed_is_refused(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    place = died(tmp_path)
    pq.write_table(pa.table(table), tmp_path / "in.parquet")
    with pytest.raises(ConfigError, match=message):
        job(tmp_path).run(backend=LocalBackend(), resume=place)


@pytest.mark.parametrize("name", ["in.arrow", "in.csv", "in.jsonl", "in"])
def test_files_of_any_format_are_those_that_a_job_had(tmp_path: Path, name: str) -> None:
    def write(repeated: int) -> None:
        rows = pl.DataFrame({"word": [word * repeated for word in WORDS], "value": [1] * len(WORDS)})
        if name == "in":  # files of two types, which are read as the wider one
            (tmp_path / name).mkdir(exist_ok=True)
            rows[:500].write_parquet(tmp_path / name / "1.parquet")
            rows[500:].cast({"value": pl.Int32}).write_parquet(tmp_path / name / "2.parquet")
        else:
            writes = {"arrow": rows.write_ipc, "csv": rows.write_csv, "jsonl": rows.write_ndjson}
            writes[name.rpartition(".")[2]](tmp_path / name)

    write(1)
    read = {"path": str(tmp_path / name), "in_place": True, **({"format": "parquet"} if name == "in" else {})}
    place = died(tmp_path, input=read)
    write(3)
    with pytest.raises(ConfigError, match="has files of other names or sizes now"):
        job(tmp_path, input=read).run(backend=LocalBackend(), resume=place)


def test_a_resume_never_begins_at_the_start(tmp_path: Path) -> None:
    saved = str(tmp_path / "saved")
    with pytest.raises(ConfigError, match=f"--resume: {saved} has no checkpoint with which counts can go on; jobs"):
        job(tmp_path).run(backend=LocalBackend(), resume=saved)
    assert died(tmp_path, checkpoints=0) is None
    assert not [*(tmp_path / "saved").iterdir()], "nothing can go on with that"
    killed = CheckpointStore.open(saved).create("counts").job
    with pytest.raises(ConfigError, match=f"--resume: {saved}/{killed} has no checkpoint yet"):
        job(tmp_path).run(backend=LocalBackend(), resume=saved)
    with pytest.raises(ConfigError, match="checkpoint: a job that is resumed makes checkpoints too"):
        job(tmp_path, checkpoint=None).run(backend=LocalBackend(), resume=saved)


def test_of_several_jobs_the_one_that_fits_goes_on_or_one_is_named(tmp_path: Path) -> None:
    first, _ = died(tmp_path), died(tmp_path, name="others")
    _, third = died(tmp_path, reducer="sum", value="value"), died(tmp_path)
    assert first is not None and third is not None
    with pytest.raises(ConfigError, match=r"checkpoints of several jobs that fit: name one of counts-.*, counts-.*"):
        job(tmp_path).run(backend=LocalBackend(), resume=str(tmp_path / "saved"))
    job(tmp_path).run(backend=LocalBackend(), resume=third + "/")
    assert not Path(third).exists()
    job(tmp_path).run(backend=LocalBackend(), resume=str(tmp_path / "saved"))
    assert not Path(first).exists() and len([*(tmp_path / "saved").iterdir()]) == 2


def test_a_checkpoint_of_another_python_or_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpa.protocol.checkpoint_format.PYTHON", "2.7")
    place = died(tmp_path)
    monkeypatch.undo()
    with pytest.raises(
        ConfigError, match=r"was written by dpa .* on Python 2\.7; states in it are pickles, and this is"
    ):
        job(tmp_path).run(backend=LocalBackend(), resume=place)
    monkeypatch.setattr("dpa.protocol.checkpoint_format.READ", {3})
    later = r"was written by dpa .* on Python .*, in format 2 of checkpoints, and this dpa \(.*\) reads 3: use the"
    monkeypatch.setattr("dpa.protocol.checkpoint_format.PYTHON", "2.7")
    with pytest.raises(ConfigError, match=later):
        job(tmp_path).run(backend=LocalBackend(), resume=place)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--detach needs a cluster, which the job runs on when this command has ended: give --address HOST:PORT"),
        (("--address", "ray://head:10001"), "--detach needs a cluster"),
        (("--address", "head:6379"), "output: the result of a detached job would be lost: name a `path`"),
    ],
    ids=["no cluster", "Ray's client", "no place for the result"],
)
def test_a_job_is_detached_only_where_something_comes_of_it(tmp_path: Path, words: Sequence[str], message: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("{input: {format: records, records: [{key: 1}]}, reducer: count}")
    done = CliRunner().invoke(app, [str(file), "--detach", *words])
    assert done.exit_code == 2 and message in done.stderr
