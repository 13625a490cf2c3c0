"""Standard output that is closed, full, or read by nobody: what was written stays, and nobody sees a traceback."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import report_samples as samples

from dpa._util.streams import OutputError, open_closed, printing, say
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
def test_a_table_that_cannot_be_printed_is_one_line_of_warning(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with full(monkeypatch):
        assert _show(Result(samples.report()), None, as_json=False) == 0
    warning = "warning: cannot print the table on standard output: No space left on device\n"
    assert capfd.readouterr() == ("", warning)


@needs_full
def test_a_report_in_json_that_cannot_be_printed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "cannot print the report on standard output: No space left on device"
    with full(monkeypatch), pytest.raises(OutputError, match=message):
        _show(Result(samples.report()), None, as_json=True)


def test_a_report_that_cannot_be_written_is_an_error_after_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_what_nobody_can_be_told_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    say("anything")


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
