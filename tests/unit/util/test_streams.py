"""Standard output that is closed, full, or read by nobody: what was written stays, and nobody sees a traceback. And
logs: nothing by default, a line a record with the task's name if asked for, and never twice."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import report_samples as samples

from dpa._util.streams import OutputError, chosen_level, log_to_stderr, open_closed, printing, root_left_alone, say
from dpa.result import Result
from dpa.run import _show

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")


@contextmanager
def nobody_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have standard output be a pipe whose reader has gone."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        yield


@contextmanager
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have standard output be a file on a full disk."""
    with Path("/dev/full").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        yield


@pytest.mark.parametrize("as_json", [False, True], ids=["table", "json"])
def test_a_reader_that_has_gone_had_what_it_wanted(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], as_json: bool
) -> None:
    with nobody_reads(monkeypatch):
        assert _show(Result(samples.report()), None, as_json) == 0
    assert capfd.readouterr() == ("", "")


@needs_full
def test_a_table_that_cannot_be_printed_is_one_line_of_warning_and_a_report_in_json_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with full(monkeypatch):
        assert _show(Result(samples.report()), None, as_json=False) == 0
    warning = "warning: cannot print the table on standard output: No space left on device\n"
    assert capfd.readouterr() == ("", warning)
    message = "cannot print the report on standard output: No space left on device"
    with full(monkeypatch), pytest.raises(OutputError, match=message):
        _show(Result(samples.report()), None, as_json=True)


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="cannot write the report"):
        _show(Result(samples.report()), tmp_path / "file", as_json=False)
    assert "reference: match\n" in capsys.readouterr().out


def test_what_is_closed_is_opened_on_the_null_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    open_closed()
    with sys.stdin, sys.stdout, sys.stderr:
        with printing("anything"):
            print("anything")
        say("anything")
        assert sys.stdin.read() == ""
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    say("anything")  # nobody can hear it


@pytest.mark.parametrize(
    ("line", "status", "errors"),
    [
        ("--schema >&-", 0, ""),
        ("--schema >&- 2>&-", 0, ""),
        ("--schema | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}", 0, ""),
        ("x.yaml --json >&-", 2, "error: --json: standard output is closed, so there is nowhere to print the report\n"),
        pytest.param(
            "--schema >/dev/full",
            1,
            "error: cannot print the schema on standard output: No space left on device\n",
            marks=needs_full,
        ),
    ],
)
def test_the_command_line_ends_without_a_traceback(line: str, status: int, errors: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m dpa.run {line}', sys.executable], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (status, errors)


LOGGER = logging.getLogger("dpa.driver.anything")


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    root = logging.getLogger("dpa")
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_nothing_is_written_by_default_not_even_a_warning() -> None:
    program = "import dpa, logging; logging.getLogger('dpa.driver').warning('hear me')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_record_is_a_line_with_its_level_the_task_and_the_logger(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", "reducer 3")
    LOGGER.info("round %d", 7)
    LOGGER.debug("too quiet")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("INFO    reducer 3 dpa.driver.anything: round 7")


def test_a_second_call_replaces_the_first_and_other_loggers_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("debug", "driver")
    log_to_stderr("WARNING", "mapper 0")
    LOGGER.info("unwanted")
    LOGGER.warning("wanted")
    logging.getLogger("elsewhere").info("not ours")
    [line] = capsys.readouterr().err.splitlines()
    assert "mapper 0" in line and "wanted" in line


@pytest.mark.parametrize("name", ["debug", "info", "warning", "error"])
def test_the_level_is_known_to_those_who_pass_it_on_also_where_an_application_configures_the_loggers_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("dpa").setLevel(logging.NOTSET)
    assert chosen_level() is None
    logging.getLogger("dpa").setLevel(logging.INFO)
    assert chosen_level() == logging.INFO
    log_to_stderr(name, "driver")
    level = chosen_level()
    assert level == getattr(logging, name.upper())
    log_to_stderr(level, "mapper 0")
    LOGGER.log(level, "heard")
    assert "mapper 0" in capsys.readouterr().err


def test_a_library_that_logs_by_the_way_gives_the_root_logger_no_handler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    with root_left_alone():
        logging.info("as py4j does")
        logging.getLogger("dpa.driver").warning("said elsewhere")
        logging.getLogger("somebody").warning("somebody's warning")
    assert root.handlers == []
    assert capsys.readouterr().err == "somebody's warning\n"
