"""`dpa`: its help, its versions, and what a shell completes, some of it in a process of its own, as in a shell."""

from __future__ import annotations

import configparser
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from dpa import Job
from dpa._util.version import VERSION
from dpa.command import COMMANDS, app
from dpa.door.client import Offer, offered
from dpa.testing import LocalBackend

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console script, as an installer makes it of the entry point in setup.cfg."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    name, _, entry = settings["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = entry.partition(":")
    made = tmp_path_factory.mktemp("bin") / name
    made.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    made.chmod(stat.S_IRWXU)
    return made


def run(script: Path, *arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **environment}
    return subprocess.run([script, *arguments], cwd=cwd, env=variables, capture_output=True, text=True, check=False)


def here(*arguments: str, **environment: str) -> Result:
    """The same in this process."""
    return CliRunner().invoke(app, arguments, prog_name="dpa", env={"COLUMNS": "80", **environment})


def completed(shell: str, line: str) -> str:
    """What the shell gets when Tab is pressed at the end of a line."""
    words = line.split(" ")
    asked = {"bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}, "zsh": {"_TYPER_COMPLETE_ARGS": line}}
    done = here(**{"_DPA_COMPLETE": f"complete_{shell}"}, **asked[shell])
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_the_help_fits_a_screen_and_has_a_line_for_each_command(script: Path) -> None:
    lines = run(script, "--help").stdout.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2:3].strip()][1:] == [*COMMANDS]
    assert not [line for line in lines if line.endswith("...")][1:], "a summary is cut"
    bare = run(script)
    assert (bare.returncode, (bare.stdout + bare.stderr).splitlines()) == (2, lines)


def test_a_job_that_runs_is_written_into_a_directory_and_is_not_written_over(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(script, "init", ".", cwd=tmp_path).stdout.endswith("; to run the job: dpa run job.yaml\n")
    assert here("init", "a b").stdout.endswith("; to run the job: cd 'a b' && dpa run job.yaml\n")
    assert {path.name for path in (tmp_path / "a b").iterdir()} == {"job.yaml", "functions.py", "orders.csv"}
    monkeypatch.setattr(sys, "path", [*sys.path])
    without_spark = ["stages.orders.read.in_place=true", "stages.totals.reference=null"]
    job = Job.from_file(tmp_path / "job.yaml", without_spark)
    totals = {row["shop"]: row["orders"] for row in job.run(backend=LocalBackend()).table().to_pylist()}
    sys.modules.pop("functions", None)
    assert len(totals) == 21 and max(totals, key=totals.__getitem__) == "busy"
    (tmp_path / "job.yaml").write_text("mine", encoding="utf-8")
    again = here("init", ".")
    assert again.exit_code == 2 and ". has functions.py and job.yaml and orders.csv already" in again.stderr
    assert (tmp_path / "job.yaml").read_text(encoding="utf-8") == "mine"


def test_versions_are_printed(script: Path) -> None:
    assert run(script, "--version").stdout == f"dpa {VERSION}\n"
    lines = run(script, "version").stdout.splitlines()
    assert lines[0] == f"dpa {VERSION}" and [line.split()[0] for line in lines[1:]] == [
        *("Python", "ray", "pyspark", "polars", "pyarrow")
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_help(name: str) -> None:
    done = here(name, "--help")
    assert done.exit_code == 0 and f"Usage: dpa {name} " in done.stdout, done.stderr


def test_a_typing_error_gets_the_nearest_command() -> None:
    for arguments, meant in ((["rnu"], "run"), (["dead_letters"], "dead-letters"), (["control", "fnish"], "finish")):
        done = here(*arguments)
        assert done.exit_code == 2 and f"Did you mean '{meant}'?" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands_options_job_files_and_running_jobs(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {*COMMANDS} <= {*completed(shell, "dpa ").replace('"', " ").split()}
    assert completed("bash", "dpa ch").split() == ["check", "checkpoints"]
    assert "--progress" in completed(shell, "dpa run --pro")
    assert "rich" in completed(shell, "dpa run --progress r")
    assert "finish" in completed(shell, "dpa control fin")
    (tmp_path / "jobs").mkdir()
    for path in ("job.yaml", "jobs/other.yml", "notes.txt"):
        (tmp_path / path).touch()
    monkeypatch.chdir(tmp_path)
    found = completed(shell, "dpa check jo")
    assert "job.yaml" in found and str(Path("jobs/other.yml")) in found and "notes" not in found
    with offered("completed", Offer("completed", 1, "token", "here", "http://127.0.0.1:1/")):
        assert f"completed-{os.getpid()}" in completed(shell, "dpa control stop compl")


def test_the_documented_line_completes_in_bash(script: Path) -> None:
    page = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    [line] = [line for line in page.splitlines() if line.startswith("eval ")]
    tab = 'COMP_WORDS=(dpa ch); COMP_CWORD=1; _dpa_completion dpa; echo "${COMPREPLY[*]}"'
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{script.parent}:{os.environ['PATH']}"}
    shell = ["bash", "-c", f"{line}\n{tab}"]
    done = subprocess.run(shell, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["check", "checkpoints"]


def test_completion_imports_neither_ray_nor_spark_nor_polars() -> None:
    program = "import sys\nfrom dpa.command import app\ntry: app()\nfinally: print(*sys.modules, file=sys.stderr)"
    for line in ("dpa run --pro", "dpa plan ", "dpa control stop "):
        words = {"COMP_WORDS": line, "COMP_CWORD": "2", "_DPA_COMPLETE": "complete_bash"}
        done = subprocess.run(
            [sys.executable, "-c", program.replace("app()", "app(prog_name='dpa')")],
            env={**os.environ, **words},
            capture_output=True,
            text=True,
            check=True,
        )
        assert not {"ray", "pyspark", "polars", "pyarrow", "numpy", "pandas"} & {*done.stderr.split()}
