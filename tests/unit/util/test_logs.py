"""Logs: nothing by default, a line a record with the task's name if asked for, and never twice."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dpa._util.streams import chosen_level, log_to_stderr, root_left_alone

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


def test_a_second_call_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", "driver")
    log_to_stderr("WARNING", "mapper 0")
    LOGGER.info("unwanted")
    LOGGER.warning("wanted")
    [line] = capsys.readouterr().err.splitlines()
    assert "mapper 0" in line and "wanted" in line


def test_other_loggers_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("debug", "driver")
    logging.getLogger("elsewhere").info("not ours")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["debug", "info", "warning", "error"])
def test_the_level_is_known_to_those_who_pass_it_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(name, "driver")
    level = chosen_level()
    assert level == getattr(logging, name.upper())
    log_to_stderr(level, "mapper 0")
    LOGGER.log(level, "heard")
    assert "mapper 0" in capsys.readouterr().err


def test_so_is_that_of_an_application_which_configures_the_loggers_itself() -> None:
    logging.getLogger("dpa").setLevel(logging.NOTSET)
    assert chosen_level() is None
    logging.getLogger("dpa").setLevel(logging.INFO)
    assert chosen_level() == logging.INFO


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
