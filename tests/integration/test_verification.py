"""Epochs of a stream that are verified while it runs and afterwards, on real Ray and Spark, though its coordinator is
killed meanwhile; and the log that they are verified by."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from observers_for_tests import Killing

import dpa
from dpa import Job, results
from dpa.driver.verification import Verified, verified
from dpa.errors import DpaError
from dpa.telemetry.tracker import TrackedSnapshot
from dpa.verify import app

pytestmark = pytest.mark.usefixtures("ray", "spark")

COUNTS = """SELECT window.start AS window_start, window.end AS window_end, key, count(*) AS count
FROM numbers GROUP BY window(time, '1 second'), key"""


def stream(tmp_path: Path, counts: str = COUNTS) -> Job:
    numbers = {
        "format": "generated",
        "use": "executors_for_tests:TimedNumbers",
        "args": {"per_second": 4_000},
        "rows": None,
        "rate": 4_000,
        "time": {"column": "time", "out_of_order": "500ms"},
    }
    return Job(
        name="verified",
        stages={
            "numbers": {"read": numbers},
            "windows": {"from": "numbers", "window": "1s"},
            "counts": {
                "from": "windows",
                "key_by": "key",
                "reduce": "count",
                "write": {"path": str(tmp_path / "counts"), "publish": "final"},
                "reference": {"sql": counts, "at_end": False},
            },
            "totals": {
                "from": "numbers",
                "key_by": "key",
                "reduce": "count",
                "write": {"path": str(tmp_path / "totals"), "publish": "changes"},
                "reference": {"sql": "SELECT key, count(*) AS count FROM numbers GROUP BY key", "at_end": False},
            },
        },
        checkpoint={"path": str(tmp_path / "checkpoints"), "every": "500ms"},
        recovery={"backoff": "100ms"},
        epoch_log=str(tmp_path / "log"),
        python_path=[str(Path(__file__).parent)],
    )


class Watcher(Killing):
    """Kills the coordinator behind a checkpoint, and has epochs verified once some windows are closed after that."""

    def __init__(self, job: Job, tmp_path: Path) -> None:
        super().__init__("verified", "coordinator")
        self.verified, self.path = job, tmp_path
        self.found: list[Verified] = []
        self.verifying: threading.Thread | None = None

    def update(self, snapshot: TrackedSnapshot) -> None:
        if self.kill_next(snapshot, least=2) or snapshot.checkpoints is None or snapshot.checkpoints.written < 2:
            return
        if snapshot.generation == 1 and self.verifying is None and self.windows() > 3:
            self.verifying = threading.Thread(target=self.verify)
            self.verifying.start()

    def windows(self) -> int:
        try:
            return len(pc.unique(results(self.path / "counts").table["window_end"]))
        except (DpaError, KeyError):
            return 0

    def verify(self) -> None:
        self.found = [*verified(self.verified.spec, str(self.path / "log"))]

    def is_done(self) -> bool:
        return self.verifying is not None and not self.verifying.is_alive()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        app([*words])
    return int(ended.value.code or 0), capsys.readouterr().out


def test_what_epochs_have_published_is_what_spark_computes_of_the_rows_behind_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = stream(tmp_path)
    watcher = Watcher(job, tmp_path)
    report = job.run(watcher, closes=watcher.is_done).report
    assert {each.step: each.compared.matches for each in watcher.found} == {"counts": True, "totals": True}
    assert all(each.rows and each.read for each in watcher.found)

    log = dpa.epochs(tmp_path / "log")
    numbers = log["epoch"].to_pylist()
    assert numbers == [*range(1, len(numbers) + 1)] and log["is_last"].to_pylist() == [False] * (len(log) - 1) + [True]
    assert len(report.recoveries) == 1 and log["read"].to_pylist() == sorted(log["read"].to_pylist())
    counts = report["counts"].output
    assert counts is not None and counts.rows == results(tmp_path / "counts").table.num_rows

    windows = [row for row in log.to_pylist() if closed(row) is not None and not row["is_last"]]
    assert closed(windows[0]) < closed(windows[-1])
    [part, totals] = by_step(verified(job.spec, str(tmp_path / "log"), windows[-1]["epoch"]))
    assert part.compared.matches and 0 < part.rows < counts.rows and part.last == len(numbers)
    assert part.read < report_read(log), "rows of windows that were closed before are not read"
    assert "it is of all rows read so far" in (totals.compared.why_not or "")

    status, text = said(capsys, str(tmp_path / "log"), "--epochs", ":")
    assert status == 0 and text.count("match\n") == 2 and f"of {report_read(log):,} rows of the input" in text
    wrong = stream(tmp_path, COUNTS.replace("count(*)", "count(*) + 1"))
    assert [each.compared.matches for each in by_step(verified(wrong.spec, str(tmp_path / "log")))] == [False, True]
    with pytest.raises(DpaError, match=rf"the log has the epochs 1 to {len(numbers)}, and not 1000"):
        [*verified(job.spec, str(tmp_path / "log"), 1_000)]


def by_step(found: Iterable[Verified]) -> list[Verified]:
    return sorted(found, key=lambda each: each.step)


def closed(row: dict[str, Any]) -> Any:
    return next(stage["closed"] for stage in row["stages"] if stage["stage"] == "counts")


def report_read(log: Any) -> int:
    return int(log["read"].to_pylist()[-1])
