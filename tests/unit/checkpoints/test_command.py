"""`python -m dpa.checkpoints`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dpa._checkpoints import app
from dpa.checkpoints import Chain, CheckpointStore, Part, TaskParts


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """A chain of three checkpoints, of which the third has files of the first."""
    chain = CheckpointStore.open(str(tmp_path)).create("word count")
    parts: tuple[Part, ...] = ()
    for epoch in (1, 2, 3):
        files = [chain.data.write(chain.next, name, b"x" * 1000 * epoch) for name in ("coordinator", "count")]
        parts = (*parts[:1], Part(files[1], (0, 2**32 - 1), 50, is_increment=bool(parts)))
        tasks = [TaskParts("count", 7, parts)]
        chain.commit(epoch=epoch * 10, coordinator=files[0], tasks=tasks, records=10**9 * epoch, seconds=1.26)
    return chain


def run(path: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(app, [str(path), *arguments], env={"COLUMNS": "80", "TERM": "dumb"})
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if str(path) not in line), "but for a place"
    return result


def test_list_shows_jobs_and_their_checkpoints(tmp_path: Path, chain: Chain) -> None:
    newer = CheckpointStore.open(str(tmp_path)).create("another")
    result = run(tmp_path, "list")
    assert result.exit_code == 0
    assert result.stdout.index(newer.job) < result.stdout.index("no checkpoint yet") < result.stdout.index(chain.job)
    last = result.stdout.splitlines()[-1].split()
    assert (last[:2], last[4:]) == (["3", "30"], ["3,000,000,000", "3", "7.0", "kB", "6.0", "kB", "1.3"])
    assert newer.job not in run(tmp_path, "list", "word").stdout


def test_show_shows_what_each_task_has(tmp_path: Path, chain: Chain) -> None:
    newest = run(tmp_path, "show", "word")
    assert newest.exit_code == 0
    assert newest.stdout.startswith("checkpoint 3 of word count\n")
    assert newest.stdout.splitlines()[-1].split() == ["count", "7", "2", "4.0", "kB", "50", "50", "1"]
    assert "checkpoint 1 of word count" in run(tmp_path, "show", "word", "1").stdout


def test_verify_names_what_is_missing_or_damaged(tmp_path: Path, chain: Chain) -> None:
    command = [sys.executable, "-m", "dpa.checkpoints", str(tmp_path), "verify"]
    whole = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    for said in (whole.replace("\n", " "), run(tmp_path, "verify").stdout.replace("\n", " ")):
        assert said.strip().endswith("6 files, none damaged")
    newest = chain.manifest(3)
    (tmp_path / chain.job / newest.coordinator.path).unlink()
    (tmp_path / chain.job / newest.tasks[0].parts[0].file.path).write_bytes(b"")
    (tmp_path / chain.job / "chain" / "0000000002.json").write_bytes(b"")
    result = run(tmp_path, "verify")
    said = result.stdout.replace("\n", "")
    assert result.exit_code == 1
    for part in ("is missing", "is damaged: 0 bytes, not 1,000", "0000000002.json is damaged", "3 damaged"):
        assert part in said


def test_prune_keeps_what_was_asked_for_and_remove_nothing(tmp_path: Path, chain: Chain) -> None:
    assert run(tmp_path, "prune", "--keep", "2").stdout.replace("\n", "").endswith("2 manifests and 1 file deleted")
    assert chain.numbers() == [2, 3]
    assert run(tmp_path, "verify").exit_code == 0
    assert run(tmp_path, "prune").exit_code == 0
    assert chain.numbers() == [2, 3]  # the last two stay
    assert run(tmp_path, "remove", "word").stdout.replace("\n", "") == f"{chain.job}: removed"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["show", "x"], 1, "has no checkpoints of x; jobs there: word_count-"),
        (["list", "x"], 1, "has no checkpoints of x; jobs there: word_count-"),
        (["show", "word", "9"], 1, "0000000009.json is missing"),
        (["show", "word", "0"], 1, "0000000000.json is no checkpoint, but the claim of a coordinator"),
        (["prune", "--keep", "0"], 2, "--keep"),
    ],
)
def test_a_mistake_is_said(tmp_path: Path, chain: Chain, arguments: list[str], status: int, why: str) -> None:
    result = run(tmp_path, *arguments)
    assert (result.exit_code, why in result.stderr.replace("\n", "")) == (status, True)


def test_a_job_has_to_be_named_where_there_are_two(tmp_path: Path, chain: Chain) -> None:
    CheckpointStore.open(str(tmp_path)).create("word search")
    result = run(tmp_path, "show", "word")
    assert (result.exit_code, ": name one" in result.stderr) == (2, True)


def test_places_without_checkpoints_are_named(tmp_path: Path) -> None:
    for command in ("list", "verify", "prune"):
        result = run(tmp_path / "x", command)
        assert f"no job has checkpoints at {tmp_path / 'x'}" in result.stderr.replace("\n", "")
        assert result.exit_code == 1
    result = run(Path("gs:/bucket"), "list")
    assert "no job has checkpoints" in result.stderr  # a directory of that name
    result = CliRunner().invoke(app, ["gs://me:hidden@bucket/x", "list"])
    assert (result.exit_code, "hidden" in result.output) == (1, False)
