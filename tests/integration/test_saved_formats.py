"""A job goes on with a checkpoint of each format that is still read, on Ray, and its results are those of no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import saved_formats

from dpa.protocol.checkpoint_format import PYTHON, READ


def _sorted(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


@pytest.mark.parametrize("number", sorted(READ))
def test_a_job_goes_on_with_what_was_written_in_each_format(number: int, tmp_path: Path) -> None:
    store, job, checkpoint = saved_formats.copied(number, tmp_path / "saved")
    written_by = json.loads(store.chain(job).data.read(checkpoint.coordinator).partition(b"\n")[0])["python"]
    if written_by != PYTHON:
        pytest.skip(f"states of Python {written_by} are resumed with it")
    assert 0 < checkpoint.records < saved_formats.ROWS
    (tmp_path / "job.json").write_text(json.dumps(saved_formats.job(tmp_path)))
    assert saved_formats.run(tmp_path / "job.json", "--resume", str(tmp_path / "saved")).wait() == 0
    for name, expected in saved_formats.expected().items():
        found = pq.read_table(tmp_path / name).select([*expected[0]]).to_pylist()
        assert _sorted(found) == _sorted(expected), name
    letters = pq.read_table(tmp_path / "dead").to_pylist()
    assert len(letters) == saved_formats.ROWS // saved_formats.BAD
    assert {letter["generation"] for letter in letters} == {0, 1}
