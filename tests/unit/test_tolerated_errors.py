"""Errors of user code that end no job: whatever raises, the record is left out, leaves no trace, and is one letter."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa import BatchReducer, Flow, Groups, Job, Process, Reducer, batch_filter, batch_mapper, tumbling
from dpa.aggregates import Sum
from dpa.checkpoints import CheckpointStore
from dpa.errors import ConfigError, JobFailedError
from dpa.protocol.checkpointing import StoredLetters
from dpa.protocol.graph import CheckpointTimes
from dpa.protocol.recovery import CheckpointOptions
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.instructions import NextStep, OpenSplit, ProcessBlocks, Publish
from dpa.protocol.wire.snapshots import JobSnapshot
from dpa.result import Result
from dpa.sources.splits import MemorySplit
from dpa.testing import LocalBackend
from dpa.tolerance import Failed, Letter
from experiments.simulated_jobs.generations import Fault, Faults, SimulatedGenerations
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob, behind

ROWS = 120
TABLE = pa.table({"k": [f"k{number % 5}" for number in range(ROWS)], "v": list(range(ROWS))})
BAD = {number for number in range(ROWS) if number % 7 == 0}
ALIVE = Counter[str]()
for _number in range(ROWS):
    if _number not in BAD:
        ALIVE[f"k{_number % 5}"] += _number


def require_good(value: int) -> None:
    if value % 7 == 0:
        raise ValueError(f"{value} is bad")


def first_a_pair(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """A mapper that raises after its first pair."""
    yield record["k"], record["v"]
    require_good(record["v"])


def same(record: dict[str, Any]) -> dict[str, Any]:
    require_good(record["v"])
    return record


def both(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"k": record["k"], "v": 0}
    require_good(record["v"])
    yield record


def is_good(record: dict[str, Any]) -> bool:
    require_good(record["v"])
    return True


def key(record: dict[str, Any]) -> str:
    require_good(record["v"])
    return str(record["k"])


@batch_mapper
def same_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    for value in batch["v"].to_pylist():
        require_good(value)
    return batch


@batch_filter
def good_batch(batch: pa.RecordBatch) -> list[bool]:
    for value in batch["v"].to_pylist():
        require_good(value)
    return [True] * batch.num_rows


class Total(Reducer[list[int], int]):
    """Changes the state before it raises."""

    def zero(self) -> list[int]:
        return []

    def reduce(self, state: list[int], value: int) -> list[int]:
        state.append(value)
        require_good(value)
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def finish(self, state: list[int]) -> int:
        return sum(state)


class TotalAlone(Total):
    """The same without a merge."""

    merge = Reducer.merge


class BatchTotal(BatchReducer):
    def reduce(self, groups: Groups) -> pa.RecordBatch:
        for value in groups.values.column("v").to_pylist():
            require_good(value)
        return pa.record_batch({"v": groups.sum("v")})

    def merge(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"v": groups.sum("v")})


class Running(Process[list[int], int]):
    """Emits each value, and changes the state before it raises."""

    def zero(self) -> list[int]:
        return []

    def process(self, key: str, state: list[int], value: int) -> tuple[list[int], Iterator[dict[str, Any]]]:
        state.append(value)
        return state, self._rows(key, value)

    def _rows(self, key: str, value: int) -> Iterator[dict[str, Any]]:
        yield {"key": key, "sum": value}
        require_good(value)

    def finish(self, key: str, state: list[int]) -> list[dict[str, Any]]:
        assert not BAD.intersection(state)
        return []


def run(job: Job, place: Path) -> tuple[Result, list[dict[str, Any]]]:
    result = job.run(backend=LocalBackend())
    return result, pq.read_table(place).to_pylist()


def job_of(word: str, place: Path) -> Job:
    limits = {"batch_records": 9, "split_records": 50}
    flow = Flow("flow", limits=limits, on_error="dead_letter", dead_letters=str(place))
    rows = flow.read(TABLE, name="rows", parallelism=1)
    if word in ("map", "flat_map", "filter"):
        rows = getattr(rows, word)({"map": same, "flat_map": both, "filter": is_good}[word], name="bad")
    elif word in ("batch map", "batch filter"):
        rows = rows.map(same_batch, name="bad") if word == "batch map" else rows.filter(good_batch, name="bad")
    elif word == "map of its own":
        rows = rows.map(same, name="bad", parallelism=2)
    by = rows.key_by(key if word == "key_by" else "k", value="v")
    reducers = {"reduce": Total(), "reduce alone": TotalAlone(), "batch reduce": BatchTotal(), "combine": Total()}
    options = {"consistency": "migrate"} if word in ("reduce alone", "process") else {"combiner": word == "combine"}
    if word == "process":
        options.pop("combiner", None)
        by.process(Running(), name="bad", parallelism=2, **options)
    else:
        name = "bad" if word in (*reducers, "key_by") else "total"
        by.reduce(reducers.get(word, Sum("v")), name=name, parallelism=2, **({"combiner": False} | options))
    return flow.job()


WORDS = (
    *("map", "flat_map", "filter", "batch map", "batch filter", "map of its own", "key_by"),
    *("reduce", "reduce alone", "batch reduce", "combine", "process"),
)


@pytest.mark.parametrize("word", WORDS)
def test_a_record_on_which_user_code_raises_is_a_letter_and_nothing_else(word: str, tmp_path: Path) -> None:
    result, letters = run(job_of(word, tmp_path / "dead"), tmp_path / "dead")
    found = Counter[str]()
    for row in result.table().to_pylist():
        name, value = row.values()
        found[name] += value
    assert found == ALIVE
    records = [json.loads(letter["record"]) for letter in letters]
    assert sorted(record["v"] if isinstance(record, dict) else record for record in records) == sorted(BAD)
    assert {(letter["step"], letter["error"]) for letter in letters} == {("bad", "ValueError")}
    [count] = result.report.errors
    assert (count.records, count.kept) == (len(BAD), True) and "is bad" in count.example
    counts = result.report.records
    assert counts.processed + counts.dead == counts.emitted
    if word in ("map", "flat_map", "filter", "batch map", "batch filter", "key_by"):
        places = sorted((letter["split"], letter["offset"], letter["rows"]) for letter in letters)
        assert places == sorted((number // 50, number % 50, 1) for number in BAD)
    else:
        assert counts.dead == len(BAD)


def mapper_job(place: Path, on_error: str = "dead_letter", **options: Any) -> Job:
    letters = {"dead_letters": str(place)} if on_error == "dead_letter" else {}
    limits = {"batch_records": 3, "split_records": 50}
    given = {"input": TABLE, "mapper": first_a_pair, "reducer": "sum", "on_error": on_error, "limits": limits}
    return Job(**given, **letters, **options)


def test_a_mapper_s_pairs_of_a_record_go_with_it(tmp_path: Path) -> None:
    result, letters = run(mapper_job(tmp_path / "dead"), tmp_path / "dead")
    assert dict(zip(*result.table().to_pydict().values(), strict=True)) == ALIVE
    assert sorted((letter["split"], letter["offset"]) for letter in letters) == [(n // 50, n % 50) for n in sorted(BAD)]
    assert {letter["step"] for letter in letters} == {"mapper"}


def test_what_is_skipped_is_counted_alone() -> None:
    result = mapper_job(Path(), "skip", max_errors=len(BAD)).run(backend=LocalBackend())
    assert dict(zip(*result.table().to_pydict().values(), strict=True)) == ALIVE
    [count] = result.report.errors
    assert (count.step, count.records, count.kept) == ("mapper", len(BAD), False)


@pytest.mark.parametrize("allowed", [len(BAD) - 1, "14%"])
def test_too_many_errors_fail_the_job_and_publish_nothing(allowed: int | str, tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=r"`max_errors` allows 1\d: .* in mapper: .*ValueError: \d+ is bad"):
        mapper_job(tmp_path / "dead", max_errors=allowed).run(backend=LocalBackend())
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"on_error": "dead_letter"}, "dead_letters: `on_error: dead_letter` needs a place"),
        ({"dead_letters": "dead"}, "dead_letters: no record becomes a dead letter"),
        (
            {"on_error": "dead_letter", "dead_letters": {"path": "dead", "partition_by": ["step"]}},
            r"dead_letters\.partition_by: dead letters lie in one directory: leave it out",
        ),
        ({"max_errors": 3}, "max_errors: the first error fails the job"),
        ({"on_error": "skip", "max_errors": "many"}, "max_errors: a number of records, or a share"),
        ({"on_error": "skip", "max_errors": "101%"}, "max_errors: a number of records, or a share"),
        ({"on_error": "ignore"}, "on_error"),
    ],
)
def test_what_does_not_go_together_is_said(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Job(input=TABLE, mapper=first_a_pair, reducer="sum", **sections).check()


def test_a_step_without_user_code_has_no_errors() -> None:
    flow = Flow("flow")
    flow.read(TABLE, name="rows").key_by("k").join(flow.read(TABLE, name="others").key_by("k"), on_error="skip")
    with pytest.raises(ConfigError, match="`join` has no use for `on_error`"):
        flow.job().check()


def simulated(place: Path) -> SimulatedJob:
    spec = job_of("reduce", place).spec
    splits = tuple(TABLE.slice(start, 10) for start in range(0, ROWS, 10))
    plan = spec.plan({"rows": tuple(map(MemorySplit, splits))}, {"rows": TABLE.schema})
    graph = replace(plan.graph, checkpoints=CheckpointTimes(0.01))
    return SimulatedJob(graph, plan.tasks, lambda stage: 0.002, lambda stage, index: 0.05)


@pytest.mark.parametrize(("kind", "file_bytes"), [("coordinator", 2**20), ("operator", 0)])
def test_dead_letters_lie_in_the_checkpoints_whatever_dies(
    kind: str, file_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpa.protocol.checkpointing._SMALL", file_bytes)
    job = simulated(tmp_path)
    faults = Faults((Fault(1, kind, checkpoints=2), Fault(1, kind, checkpoints=1)))
    world = SimulatedGenerations(
        lambda number, graph: replace(job, graph=graph),
        job.graph,
        3,
        faults,
        checkpoints=CheckpointOptions(path="simulated", every=0.005),
    )
    world.run()
    assert world.counts["deaths"] == 2
    assert sorted(int(letter.record) for letter in world.letters) == sorted(BAD)
    remembered = world.cluster.coordinator.errors.noted
    assert 0 < remembered.earlier == len(BAD) - len(remembered.letters)
    assert sum(count.records for count in world.cluster.coordinator.snapshot().errors) == len(BAD)


def test_dead_letters_that_lie_there_already_are_not_stored_twice(tmp_path: Path) -> None:
    letters = tuple(Letter("step", "one", "reduce", None, f"{n}", "ValueError", "", "", None) for n in range(3))
    none = StoredLetters(CheckpointStore.open(str(tmp_path)).create("job").data)
    stored = none.with_rest(Failed(letters=letters[:2])).written(1)
    again = stored.with_rest(Failed(letters=letters)).written(2)
    assert (len(stored), (*stored,)) == (2, letters[:2])
    assert (len(again), (*again,)) == (3, letters)
    assert (*again.with_rest(Failed(letters=letters[2:], earlier=2)),) == letters


def test_dead_letters_go_with_the_cut_and_those_that_come_while_one_is_written_with_the_next(tmp_path: Path) -> None:
    """Snapshots take long."""
    job = replace(simulated(tmp_path / "dead"), service_seconds=lambda stage, index: 0.01, write_seconds=0.4)
    noted: dict[int, int] = {}

    def watch(cluster: SimulatedCluster) -> None:
        for event in cluster.pending:
            if isinstance(event, JobSnapshot):
                noted.setdefault(event.epoch, len(cluster.coordinator.errors.noted.letters))

    cluster, came_meanwhile = SimulatedCluster(job, seed=1, watch=watch), 0
    cluster.run()
    for cut in cluster.checkpoints:
        again = SimulatedCluster(behind(job, cut), seed=2)
        again.run()
        letters = again.coordinator.errors.noted.letters
        assert sorted(int(letter.record) for letter in letters) == sorted(BAD)
        assert {letter.epoch for letter in cut.failed.letters} <= {*range(1, cut.epoch + 1)}
        assert sum(count.records for count in again.coordinator.snapshot().errors) == len(BAD)
        came_meanwhile += noted[cut.epoch] > len([letter for letter in cut.failed.letters if letter.epoch <= cut.epoch])
    assert came_meanwhile


def all_fail(record: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(f"{record['k']} is bad")


def test_letters_of_the_results_of_windows_come_with_the_cut_at_which_these_close(tmp_path: Path) -> None:
    flow = Flow("flow", on_error="dead_letter", dead_letters=str(tmp_path / "dead"))
    times = pa.array([number * 10**6 for number in range(ROWS)], pa.timestamp("us"))
    rows = flow.read(TABLE.append_column("at", times), name="rows", time="at", parallelism=1)
    counts = rows.window(tumbling("1s")).key_by("k").reduce("count", name="counts", parallelism=1)
    counts.map(all_fail).key_by("k").reduce("count", name="last", parallelism=1)
    spec = flow.job().spec
    plan = spec.plan({"rows": (MemorySplit(TABLE.append_column("at", times)),)}, {"rows": None})
    source, stage = (plan.user_code(Address(name, 0), lambda: 0.0) for name in ("rows", "counts"))
    source.carry_out(OpenSplit(plan.graph["rows"].input.splits[0]))
    step: Any = source.carry_out(NextStep(ROWS))
    for _, block in step.step.blocks:
        done: Any = stage.carry_out(ProcessBlocks((block,), 0))
        assert done.failed is None
    published: Any = stage.carry_out(Publish((), 1, closes=10**12, publishes=()))
    assert not published.blocks and len(published.failed.letters) == ROWS
