"""Why epochs of a stream are not verified, before Spark is asked; which rows of the input it would read; and what a
reference is compared without where a reducer has failed on records."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow, Job, Reducer, session, tumbling
from dpa.driver.outputs import in_memory
from dpa.driver.reference import LeftOut
from dpa.driver.verification import Verified, verified
from dpa.errors import ConfigError, DpaError
from dpa.protocol.checkpoint_format import written
from dpa.protocol.plan import RunHooks
from dpa.sinks.epoch_log import EpochLog
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import EpochLogOptions, Target
from dpa.sources.splits import MemorySplit
from dpa.testing import LocalBackend
from dpa.windows.options import Windows
from experiments.harness import plan_of
from tests.unit.output_samples import publishing

SECOND = 1_000_000
TIME = pa.timestamp("us", tz="UTC")
ROWS = pa.table({"at": pa.array([0, SECOND], TIME), "key": ["a", "b"]})


def job(tmp_path: Path, window: Any = "1s", **write: Any) -> Job:
    tweets = {"format": "generated", "use": "jobs.trending:LiveTweets", "rows": None, "time": {"column": "time"}}
    counts = {
        "from": "windows",
        "key_by": "text",
        "reduce": "count",
        "write": write or {"path": str(tmp_path / "out"), "publish": "final"},
        "reference": {"sql": "SELECT 1", "at_end": False},
    }
    stages = {"tweets": {"read": tweets}, "windows": {"from": "tweets", "window": window}, "counts": counts}
    return Job(name="visits", stages=stages, epoch_log=str(tmp_path / "log"))


def logged(tmp_path: Path, *rows: dict[str, Any]) -> str:
    """A log of epochs: each closes the windows of a second, and reads two rows that are up to a second later."""
    log = EpochLog(EpochLogOptions(str(tmp_path / "log"), "visits", "name: visits"), 0)
    for row in rows:
        epoch = row["epoch"]
        closed = {"stage": "counts", "closed": epoch * SECOND, "published": 1}
        known = {"ended": 1, "late": 0, "left_out": 0, "is_last": False, "latest": (epoch + 1) * SECOND}
        splits = written({"tweets": (MemorySplit(ROWS),)})
        log.add([{**known, "stages": [{**closed, **row.pop("counts", {})}], "splits": splits, **row}])
    return str(tmp_path / "log")


def published(tmp_path: Path, epoch: int) -> None:
    sink = publishing(ResultFiles(Target(str(tmp_path / "out"))), "final")
    sink.begin()
    for number in range(1, epoch + 1):
        ends = pa.array([number * SECOND], TIME)
        starts = pa.array([(number - 1) * SECOND], TIME)
        rows = pa.table({"text": ["a"], "window_start": starts, "window_end": ends, "count": [1]})
        sink.commit([sink.stage(rows, 0, number)], number, 0.0)
    sink.abort()


def of(tmp_path: Path, first: int | None = None, last: int | None = None) -> Verified:
    [found] = verified(job(tmp_path).spec, str(tmp_path / "log"), first, last)
    return found


def test_epochs_that_the_log_or_the_result_lacks_are_said(tmp_path: Path) -> None:
    logged(tmp_path, *({"epoch": epoch} for epoch in (1, 2, 4)))
    published(tmp_path, 1)
    for first, last, why in [
        (1, 9, "the log has the epochs 1 to 4, and not 9"),
        (2, 1, "epochs are named as FIRST:LAST, and 2 comes after 1"),
        (1, 4, "the log lacks epoch 3: verify the epochs before or after it"),
        (1, 2, "counts: epoch 2 is not published yet, and 1 is the newest"),
    ]:
        with pytest.raises(DpaError, match=why):
            of(tmp_path, first, last)


def test_late_records_and_those_that_were_left_out_are_in_the_way_of_their_epochs_alone(tmp_path: Path) -> None:
    late, left = {"late": 3}, {"late": 3, "left_out": 2}
    logged(tmp_path, {"epoch": 1}, {"epoch": 2, **late}, {"epoch": 3, **late}, {"epoch": 4, **left})
    published(tmp_path, 4)
    found = of(tmp_path, 2, 3)
    assert "3 records that came late are not in windows that were closed" in (found.compared.why_not or "")
    assert (found.rows, found.read) == (2, 6), "windows that epochs 2 and 3 have closed; rows of all epochs up to 3"
    found = of(tmp_path, 4, 4)
    assert "2 records were left out" in (found.compared.why_not or "")
    assert (found.rows, found.read) == (1, 6), "what epoch 1 has read is of windows that were closed by 3"


def test_a_session_that_ends_where_windows_are_closed_is_of_the_next_epoch(tmp_path: Path) -> None:
    logged(tmp_path, {"epoch": 1, "late": 1}, {"epoch": 2, "late": 2})
    published(tmp_path, 2)
    for window, rows in (("1s", [1, 1]), ({"gap": "1s"}, [0, 1])):
        spec = job(tmp_path, window).spec
        found = [each for epoch in (1, 2) for each in verified(spec, str(tmp_path / "log"), epoch, epoch)]
        assert [each.rows for each in found] == rows


def test_what_epochs_have_not_published_is_said(tmp_path: Path) -> None:
    logged(tmp_path, {"epoch": 1}, {"epoch": 2, "counts": {"published": None}})
    published(tmp_path, 1)
    assert of(tmp_path, 2, 2).compared.why_not == "these epochs have published nothing of it"
    [found] = verified(job(tmp_path, use="builtins:print", publish="final").spec, str(tmp_path / "log"))
    assert "nothing can be read back from" in (found.compared.why_not or "")
    topic = {"path": "topic", "format": "kafka", "mode": "append", "args": {"bootstrap.servers": "broker"}}
    [found] = verified(job(tmp_path, **topic, publish="final").spec, str(tmp_path / "log"))
    assert "it is a topic of Kafka, topic" in (found.compared.why_not or "")
    with pytest.raises(DpaError, match=r"no result of the job has a reference: give one a query in `reference.sql`"):
        [*verified(Job(input=ROWS, reducer="count").spec, str(tmp_path / "log"))]


def test_a_log_needs_epochs_and_a_reference_that_waits_for_it_a_log(tmp_path: Path) -> None:
    given: dict[str, Any] = {"input": ROWS, "reducer": "count"}
    with pytest.raises(ConfigError, match="epoch_log: no epoch ends before the job does: give it `checkpoint`"):
        Job(**given, epoch_log=str(tmp_path / "log")).check()
    with pytest.raises(ConfigError, match=r"reference.at_end: it is computed by the log of epochs alone"):
        Job(**given, reference={"sql": "SELECT 1", "at_end": False}).check()
    with pytest.raises(ConfigError, match=r"epoch_log: gs://x: name a directory, or s3://BUCKET/PREFIX"):
        Job(**given, epoch_log="gs://x", checkpoint={"path": str(tmp_path / "saved")}).check()


class MindsThree(Reducer[int, int]):
    """Without `merge`."""

    def zero(self) -> int:
        return 0

    def reduce(self, state: int, value: int) -> int:
        if value == 3:
            raise ValueError("not this one")
        return state + value


class MindsThreeOfParts(MindsThree):
    """With it."""

    def merge(self, left: int, right: int) -> int:
        return left + right


FIRST = (datetime(1970, 1, 1, 0, 0, 0), datetime(1970, 1, 1, 0, 0, 10))
"""The window of the dead record."""

CASES: dict[str, tuple[Reducer[int, int], Windows | None, Any, list[int]]] = {
    "a window that the key has": (MindsThreeOfParts(), tumbling(10), (1, *FIRST), [2, 5, 9]),
    "a window that the key lacks": (MindsThree(), tumbling(10), (1,), [2, 9]),
    "sessions": (MindsThreeOfParts(), session(5), (1,), [2, 9]),
    "no window": (MindsThree(), None, (1,), [11]),
}
"""The reducer, the windows, the parts of the key, and what is left of the results."""


@pytest.mark.parametrize("name", CASES)
def test_results_of_a_dead_records_key_are_left_out(name: str, tmp_path: Path) -> None:
    reducer, windows, parts, left = CASES[name]
    at = pa.array([second * 1_000_000 for second in (0, 4, 8, 20, 1, 20)], pa.timestamp("us"))
    rows = pa.table({"word": [1, 1, 1, 1, 2, 2], "n": [1, 3, 5, 5, 2, 9], "at": at})
    flow = Flow("sums", on_error="dead_letter", dead_letters=str(tmp_path / "dead"))
    stream = flow.read(rows, name="rows", time="at")
    stream = stream if windows is None else stream.window(windows)
    stream.key_by("word", value="n").reduce(reducer, name="sums")
    job = flow.job()
    outcome = LocalBackend().run(plan_of(job), RunHooks())
    step = next(step for step in job.spec.steps if step.name == "sums")
    found = LeftOut.of(step, job.spec.steps, outcome)
    assert (found.keys, found.records, found.why_not) == ({parts}, 1, None)
    own = found.without_keys(in_memory(outcome, "sums"), step)
    assert sorted(own["value"].to_pylist()) == left
