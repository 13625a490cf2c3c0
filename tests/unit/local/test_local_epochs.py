"""Jobs in the test's own process: what is due while they run comes as in a real run, and in the same way each time."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from word_counts import Warned, counting

from dpa import Feed, Flow, Generator, Job, Page, Reducer, epochs, results, session, tumbling
from dpa.aggregates import Count
from dpa.checkpoints import CheckpointStore
from dpa.errors import ConfigError, JobFailedError
from dpa.sources.splits import MemorySplit
from dpa.testing import LocalBackend

WORDS = [f"word {number * number % 13}" for number in range(400)]
BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
TENTH = LocalBackend(row_seconds=0.1)
"""Ten rows a second: so much is due in a few hundred rows."""


FAILS = {"at": 300, "reducer": -1}
"""Rows that user code fails on."""


def job(tmp_path: Path, **sections: Any) -> Job:
    rows = pa.table({"word": WORDS, "n": range(len(WORDS))})
    return counting(rows, tmp_path, **{"parallelism": {"mappers": 2, "reducers": 3}, **sections})


def so_far(path: Path, every: float = 5) -> dict[str, Any]:
    return {"path": str(path), "mode": "overwrite", "publish": {"mode": "table", "every": every}}


def counted(table: pa.Table) -> dict[Any, int]:
    return dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))


@pytest.mark.parametrize("mode", ["table", "changes"])
def test_results_are_published_while_the_job_runs(mode: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made, seen = job(tmp_path, output={"path": str(out), "publish": {"mode": mode, "every": 1}}), Warned()
    assert counted(made.run(seen, backend=TENTH).table()) == Counter(WORDS)
    found = results(out)
    assert found.epoch > 20 and seen.warnings == []
    if mode == "changes":
        changes = Counter(found.table["change"].to_pylist())
        assert changes["insert"] == len({*WORDS}) and changes["update"] > 100
        assert len({*found.table["epoch"].to_pylist()}) == found.epoch
    else:
        assert counted(found.table) == Counter(WORDS)


def test_a_function_is_given_changes_by_epoch() -> None:
    given: list[int] = []
    flow = Flow("given")
    counts = flow.read(pa.table({"word": WORDS})).key_by("word").reduce("count", name="counts")
    counts.results(lambda rows, epoch: given.append(epoch), publish="changes", every=1)
    flow.run(backend=TENTH)
    assert given == sorted(given) and len(given) > 20


class Counting(Reducer[list[int], dict[str, int]]):
    """Counts in a list; `finish` changes the state."""

    def zero(self) -> list[int]:
        return [0]

    def reduce(self, state: list[int], value: int) -> list[int]:
        if value == FAILS["reducer"]:
            raise ValueError("not this one")
        state[0] += 1
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return [left[0] + right[0]]

    def finish(self, state: list[int]) -> dict[str, int]:
        count, state[0] = state[0], 0
        return {"count": count}


@pytest.mark.parametrize("reducer", ["count", Counting()], ids=["columns", "objects"])
def test_a_job_too_short_for_partial_results_publishes_its_result_in_place_of_those_of_before(
    reducer: Any, tmp_path: Path
) -> None:
    place = tmp_path / "so far"
    place.mkdir()
    for seconds in (5, 3_600):
        result = job(tmp_path, reducer=reducer, output=[{}, so_far(place, seconds)]).run(backend=TENTH)
        assert counted(result.table()) == Counter(WORDS)
        assert result.report.main.aggregation is not None
        assert (result.report.main.aggregation.epochs > 0) == (seconds == 5)
        found = results(place)
        assert counted(found.table) == Counter(WORDS) and found.is_last
        assert (found.epoch > 1) == (seconds == 5)


def test_a_failed_job_leaves_its_last_complete_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAILS, "reducer", 350)
    outputs = [str(tmp_path / "out"), so_far(tmp_path / "so far")]
    with pytest.raises(JobFailedError, match="not this one"):
        job(tmp_path, reducer=Counting(), output=outputs, value="n").run(backend=TENTH)
    found = counted(results(tmp_path / "so far").table)
    assert found.keys() == {*WORDS} and 0 < sum(found.values()) <= 350 and Counter(found) <= Counter(WORDS)
    assert not (tmp_path / "out").exists()


class Beats(Generator):
    """Rows of four keys every five seconds of event time, in order."""

    def batch(self, start: int, rows: int, random: Any) -> pa.RecordBatch:
        numbers = np.arange(start, start + rows)
        return pa.record_batch({"key": numbers % 4, "at": numbers // 4 * 5})


def test_rows_exactly_one_gap_apart_are_one_session_wherever_epochs_end() -> None:
    """As of Spark, too: epochs end between rows of one time, and the watermark is at the ends of sessions then."""
    flow = Flow("beats", limits={"batch_records": 7, "split_records": 50})  # no multiple of the rows of one time
    read = {"format": "generated", "use": f"{__name__}:Beats", "rows": 1_000}
    rows = flow.read(read, name="beats", time={"column": "at", "unit": "s", "out_of_order": 0}, parallelism=2)
    rows.window(session("5s")).key_by("key").reduce("count", name="counts", parallelism=2)
    result = flow.run(backend=LocalBackend(row_seconds=0.03))
    assert result.report.epochs.number > 20 and not result.report.errors
    assert sorted(result.table("counts").select(["key", "count"]).to_pylist(), key=repr) == [
        {"key": key, "count": 250} for key in range(4)
    ]


def windowed(rows: pa.Table, out: Path, **options: Any) -> Flow:
    flow = Flow("words", **options)
    read = flow.read(rows, name="words", time={"column": "at", "out_of_order": 0}).window(tumbling("10s"))
    read.key_by("word").reduce("count", name="counts").write(out, publish="final")
    return flow


def timed(late: int = 0) -> pa.Table:
    """A row each second of event time, and at the end some that are of the first."""
    at = [*range(100), *[0] * late]
    times = [BEGAN + timedelta(seconds=second) for second in at]
    return pa.table({"word": ["a"] * len(at), "at": pa.array(times, pa.timestamp("us", tz="UTC"))})


def test_windows_are_closed_while_the_job_runs_and_late_records_are_left_out(tmp_path: Path) -> None:
    windowed(timed(late=5), tmp_path / "out", on_error="skip").run(backend=TENTH)
    found = results(tmp_path / "out")
    assert found.epoch > 5 and found.table["count"].to_pylist() == [10] * 10
    windowed(timed(late=5), tmp_path / "other", on_error="skip").run(backend=LocalBackend())
    counts = results(tmp_path / "other").table["count"].to_pylist()
    assert sum(counts) == 105, "the job ends before a second has passed: no window is closed early"


def test_the_same_rows_give_the_same_epochs_each_time_which_are_logged(tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        output = {"path": str(tmp_path / name), "publish": {"mode": "changes", "every": 1}}
        job(tmp_path, output=output, epoch_log=str(tmp_path / f"log of {name}")).run(backend=TENTH)
        changes = results(tmp_path / name).table.sort_by([("epoch", "ascending"), ("word", "ascending")])
        log = epochs(tmp_path / f"log of {name}")
        found.append((changes.to_pydict(), log.select(["epoch", "read", "unread"]).to_pydict()))
    assert found[0] == found[1]
    assert log["epoch"].to_pylist() == [*range(1, results(tmp_path / "other").epoch + 1)]
    assert log["read"].to_pylist() == sorted(log["read"].to_pylist())
    assert log["read"].to_pylist()[-1] == len(WORDS) and log["is_last"].to_pylist()[-1]


def picky(row: dict[str, Any]) -> list[tuple[str, int]]:
    if row["n"] >= FAILS["at"]:
        raise ValueError("not this one")
    return [(row["word"], 1)]


@pytest.mark.parametrize("publish", [None, "changes"])
def test_a_job_is_resumed_from_its_newest_checkpoint(
    publish: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = {"path": str(tmp_path / "out"), **({} if publish is None else {"publish": publish})}

    def counts() -> Job:
        return job(
            tmp_path, mapper=picky, output=out, checkpoint={"path": str(tmp_path / "saved"), "every": 3, "keep": 2}
        )

    failed = counts().run(backend=TENTH, check=False)
    assert failed.report.status == "failed" and "not this one" in (failed.report.error or "")
    store = CheckpointStore.open(str(tmp_path / "saved"))
    newest = store.chain(next(iter(store.jobs()))).newest()
    assert newest is not None and 200 < newest.records <= 300
    monkeypatch.setitem(FAILS, "at", len(WORDS))
    if publish is not None:
        with pytest.raises(ConfigError, match="is not empty"):
            counts().check()
    counts().check(resume=str(tmp_path / "saved"))
    result = counts().run(backend=TENTH, resume=str(tmp_path / "saved"))
    assert counted(result.table()) == Counter(WORDS)
    made = result.report.checkpoints
    assert made is not None and made.read_before == newest.records and made.written > 1
    assert sum(task.read for stage in result.report.stages for task in stage.tasks) == len(WORDS) - newest.records
    if publish is not None:
        changes = results(tmp_path / "out").table
        assert Counter(changes["change"].to_pylist())["insert"] == len({*WORDS}), (
            "what was published before is not given again"
        )


class Growing(Feed):
    """Splits of ten numbers, as far as there are any now."""

    is_open = True
    schema = pa.schema([("n", pa.int64())])
    stop = 50

    def poll(self, split_rows: int, position: Any = None) -> Page:
        start = position or 0
        stop = min(start + 10, self.stop)
        return Page([MemorySplit(pa.table({"n": range(start, stop)}))] if stop > start else [], stop)


def test_an_open_input_is_polled_and_ends_where_nothing_more_has_come(tmp_path: Path) -> None:
    flow = Flow("numbers")
    read = flow.read({"format": "feed", "use": f"{__name__}:Growing"})
    read.key_by("n").reduce(Count()).write(tmp_path / "out", publish={"mode": "changes", "every": 1})
    flow.run(backend=TENTH)
    found = results(tmp_path / "out")
    assert sorted(found.table["n"].to_pylist()) == [*range(50)] and found.epoch > 2


def test_a_row_takes_some_time_and_what_user_code_raises_is_raised_as_it_is() -> None:
    with pytest.raises(ValueError, match="row_seconds must be more than 0, not 0"):
        LocalBackend(row_seconds=0)
    with pytest.raises(JobFailedError, match="not this one"):
        Job(input=[{"word": "a", "n": 999}], mapper=picky, reducer="count").run(backend=LocalBackend())
