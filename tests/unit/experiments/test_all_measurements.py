"""One command measures all that is not fresh, one after another, and can be interrupted and resumed."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.all.__main__ import main, measure_all, one_at_a_time, run_command
from experiments.all.plan import Measurement, selected
from experiments.all.table import listed
from experiments.report.ages import Age, History
from experiments.report.findings import load_findings

AGE = Age("2026-01-31", commits=7, changed=50, lines=1_000)
FRESH = Measurement("fresh", "python -m experiments.fresh", 60.0, replace(AGE, changed=0))
OLD = Measurement("old", "python -m experiments.old", 120.0, AGE)
DIRTY = replace(FRESH, name="dirty", is_dirty=True)
LOST = replace(OLD, name="lost", age=None)
ALL = (FRESH, OLD, DIRTY, LOST)


def chosen(names: Sequence[str] = (), max_changed: float = 0.0, *, again: bool = False) -> list[str]:
    return [each.name for each in selected(ALL, names, max_changed, again=again) if each.is_chosen]


def test_a_result_whose_code_is_the_same_or_fresh_enough_is_left_out() -> None:
    assert chosen() == ["old", "dirty", "lost"]
    assert chosen(["fresh", "old"]) == ["old"]
    assert chosen(["fresh", "old"], again=True) == ["fresh", "old"]
    assert chosen(max_changed=0.05) == ["dirty", "lost"]
    assert chosen(max_changed=0.04) == ["old", "dirty", "lost"]
    with pytest.raises(SystemExit, match="there is no result nw; there are fresh, old, dirty, lost"):
        selected(ALL, ["nw"])


def test_the_list_has_the_age_of_each_result_and_what_would_run() -> None:
    lines = listed(selected(ALL, ["fresh", "old", "lost"])).splitlines()
    assert "| old | 2026-01-31 | 7 | 50 | 5% | 120 s | **yes** |" in lines
    assert "| fresh | 2026-01-31 | 7 | 0 | 0% | 60 s | its code is the same |" in lines
    assert "| lost | unknown |  |  |  | 120 s | **yes** |" in lines
    assert lines[-1] == "2 to be measured, 4 min by earlier times"


def test_a_failure_loses_no_others_and_an_interrupt_says_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    begun: list[str] = []

    def run(each: Measurement) -> str:
        begun.append(each.name)
        return "exit status 3" if each is OLD else ""

    assert measure_all(ALL, run) == 1
    said = capsys.readouterr()
    assert begun == ["fresh", "old", "dirty", "lost"]
    assert "| old | **failed**: exit status 3 | python -m experiments.old |" in said.out
    assert "| lost | measured in 0 s |" in said.out
    assert "[2/4] old: python -m experiments.old (5 min left, by earlier times)" in said.err
    assert measure_all(ALL, lambda each: "") == 0

    def interrupted(each: Measurement) -> str:
        if each is OLD:
            raise KeyboardInterrupt
        return ""

    capsys.readouterr()
    assert measure_all(ALL, interrupted) == 130
    table = capsys.readouterr().out
    assert "| fresh | measured" in table and "| old | interrupted |" in table and "| dirty | not begun |" in table


def test_an_interrupted_command_is_waited_for_and_one_that_fails_says_its_status(tmp_path: Path) -> None:
    program = tmp_path / "interrupts.py"
    program.write_text(
        f"import os, pathlib\nos.kill({os.getpid()}, {int(signal.SIGINT)})\n"
        "pathlib.Path(__file__).with_name('ended').touch()\n"
    )
    with pytest.raises(KeyboardInterrupt):
        run_command(replace(OLD, command=f"python {program}"))
    assert (tmp_path / "ended").exists()
    assert run_command(replace(OLD, command="python -c 'raise SystemExit(3)'")) == "exit status 3"
    assert run_command(replace(OLD, command="python -c pass")) == ""


def test_two_never_run_at_a_time(tmp_path: Path) -> None:
    with one_at_a_time(tmp_path / "lock"), pytest.raises(SystemExit, match=r"another .* runs on this machine"):
        one_at_a_time(tmp_path / "lock").__enter__()
    with one_at_a_time(tmp_path / "lock"):
        pass


class Fixed(History):
    """A history in which no code has changed since any commit."""

    def __init__(self, has_changes: bool) -> None:
        self._has_changes = has_changes

    @property
    def has_changes(self) -> bool:
        return self._has_changes

    def age(self, commit: str, paths: object) -> Age:
        return replace(AGE, changed=0)


def test_all_results_are_known_and_nothing_is_measured_of_what_no_commit_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.modules[main.__module__], "LOCK", tmp_path / "lock")
    with pytest.raises(SystemExit, match="the working tree has changes"):
        main([], Fixed(has_changes=True))
    begun: list[Measurement] = []
    assert main([], Fixed(has_changes=False), lambda each: begun.append(each) or "") == 0
    assert not begun, "nothing is left to measure"
    table = capsys.readouterr().out
    assert all(f"| {finding.result} | its code is the same |" in table for finding in load_findings().all)
