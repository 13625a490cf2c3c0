"""A process that is lent to one borrower at a time. Here it is `cat`, which ends with its standard input as a JVM of
Spark's does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpa._util.lending import Lender, Loan, borrowed, lent

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the socket is found by /proc")


@pytest.fixture
def lender(tmp_path: Path) -> Iterator[Lender]:
    made = Lender(tmp_path)
    with made.lending():
        yield made
    assert lent(tmp_path) is None
    assert [entry.name for entry in tmp_path.iterdir()] == ["lender"]


def used(place: Path, key: str = "key", note: str | None = "left") -> tuple[int, dict[str, str] | None]:
    """Borrow the process, or start it, and give it back with a note, or not. Returns its number and the note found."""
    with borrowed(place, key) as loan:
        assert loan is not None
        if loan.note is None:
            loan.start(loan.directory / "log", ["cat"], env={"PATH": os.environ["PATH"]})
        assert loan.poll() is None and lent(place) == loan.pid
        if note is not None:
            loan.give_back({"said": note})
        return loan.pid, loan.note


def wait_for_end(pid: int) -> None:
    while Path(f"/proc/{pid}").exists():
        os.sched_yield()


@pytest.mark.usefixtures("lender")
def test_the_next_borrower_with_the_key_has_the_process_and_what_the_one_before_noted(tmp_path: Path) -> None:
    first, none = used(tmp_path, note="one")
    assert none is None
    assert used(tmp_path, note="two") == (first, {"said": "one"})
    assert used(tmp_path) == (first, {"said": "two"})


@pytest.mark.usefixtures("lender")
def test_another_key_replaces_the_process(tmp_path: Path) -> None:
    first, _ = used(tmp_path)
    second, note = used(tmp_path, "another")
    assert second != first and note is None
    wait_for_end(first)


@pytest.mark.usefixtures("lender")
def test_a_process_that_is_not_given_back_ends(tmp_path: Path) -> None:
    first, _ = used(tmp_path)
    assert used(tmp_path, note=None)[0] == first
    wait_for_end(first)


@pytest.mark.usefixtures("lender")
def test_a_process_that_has_died_is_replaced(tmp_path: Path) -> None:
    first, _ = used(tmp_path)
    os.kill(first, signal.SIGKILL)
    wait_for_end(first)
    second, note = used(tmp_path)
    assert second != first and note is None


@pytest.mark.usefixtures("lender")
def test_what_is_lent_is_lent_to_nobody_else(tmp_path: Path) -> None:
    with borrowed(tmp_path, "key") as one, borrowed(tmp_path, "key") as other:
        assert isinstance(one, Loan) and other is None


def test_a_process_that_nobody_borrows_ends_after_some_time(lender: Lender, tmp_path: Path) -> None:
    first, _ = used(tmp_path)
    lender.end_unused(600.0)
    assert lent(tmp_path) == first
    lender.end_unused(0.0)
    assert lent(tmp_path) is None
    wait_for_end(first)


def test_without_a_lender_nothing_is_borrowed(tmp_path: Path) -> None:
    with borrowed(tmp_path, "key") as loan:
        assert loan is None
