"""Results of processes that are really killed (SIGKILL) before each operation of the file system in turn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WRITER = Path(__file__).with_name("killed_writer.py")


@pytest.mark.parametrize(("how", "old"), [("beside", 1), ("inside", 1), ("beside", None)])
def test_wherever_a_job_is_killed_the_old_result_is_there_or_the_new_one_as_a_whole_once_the_next_has_begun(
    tmp_path: Path, how: str, old: int | None
) -> None:
    command = [sys.executable, str(WRITER), str(tmp_path), how, *(["old"] if old else [])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ended, looks = lines[::2], lines[1::2]
    assert ended == [False] * (len(ended) - 1) + [True], done.stderr
    assert len(ended) > 12
    values = [value for _, value, _ in looks]
    turn = values.index(2)
    assert values == [old] * turn + [2] * (len(values) - turn), "what the next run has made of it"
    for seen, value, names in looks:
        assert seen in (None, value), "a reader between the two sees this result or none"
        parts = range(0 if value is None else value + 1)
        assert names == [*["out/_job.yaml"] * (value is not None), *(f"out/part-{part:05d}.parquet" for part in parts)]
    if how == "beside" and old:
        assert [seen for seen, _, _ in looks].count(None) == 1, "the result is away between two renames"
