"""`python -m experiments.all`: measure all results again, one after another.

A result is left out if the code that it measures has not changed since, so a run that was interrupted continues when it
is started again, also after a commit of its results. An experiment that fails does not keep the others from running.
Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

from experiments.all.plan import Measurement, measurements, selected
from experiments.all.table import listed, summed_up
from experiments.harness import progress
from experiments.report.ages import ROOT, History

LOCK = Path(gettempdir()) / "dpa-experiments.lock"


def main(
    arguments: Sequence[str] | None = None,
    history: History | None = None,
    run: Callable[[Measurement], str] | None = None,
) -> int:
    """The command; returns its exit status: 0 if all that was to be measured is, 1 if some failed, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    history = history or History()
    asked = selected(measurements(history), options.names, options.max_changed, again=options.again)
    if options.list:
        print(listed(asked))
        return 0
    if history.has_changes:
        raise SystemExit(
            "the working tree has changes, and a result belongs to a commit; commit them, or put them away"
        )
    with one_at_a_time(LOCK):
        return measure_all(asked, run or run_command)


def measure_all(asked: Sequence[Measurement], run: Callable[[Measurement], str]) -> int:
    """Measure in turn, and print how each ended; returns the exit status of the command.

    Args:
        asked: all measurements.
        run: measures; returns why it failed, or nothing.
    """
    ends: dict[str, str] = {}
    chosen = [each for each in asked if each.is_chosen]
    left, status = sum(each.seconds for each in chosen), 0
    for number, each in enumerate(chosen, 1):
        progress(f"[{number}/{len(chosen)}] {each.name}: {each.command} ({left / 60:.0f} min left, by earlier times)")
        began = time.monotonic()
        try:
            failed = run(each)
        except KeyboardInterrupt:
            ends[each.name], status = "interrupted", 130
            break
        ends[each.name] = f"**failed**: {failed}" if failed else f"measured in {time.monotonic() - began:.0f} s"
        status = 1 if failed else status
        left -= each.seconds
    print(summed_up(asked, ends))
    return status


def run_command(measurement: Measurement) -> str:
    """Run the command of a measurement; returns why it failed, or nothing.

    After a Ctrl-C, which the terminal sends to the command too, its end is waited for.
    """
    with subprocess.Popen([sys.executable, *shlex.split(measurement.command)[1:]], cwd=ROOT) as process:
        try:
            _await_end(process)
        except KeyboardInterrupt:
            _await_end(process)
            raise
        status = process.wait()
    return f"exit status {status}" if status else ""


def _await_end(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has ended; `Popen.wait` gives it a quarter of a second after a Ctrl-C."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """A block in which no other process is that locks the same file.

    Raises:
        SystemExit: one is in it.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another `python -m experiments.all` runs on this machine; wait for its end") from None
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.all", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="results to measure; all by default")
    parser.add_argument("--list", action="store_true", help="show the age of each result and what would run")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--max-changed",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="leave out results of which at most this share of the measured code has changed, such as 0.1",
    )
    which.add_argument("--again", action="store_true", help="leave out nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
