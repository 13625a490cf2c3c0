"""What a reference is compared without where a reducer has failed on records: their keys, as they are in the result."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow, Reducer, session, tumbling
from dpa.driver.outputs import in_memory
from dpa.driver.reference import LeftOut
from dpa.protocol.plan import RunHooks
from dpa.testing import LocalBackend
from dpa.windows.options import Windows
from experiments.harness import plan_of


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
