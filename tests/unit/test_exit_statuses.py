"""The exit statuses that docs/command.md lists, of all commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpa.checkpoints import CheckpointStore
from dpa.command import COMMANDS, app

ROOT = Path(__file__).parents[2]
JOB = """
python_path: [.]
input: {format: records, records: [{word: a}, {word: b}]}
mapper: MODULE:words
key: word
reducer: count
"""
MODULES = {
    "fine": "def words(record):\n    yield record['word'], 1\n",
    "failing": "def words(record):\n    raise ValueError('no words today')\n    yield\n",
    "interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ndef words(record):\n    return []\n",
}
STATUSES = {
    0: [
        *("version", "schema", "control list", "checkpoints saved list", "init new", "runs list"),
        *("check fine.yaml", "plan fine.yaml", "show fine.yaml", "run fine.yaml --validate"),
    ],
    1: [
        *("plan failing.yaml", "show failing.yaml", "init fine.yaml", "control stop none", "control cancel none"),
        *(
            "checkpoints empty list",
            "checkpoints saved show job 9",
            "checkpoints saved show none",
            "dead-letters empty list",
            "verify empty",
            "runs show none",
        ),
    ],
    2: [
        *(f"{command} none.yaml" for command in ("run", "check", "plan", "show", "replay")),
        *("show fine.yaml none", "show none.csv", "verify empty --epochs x", "init ."),
        *("check fine.yaml --set none=1", "control scale none reducer 0", "dead-letters empty replay", "none", ""),
        *(f"{command} --none" for command in COMMANDS),
    ],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpa.door.client.runs_directory", lambda: tmp_path)  # no other job's, which may just end
    for name, module in MODULES.items():
        Path(f"{name}.py").write_text(module, encoding="utf-8")
        Path(f"{name}.yaml").write_text(JOB.replace("MODULE", name), encoding="utf-8")
    Path("job.yaml").touch()
    Path("empty").mkdir()
    chain = CheckpointStore.open("saved").create("job")
    chain.commit(epoch=1, coordinator=chain.data.write(chain.next, "c", b"x"), tasks=[], records=1, seconds=1.0)


@pytest.mark.parametrize(("line", "status"), [(line, status) for status, lines in STATUSES.items() for line in lines])
def test_the_status_is_that_of_the_table(line: str, status: int) -> None:
    done = CliRunner().invoke(app, line.split(" ") if line else [])
    assert done.exit_code == status, done.output
    assert status == 0 or done.stderr, "nothing is said about the error"


@pytest.mark.parametrize("command", ["run", "check", "plan", "show"])
def test_an_interrupt_gives_130(command: str) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "dpa", command, "interrupted.yaml"]
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 130 and "interrupted" in done.stderr, done.stderr


def test_the_page_lists_the_statuses() -> None:
    page = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| ([0-9]+) \|", page, re.MULTILINE) == [*map(str, STATUSES), "3", "130"]
