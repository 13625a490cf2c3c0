"""The command line, mostly in processes of its own: what is printed where, exit statuses, and what is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import Result
from executors_for_tests import children
from programs_for_tests import PATIENCE, wait_until
from typer.testing import CliRunner

from dpa import results
from dpa.errors import TableError
from dpa.run import app

HERE = Path(__file__).parent

JOB = """
name: small
python_path: ["{here}"]
input: {{format: records, records: [{{value: a b a}}, {{value: b a c}}]}}
mapper: executors_for_tests:words
reducer: executors_for_tests:add
key: word
parallelism: {{mappers: 1, reducers: 2}}
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dpa.run", *arguments]


def run(*arguments: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, **environment}
    return subprocess.run(
        command(*arguments), cwd=cwd, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def run_here(*arguments: str) -> Result:
    """The command in this process, on the Ray and Spark that all tests share."""
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(JOB.format(here=HERE), encoding="utf-8")
    return file


def test_json_is_the_only_thing_on_standard_output_and_the_report_is_written(job: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    # Ray's log monitor passes lines of the tasks on when it comes to them: the job goes on when one was there.
    of_a_task = re.compile(r"INFO    [a-z]+ 0 dpa\.runtime\.actors\._shell: state: [a-z]+ -> [a-z]+")
    seen, lines = tmp_path / "seen", []
    reducer = f"reducer={{use: executors_for_tests:Waiting, args: {{until: {seen}}}}}"
    options = ["--json", "--report", "report", "--progress", "plain", "--log", "info", "--set", reducer]
    with (
        (tmp_path / "out").open("w") as out,
        subprocess.Popen(
            command("small.yaml", *options),
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path / "home")},
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        ) as running,
    ):
        assert running.stderr is not None
        for line in running.stderr:
            lines.append(line)
            if of_a_task.search(line):
                seen.touch()
    printed = "".join(lines)
    assert running.returncode == 0, printed
    assert seen.exists(), printed
    assert not (tmp_path / "home" / ".ray").exists(), "Ray wrote a token for all jobs to the user's home"
    report = json.loads((tmp_path / "out").read_text(encoding="utf-8"))
    assert report["status"] == "ok"
    assert report["records"]["processed"] == 6
    assert {hot["key"]: hot["records"] for hot in report["stages"][-1]["hot_keys"]} == {"a": 3, "b": 2, "c": 1}
    assert "small: stream" in printed
    for logged in ("runtime.cluster: a Ray of this process is ready", "run: small: phase stream", "has ended"):
        assert re.search(rf"^[-\d]+ [\d:,]+ INFO    driver dpa\..*{logged}", printed, re.MULTILINE), printed
    assert json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8")) == report
    assert '"status": "ok"' in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_help_fits_80_columns_and_lists_the_exit_statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = CliRunner().invoke(app, ["--help"]).stdout
    assert max(map(len, printed.splitlines())) <= 80
    assert re.findall(r"^ (\d+) +[a-z]", printed, re.MULTILINE) == ["0", "1", "2", "3", "130"]


@pytest.mark.usefixtures("ray")
def test_a_failing_executor_gives_status_1_and_its_last_events_can_be_repeated_without_it(
    job: Path, tmp_path: Path
) -> None:
    job.write_text(job.read_text().replace("value: b a c", "value: a c"))  # only `a` comes twice: one reducer fails
    failing = ["--set", "reducer=executors_for_tests:never_add", "--progress", "plain", "--report", str(tmp_path)]
    done = run_here(str(job), *failing)
    assert done.exit_code == 1
    assert "executors_for_tests.never_add.reduce failed on key" in done.stdout
    assert "ValueError: no sums today" in done.stdout.splitlines()
    assert "done" not in done.stderr
    assert done.stderr.rstrip().endswith("small: failed in stream")
    files = sorted((tmp_path / "events").iterdir())
    tasks = ["coordinator-0", "load-balancer-0", "mapper-0", "reducer-0", "reducer-1"]
    assert [file.name for file in files] == [f"{task}.events" for task in tasks]
    replay = [sys.executable, "-m", "dpa.replay", *map(str, files)]
    repeated = subprocess.run(replay, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert repeated.returncode == 0, repeated.stdout + repeated.stderr
    assert "coordinator did the same, and is failed" in repeated.stdout
    assert "mapper 0 did the same" in repeated.stdout
    [failed] = re.findall(r"^(reducer \d) then failed:\n.*never_add.reduce failed", repeated.stdout, re.MULTILINE)
    assert f"{failed} did the same, and is streaming\n" in repeated.stdout


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("balance.stratgy=none", "--set balance.stratgy=none: unknown key; did you mean 'strategy'?"),
        ("mapper=executors_for_tests:wrds", ":wrds: the module 'executors_for_tests' has no 'wrds'"),
        ("mapper=", "small.yaml:7: key: the input has no column 'word'; it has value"),
    ],
)
@pytest.mark.parametrize("option", [["--validate"], []], ids=["validate", "run"])
def test_a_mistake_gives_status_2_and_one_clear_line_before_anything_starts(
    job: Path, option: list[str], override: str, message: str
) -> None:
    done = run_here(str(job), "--set", override, *option)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.usefixtures("ray", "spark")
def test_a_result_that_differs_from_the_reference_gives_status_3_and_shows_the_keys_and_the_first_rows(
    job: Path,
) -> None:
    sql = "SELECT 'a' AS word, 4 AS value UNION SELECT 'b', 2 UNION SELECT 'd', 1"
    done = run_here(str(job), "--set", f"reference.sql={json.dumps(sql)}", "--progress", "none")
    assert done.exit_code == 3, done.stderr
    assert "reference: MISMATCH" in done.stdout.splitlines()
    assert "'a'" in done.stdout or '"a"' in done.stdout
    assert "result     first 3 of 3 rows; set output.path to keep them\nword  value\n" in done.stdout
    assert "\na         3\n" in done.stdout


def test_validate_plan_and_schema_run_nothing(job: Path, tmp_path: Path) -> None:
    assert run("small.yaml", "--validate", cwd=tmp_path).stdout == "small.yaml: valid\n"
    plan = run_here(str(job), "--plan", "--svg", str(tmp_path / "plan.svg")).stdout
    assert "mapper  read records, 1 task, 2 rows" in plan
    assert "forecast skew S" in plan
    assert "strategy: adaptive" not in plan and "the whole job, with all defaults: --verbose" in plan
    assert "  strategy: adaptive" in run_here(str(job), "--plan", "--verbose").stdout
    assert (tmp_path / "plan.svg").read_text().startswith("<svg ")
    assert json.loads(run_here("--schema").stdout)["title"] == "JobConfig"
    alone, nowhere = run_here(str(job), "--svg", "plan.svg"), run_here(str(job), "--plan", "--svg", "no/plan.svg")
    assert alone.exit_code == 2 and nowhere.exit_code == 1
    assert "--svg draws the graph that --plan shows: give --plan with it" in alone.stderr and alone.stdout == ""
    assert "no/plan.svg: cannot write the picture of the plan: No such file" in nowhere.stderr
    assert "forecast skew S" in nowhere.stdout


Started: TypeAlias = "Callable[..., subprocess.Popen[str]]"


@pytest.fixture
def started(job: Path, tmp_path: Path) -> Iterator[Started]:
    """Starts a job that would take minutes, in a session of its own, and comes back when it says that a phase begins.
    At the end of the test nothing that it had started may be left, but for partial results."""
    mark = f"DPA_TEST_{uuid.uuid4().hex}"

    def start(phase: str, *overrides: str) -> "subprocess.Popen[str]":
        few = "parallelism.reducers=1"
        slow = "reducer={use: 'executors_for_tests:SlowSum', args: {seconds: 30}}"
        settings = [part for override in ("output.path=out", few, slow, *overrides) for part in ("--set", override)]
        process = subprocess.Popen(
            command("small.yaml", "--progress", "plain", *settings),
            cwd=tmp_path,
            env={**os.environ, mark: "1"},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stderr is not None
        for line in process.stderr:
            if f"small: {phase}" in line:
                break
        return process

    yield start
    assert _marked(mark) == []
    assert {path.name for path in tmp_path.iterdir()} <= {"small.yaml", "so-far"}


has_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes through /proc")


# What a terminal sends to all: three signals, each in another phase of a job, as phases know nothing of signals.


@has_proc
def test_a_hangup_while_actors_start_leaves_no_process_and_no_output(started: Started) -> None:
    process = started("startup")
    os.killpg(process.pid, signal.SIGHUP)
    _require_interrupted(process)


@has_proc
def test_a_quit_while_spark_and_ray_start_side_by_side_leaves_no_process(started: Started) -> None:
    endless = "SELECT string(id) AS value FROM range(0, 1L << 50, 1, 200)"
    process = started("load", f"input={{format: sql, query: '{endless}', views: {{}}}}")
    wait_until(lambda: "gcs_server" in _names(process.pid) or process.poll() is not None, 0.01)
    os.killpg(process.pid, signal.SIGQUIT)
    _require_interrupted(process)


@has_proc
def test_ctrl_c_leaves_the_last_complete_epoch_and_nothing_else(started: Started, tmp_path: Path) -> None:
    process = started(
        "stream",
        f"input.records=[{', '.join(900 * ['{value: k0 k1 k2 k3 k0 k1 k2 k3 k0 k1}'])}]",
        "reducer.args.seconds=0.02",
        "output=[{}, {path: so-far, publish: {mode: table, every: 0.25}}]",
        "limits={batch_records: 5, quantum_records: 5, in_flight_records: 20, split_records: 5}",
    )

    def is_published() -> bool:
        with suppress(TableError):  # no epoch is complete yet
            return results(tmp_path / "so-far").table.num_rows > 0 or process.poll() is not None
        return process.poll() is not None

    wait_until(is_published)
    os.killpg(process.pid, signal.SIGINT)
    _require_interrupted(process)
    found = results(tmp_path / "so-far")
    assert 0 < sum(found.table["value"].to_pylist()) < 9_000


@has_proc
def test_the_death_of_rays_control_store_fails_the_job_soon_and_leaves_no_process(started: Started) -> None:
    process = started("stream")
    store = _names(process.pid)["gcs_server"]
    os.kill(store, signal.SIGKILL)
    output, rest = process.communicate(timeout=120)  # the job would take three minutes
    assert process.returncode == 1, rest
    assert "Ray's gcs_server has ended, killed by signal 9" in output
    assert "Traceback" not in output + rest


def _require_interrupted(process: "subprocess.Popen[str]") -> None:
    rest = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 130, rest
    assert "interrupted" in rest
    assert "Traceback" not in rest


def _names(parent: int) -> dict[str, int]:
    """The processes that a process has started, by their names."""
    found = {}
    for pid in children(parent):
        with suppress(OSError):
            found[Path(f"/proc/{pid}/comm").read_text().strip()] = pid
    return found


def _marked(mark: str) -> list[str]:
    """The processes that were started, directly or not, with `mark` in their environment, and still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
