"""A whole run without Ray: its phases, what a run that fails reports, and a result that is published whole or not."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import Total, pairs

from dpa import Flow, Job, Result, results
from dpa.aggregates import Count
from dpa.config import parse
from dpa.driver.backend import Backend
from dpa.errors import ConfigError, JobFailedError, TableError
from dpa.protocol.graph import MAPPER, REDUCER
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.protocol.recovery import Death
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import CheckpointStats, Snapshot, StageSnapshot, TaskStats
from dpa.protocol.wire.nodes import JobDemand, Placer
from dpa.sinks._replacement import MARK
from dpa.sinks.directory import ResultDirectory
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import Sink, Target
from dpa.telemetry.observers import Observer, Observers
from dpa.testing import LocalBackend
from experiments.simulation.backend import SimulatedBackend
from tests.unit.output_samples import publishing

WORDS = ["the"] * 300 + [f"word {number % 40}" for number in range(400)]
TABLE = pa.table({"word": WORDS})
COUNTS = Counter(WORDS)

backends = pytest.mark.parametrize("backend", [LocalBackend(), SimulatedBackend()], ids=["local", "simulated"])


class Observed(Observer):
    def __init__(self) -> None:
        self.phases: list[str] = []
        self.snapshots: list[Snapshot] = []
        self.warnings: list[str] = []

    def phase(self, name: str, detail: str = "") -> None:
        self.phases.append(name)

    def update(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


class Around(LocalBackend):
    """A backend around which something happens; keeps its plan."""

    plan: RunPlan

    def __init__(self, *, before: Callable[..., Any] | None = None, after: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self._before = before
        self._after = after

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        self.plan = plan
        if self._before:
            self._before(plan, hooks)
        outcome = super().run(plan, hooks)
        if self._after:
            self._after()
        return outcome


class Locked(Count):
    """A reducer that no other process can have."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()


class Preparing(LocalBackend):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @contextmanager
    def prepared(
        self, tasks: int, placer: Placer | None = None, demand: JobDemand | None = None
    ) -> Iterator[LocalBackend]:
        self.seen.append(f"prepared for {tasks}")
        yield self
        self.seen.append("ended")

    def run(self, plan: RunPlan, *arguments: Any) -> RunOutcome:
        self.seen.append(f"run {len(plan.graph.addresses)}")
        return super().run(plan, *arguments)


def flow(directory: Path | None = None) -> Flow:
    """Counts, and from them the three most frequent words and how many words have each count."""
    made = Flow("words", limits={"split_records": 50, "batch_records": 9, "in_flight_records": 40})
    counts = made.read(TABLE, name="words").key_by("word").reduce("count", name="counts")
    top = counts.top_k(3, by="count", name="top")
    often = counts.map(lambda row: {"times": row["count"]}).key_by("times").reduce("count", name="often")
    if directory is not None:
        counts.write(str(directory / "counts"))
        top.write(str(directory / "top"))
        often.write(str(directory / "often"), mode="overwrite")
    return made


def fail(*arguments: Any) -> Any:
    raise LookupError("no luck")


def job(**sections: Any) -> Job:
    small = {"parallelism": {"mappers": 2, "reducers": 3}, "limits": {"batch_records": 40, "split_records": 100}}
    return Job(**{"input": TABLE, "key": "word", "reducer": "count", **small, **sections})


def counts(result: Result) -> dict[str, int]:
    return {row["word"]: row["count"] for row in result.table().to_pylist()}


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_backend_prepares_as_many_tasks_as_the_plan_has_and_none_for_an_input_that_is_wrong() -> None:
    backend = Preparing()
    job().run(backend=backend)
    assert backend.seen == ["prepared for 5", "run 5", "ended"]
    backend = Preparing()
    with pytest.raises(ConfigError, match="column"):
        job(key="wrod").run(backend=backend)
    assert backend.seen == []


@backends
@pytest.mark.parametrize("grouping", ["ring", "key", "partial_key"])
@pytest.mark.parametrize("combiner", [False, True])
def test_every_backend_gives_the_result_whatever_the_grouping(backend: Backend, grouping: str, combiner: bool) -> None:
    result = job(grouping=grouping, combiner=combiner).run(backend=backend)
    assert counts(result) == COUNTS
    records = result.report.records
    assert (result.report.status, records.read, records.mapped) == ("ok", len(WORDS), len(WORDS))
    assert records.emitted == records.processed == sum(reducer.processed for reducer in result.report.main.tasks)
    assert result.report.main.output.rows == sum(reducer.keys for reducer in result.report.main.tasks) == len(COUNTS)
    assert result.report.main.hot_keys[0].key == "the"


@backends
def test_the_phases_come_in_order_and_the_stream_has_its_last_numbers_before_it_ends(backend: Backend) -> None:
    observed = Observed()
    report = job().run(observed, backend=backend).report
    assert observed.phases == ["load", "startup", "stream", "merge"]
    assert observed.snapshots[-1].phase == "done"
    assert report.seconds.stream > 0
    assert min(vars(report.seconds)[name] or 0 for name in vars(report.seconds)) >= 0


def test_an_observer_that_raises_neither_ends_the_job_nor_keeps_others_from_looking() -> None:
    class Broken(Observer):
        def update(self, snapshot: Snapshot) -> None:
            fail()

    observed = Observed()
    result = job().run(Observers(Broken(), observed), backend=LocalBackend())
    assert counts(result) == COUNTS
    assert observed.snapshots[-1].phase == "done"
    assert observed.warnings == ["Broken observes no more: LookupError('no luck')"]
    assert counts(job().run(Broken(), backend=LocalBackend())) == COUNTS


@backends
def test_an_empty_input_gives_an_empty_result_with_its_columns(backend: Backend, tmp_path: Path) -> None:
    for output, files in (({}, ()), ({"path": str(tmp_path / "out")}, ("part-00000.parquet",))):
        result = job(input=TABLE.slice(0, 0), output=output).run(backend=backend)
        assert result.table().schema == pa.schema([("word", pa.string()), ("count", pa.int64())])
        assert (result.report.status, result.report.main.output.rows) == ("ok", 0)
        assert result.report.main.output.files == files


@backends
def test_a_job_whose_reducer_raises_reports_that_and_publishes_nothing(backend: Backend, tmp_path: Path) -> None:
    broken = type("Broken", (Total,), {"reduce": fail})
    table = pa.table({"key": ["a"], "value": [1]})
    path = str(tmp_path / "out")
    given = job(input=table, mapper=pairs, key="key", reducer=broken(), output={"path": path})
    observed = Observed()
    result = given.run(observed, backend=backend, check=False)
    assert result.report.status == "failed"
    assert "Broken.reduce failed on key 'a'" in (result.report.error or "")
    assert (result.report.main.output.path, result.report.main.output.unpublished) == (None, path)
    assert "merge" not in observed.phases
    assert entries(tmp_path) == []
    with pytest.raises(JobFailedError, match="no luck"):
        given.run(backend=backend)


def test_a_failed_run_reports_what_was_known_by_then() -> None:
    mappers = (TaskStats(MAPPER, 0, read=200, mapped=200, emitted=(180,)),)
    reducers = tuple(TaskStats(REDUCER, index, processed=50) for index in range(3))
    stages = (StageSnapshot(MAPPER, "streaming", mappers), StageSnapshot(REDUCER, "streaming", reducers))
    known = Snapshot("stream", 2.0, 700, stages, ((MAPPER, REDUCER),))

    def break_off(plan: RunPlan, hooks: RunHooks) -> None:
        hooks.observe(known)
        raise JobFailedError("reducer 1 died")

    observed = Observed()
    report = job().run(observed, backend=Around(before=break_off), check=False).report
    assert (report.status, report.error) == ("failed", "reducer 1 died")
    assert (report.records.read, report.records.processed, report.is_stale) == (200, 150, True)
    assert observed.phases == ["load", "startup", "stream"]
    assert report.main.output.rows == 0


class Staging(Sink):
    asked: ClassVar[list[str]] = []

    def begin(self) -> None:
        self.asked.append("begin")

    def stage(self, rows: pa.Table, task: int, epoch: int) -> pa.Table:
        self.asked.append("stage")
        return rows

    def commit(self, staged: Sequence[pa.Table], epoch: int, seconds: float, *, is_last: bool = False) -> None:
        self.asked.append(f"commit {len(staged)}")

    def abort(self) -> None:
        self.asked.append("abort")


def test_after_a_death_all_sinks_begin_anew_and_the_report_says_what_was_lost(tmp_path: Path) -> None:
    place = tmp_path / "out"
    stages = (StageSnapshot("read", "streaming", (TaskStats("read", 0, read=200),)),)
    before: list[Any] = []

    def dying(plan: RunPlan, hooks: RunHooks) -> None:
        hooks.observe(Snapshot("stream", 2.0, 700, stages))
        sinks = [sink for to in plan.deliveries.values() for sink in to.sinks if sink and sink.publishes is None]
        for sink in sinks:
            sink.stage(pa.table({"word": ["left over"]}), 7, 0)
        [rounds] = plan.sinks
        rounds.commit([rounds.stage(pa.table({"word": ["left over"]}), 0, 7)], 7, 1.0)
        before[:] = [sink._files.place for sink in sinks if isinstance(sink, ResultDirectory)]
        hooks.restart(Death(Address("counts", 1), "it was killed", "two", at=time.time()))
        assert results(tmp_path / "rounds").epoch == 7, "until the next one is complete"

    Staging.asked.clear()
    made = Flow("words")
    rows = made.read(TABLE)
    counted = rows.key_by("word").reduce(Count(), name="counts").write(str(place))
    counted.write(tmp_path / "rounds", publish="table")
    rows.key_by("word").reduce(Count(), name="others", write={"use": f"{__name__}:Staging"})
    observed = Observed()
    result = made.run(observed, backend=Around(before=dying))
    assert dict(zip(*pq.read_table(place).to_pydict().values(), strict=True)) == COUNTS
    assert entries(tmp_path) == ["out", "rounds"]
    assert not Path(before[0]).exists()
    assert results(tmp_path / "rounds").is_last
    assert Staging.asked[:4] == ["begin", "stage", "abort", "begin"]
    assert re.fullmatch(r"commit [1-4]", Staging.asked[-2]) and Staging.asked[-1] == "abort"
    [recovery] = result.report.recoveries
    assert (recovery.task, recovery.node, recovery.cause) == ("counts 1", "two", "it was killed")
    assert (recovery.generation, recovery.rows) == (0, 200)
    assert recovery.seconds is not None and recovery.seconds >= 0
    assert observed.phases[:4] == ["load", "startup", "stream", "startup"]
    said, flows = observed.warnings
    assert said.startswith("counts 1 on two died: it was killed; generation 1 begins at the start of the input and ")
    assert said.endswith("reads 200 rows again, as last reported; all numbers begin again")
    assert flows.startswith("records flow again, ")


def test_checkpoints_count_once_though_the_next_generation_dies_before_it_says_anything(tmp_path: Path) -> None:
    def die_twice(plan: RunPlan, hooks: RunHooks) -> None:
        made = CheckpointStats(written=2, size=100, read=50)
        hooks.observe(Snapshot("stream", 2.0, 700, (), checkpoints=made))
        for generation in range(2):
            hooks.restart(Death(Address("counts", 1), "it was killed", "two", generation, at=time.time()))

    given = {"path": str(tmp_path / "saved")}
    report = job(checkpoint=given).run(backend=Around(before=die_twice)).report
    assert len(report.recoveries) == 2
    assert report.checkpoints is not None and (report.checkpoints.written, report.checkpoints.size) == (2, 100)


def test_tasks_have_states_no_sooner_than_their_generation_has_begun_though_its_first_snapshot_is_late() -> None:
    def come_late(plan: RunPlan, hooks: RunHooks) -> None:
        hooks.restart(Death(Address("counts", 1), "it was killed", "two", at=time.time()))
        for at in (0.0, 60.0):
            hooks.observe(Snapshot("stream", at, 0, (), generation=1))

    [found] = job().run(backend=Around(before=come_late)).report.recoveries
    assert found.begun is not None and found.restored is not None and 0 <= found.begun <= found.restored


def test_the_result_of_an_earlier_job_stays_if_this_one_fails(tmp_path: Path) -> None:
    output = {"path": str(tmp_path / "out"), "mode": "overwrite"}
    first = job(output=output).run(backend=LocalBackend())

    def break_off(*arguments: Any) -> None:
        raise JobFailedError("too late")

    failed = job(input=TABLE.slice(0, 10), output=output).run(backend=Around(before=break_off), check=False)
    assert failed.report.status == "failed"
    assert counts(first) == COUNTS
    assert entries(tmp_path) == ["out"]


def test_a_result_that_cannot_be_published_leaves_those_after_it_unpublished(tmp_path: Path) -> None:
    def come() -> None:
        (tmp_path / "top").mkdir(exist_ok=True)
        (tmp_path / "top" / "precious").touch()

    result = flow(tmp_path).run(backend=Around(after=come), check=False)
    assert result.report.status == "failed"
    assert "stages.top.write.path: " in (result.report.error or "") and "holds precious" in result.report.error
    outputs = {stage.name: stage.output for stage in result.report.stages if stage.output}
    published = {name for name, output in outputs.items() if output.path is not None}
    assert published == {path.name for path in tmp_path.iterdir() if (path / MARK).exists()}
    assert "top" not in published
    assert outputs["top"].rows == 3, "the result was known"
    assert [path.name for path in (tmp_path / "top").iterdir()] == ["precious"]


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job(output={"path": str(tmp_path / "out")}).run(backend=Around(before=interrupt))
    assert entries(tmp_path) == []


@backends
def test_the_rows_that_no_step_takes_are_results_and_stay_in_memory(backend: Backend) -> None:
    result = flow().run(backend=backend)
    assert [row["count"] for row in result.table("top").to_pylist()] == [n for _, n in COUNTS.most_common(3)]
    assert sum(result.table("often")["count"].to_pylist()) == len(COUNTS)
    with pytest.raises(TableError, match="no result of a stage 'counts', but of"):
        result.table("counts")


@backends
def test_every_result_that_is_written_is_published_whole(backend: Backend, tmp_path: Path) -> None:
    result = flow(tmp_path).run(backend=backend)
    assert entries(tmp_path) == ["counts", "often", "top"]
    outputs = {stage.name: stage.output for stage in result.report.stages if stage.output}
    assert {name: output.path for name, output in outputs.items()} == {
        name: str(tmp_path / name) for name in ("counts", "often", "top")
    }
    for name, output in outputs.items():
        assert entries(tmp_path / name) == [MARK, *output.files]
        files = [tmp_path / name / file for file in output.files]
        assert sum(pq.read_metadata(file).num_rows for file in files) == result.table(name).num_rows
    assert {row["word"]: row["count"] for row in result.table("counts").to_pylist()} == COUNTS


def test_a_step_that_is_no_result_publishes_its_rounds(tmp_path: Path) -> None:
    made = Flow("words")
    rounds = {"path": str(tmp_path / "rounds"), "publish": "table"}
    counts = made.read(TABLE, name="words").key_by("word").reduce("count", name="counts", write=rounds)
    counts.top_k(3, by="count", name="top")
    backend = Around()
    made.run(backend=backend)
    published = {name: sink.place for name, to in backend.plan.deliveries.items() for sink in to.by_epoch if sink}
    assert published == {"counts": str(tmp_path / "rounds")}


def test_what_cannot_be_run_is_refused_before_anything_starts() -> None:
    observed = Observed()
    with pytest.raises(ConfigError, match=r"reducer: .*Locked cannot be sent to the actors"):
        job(reducer=Locked()).run(observed, backend=LocalBackend())
    assert observed.phases == []
    with pytest.raises(ConfigError, match="input: a job needs an input"):
        Job(file=parse({"key": "word", "reducer": "count"})).run(backend=LocalBackend())
    made = Flow("words")
    counts = made.read(TABLE, name="words").key_by("word").reduce("count", name="counts")
    counts.key_by("count").reduce("count", name="often")
    with pytest.raises(ConfigError, match=r"stages.often.key_by: .* gives a column 'count', which is the key"):
        made.run(backend=LocalBackend())


def test_objects_stand_for_what_a_checked_file_leaves_out_and_are_named_in_its_place() -> None:
    table = pa.table({"word": ["a", "b", "a"]})
    made = Job(file=parse({"key": "word"}), input=table, objects={"reducer": Count()})
    assert made.config.reducer.use == "count"
    assert dict(zip(*made.run(backend=LocalBackend()).table().to_pydict().values(), strict=True)) == {"a": 2, "b": 1}


@backends
def test_partial_results_of_an_older_run_are_replaced_and_the_user_hears_where_none_follow(
    backend: Backend, tmp_path: Path
) -> None:
    older = publishing(ResultFiles(Target(str(tmp_path))), "table")
    older.begin()
    older.commit([older.stage(pa.table({"word": ["a"]}), 0, 1)], 1, 0.5)
    older.abort()
    observed = Observed()
    so_far = {"path": str(tmp_path), "mode": "overwrite", "publish": "table"}
    assert counts(job(output=[{}, so_far]).run(observed, backend=backend)) == COUNTS
    none_follow = any("partial results are not published" in warning for warning in observed.warnings)
    assert none_follow == isinstance(backend, SimulatedBackend)
    found = results(tmp_path)
    assert found.is_last and dict(zip(*found.table.to_pydict().values(), strict=True)) == COUNTS


def test_a_simulation_redistributes_as_a_real_run_does_and_reports_and_logs_it(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    slow = SimulatedBackend(service_seconds=lambda stage, reducer: 0.02 if reducer == 0 else 0.001)
    limits = {"batch_records": 10, "split_records": 100, "quantum_records": 5}
    balance = {"min_delay": 0.05, "check_seconds": 0.1}
    with caplog.at_level(logging.INFO, logger="dpa"):
        made = job(name="words", limits=limits, balance=balance, output={"path": str(tmp_path / "out")})
        report = made.run(backend=slow).report
    assert report.records.forwarded >= 0
    slow_task = report.main.tasks[0]
    assert slow_task.busy_seconds == pytest.approx(0.02 * slow_task.processed, rel=0.1), "virtual seconds"
    assert report.seconds.stream >= slow_task.busy_seconds > 0
    lines = [record.getMessage() for record in caplog.records if record.name == "dpa.driver.run"]
    assert [line for line in lines if line.startswith("words: phase")] == [
        f"words: phase {name}" for name in ("load", "startup", "stream", "merge")
    ]
    moved = [line for line in lines if line.startswith("words: redistribution for reducer")]
    assert len(moved) == len(report.main.redistributions) > 0
    assert report.main.redistributions[0].reason in moved[0]
    assert lines[-1] == f"words: published {len(COUNTS)} rows at {tmp_path / 'out'}"
    quiet, talkative = Around(), Around()
    job().run(backend=quiet)
    with caplog.at_level(logging.DEBUG, logger="dpa"):
        job().run(backend=talkative)
    assert (quiet.plan.log_level, talkative.plan.log_level) == (None, logging.DEBUG)
