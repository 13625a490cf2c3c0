"""Epochs of processes that are really killed (SIGKILL) before each operation of the file system in turn."""

import json
import subprocess
import sys
from pathlib import Path

WRITER = Path(__file__).with_name("killed_epochs.py")


def test_wherever_a_job_is_killed_readers_see_whole_epochs_and_each_row_once(tmp_path: Path) -> None:
    """While files are merged, too."""
    done = subprocess.run([sys.executable, str(WRITER), str(tmp_path)], check=True, capture_output=True, text=True)
    attempts = [json.loads(line) for line in done.stdout.splitlines()]
    every = [10 * epoch + task for epoch in (1, 2) for task in range(2)]
    assert [ended for ended, *_ in attempts] == [False] * (len(attempts) - 1) + [True]
    assert len(attempts) > 30
    for _, seen, whole in attempts:
        assert seen == every[: len(seen)] and len(seen) % 2 == 0, "whole epochs, in their order"
        assert whole == every
    lengths = [len(seen) for _, seen, _ in attempts]
    assert lengths == sorted(lengths) and {*lengths} == {0, 2, 4}
