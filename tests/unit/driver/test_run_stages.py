"""A whole run of a graph without Ray: several results, each published or kept, partial results, and what fails."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import Total

from dpa import Flow
from dpa.driver.backend import Backend
from dpa.errors import ConfigError, TableError
from dpa.protocol.plan import RunHooks, RunOutcome, RunPlan
from dpa.sinks._replacement import MARK
from dpa.testing import LocalBackend
from experiments.simulation.backend import SimulatedBackend

WORDS = [f"w{number * number % 17}" for number in range(300)]
COUNTS = Counter(WORDS)
LIMITS = {"split_records": 50, "batch_records": 9, "in_flight_records": 40}

backends = pytest.mark.parametrize("backend", [LocalBackend(), SimulatedBackend()], ids=["local", "simulated"])


def flow(directory: Path | None = None) -> Flow:
    """Counts, and from them the three most frequent words and how many words have each count."""
    made = Flow("words", limits=LIMITS)
    counts = made.read(pa.table({"word": WORDS}), name="words").key_by("word").reduce("count", name="counts")
    top = counts.top_k(3, by="count", name="top")
    often = counts.map(lambda row: {"times": row["count"]}).key_by("times").reduce("count", name="often")
    if directory is not None:
        counts.write(str(directory / "counts"))
        top.write(str(directory / "top"))
        often.write(str(directory / "often"), mode="overwrite")
    return made


class Before(LocalBackend):
    """A backend before whose end something happens."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__()
        self._happens = happens

    def run(self, plan: RunPlan, hooks: RunHooks) -> RunOutcome:
        outcome = super().run(plan, hooks)
        self._happens()
        return outcome


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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts", "often", "top"]
    for name in ("counts", "often", "top"):
        assert (tmp_path / name / MARK).exists()
        files = sorted((tmp_path / name).glob("*.parquet"))
        assert sum(pq.read_metadata(file).num_rows for file in files) == result.table(name).num_rows
    found = {row["word"]: row["count"] for row in result.table("counts").to_pylist()}
    assert found == COUNTS
    outputs = {stage.name: stage.output for stage in result.report.stages if stage.output}
    assert {name: output.path for name, output in outputs.items()} == {
        name: str(tmp_path / name) for name in ("counts", "often", "top")
    }


@backends
def test_a_step_that_fails_publishes_the_result_of_none(backend: Backend, tmp_path: Path) -> None:
    class Broken(Total):
        def reduce(self, state: int, value: Any) -> int:
            raise LookupError("no luck")

    made = Flow("words", limits=LIMITS)
    counts = made.read(pa.table({"word": WORDS}), name="words").key_by("word").reduce("count", name="counts")
    counts.write(str(tmp_path / "counts"))
    counts.key_by("word").reduce(Broken(), name="broken")
    result = made.run(backend=backend, check=False)
    assert result.report.status == "failed"
    assert "Broken.reduce failed on key" in (result.report.error or "")
    assert list(tmp_path.iterdir()) == []
    [output] = [stage.output for stage in result.report.stages if stage.name == "counts"]
    assert output is not None
    assert (output.path, output.unpublished) == (None, str(tmp_path / "counts"))


def test_a_result_that_cannot_be_published_leaves_those_after_it_unpublished(tmp_path: Path) -> None:
    def come() -> None:
        (tmp_path / "top").mkdir(exist_ok=True)
        (tmp_path / "top" / "precious").touch()

    result = flow(tmp_path).run(backend=Before(come), check=False)
    assert result.report.status == "failed"
    assert "stages.top.write.path" in (result.report.error or "")
    outputs = {stage.name: stage.output for stage in result.report.stages if stage.output}
    published = {name for name, output in outputs.items() if output.path is not None}
    assert published == {path.name for path in tmp_path.iterdir() if (path / MARK).exists()}
    assert "top" not in published
    assert [path.name for path in (tmp_path / "top").iterdir()] == ["precious"]


def test_two_results_in_one_directory_are_refused_before_anything_starts(tmp_path: Path) -> None:
    made = flow(tmp_path)
    made._stages["often"]["write"] = {"path": str(tmp_path / "top")}
    with pytest.raises(ConfigError, match=r"stages\..*\.write\.path: .* are one directory; name two directories"):
        made.check()


def test_a_step_that_is_no_result_publishes_its_rounds(tmp_path: Path) -> None:
    made = Flow("words", limits=LIMITS)
    words = made.read(pa.table({"word": WORDS}), name="words")
    rounds = {"path": str(tmp_path / "rounds"), "publish": "table"}
    words.key_by("word").reduce("count", name="counts", write=rounds).top_k(3, by="count", name="top")
    plans = []

    class Noting(LocalBackend):
        def run(self, plan: RunPlan, *arguments: Any) -> RunOutcome:
            plans.append(plan)
            return super().run(plan, *arguments)

    made.run(backend=Noting())
    published = {name: sink.place for name, to in plans[0].deliveries.items() for sink in to.by_epoch if sink}
    assert published == {"counts": str(tmp_path / "rounds")}


def test_a_result_column_that_is_named_as_the_key_is_refused_before_anything_starts() -> None:
    made = Flow("words")
    counts = made.read(pa.table({"word": WORDS}), name="words").key_by("word").reduce("count", name="counts")
    counts.key_by("count").reduce("count", name="often")
    with pytest.raises(ConfigError, match=r"stages.often.key_by: .* gives a column 'count', which is the key"):
        made.run(backend=LocalBackend())
