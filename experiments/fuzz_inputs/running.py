"""Cases in child processes, and what comes of each."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dpa.errors import DpaError, ProtocolError

SECONDS = 120
"""A case that takes longer is taken for one that does not end."""


@dataclass
class Found:
    """What came of some cases.

    Attributes:
        cases: how many there were.
        outcomes: how often a result, an error by its name, or an offence came.
        offenders: the cases that are neither, in words.
    """

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    offenders: list[str] = field(default_factory=list)


def fuzzed(seed: int, cases: int, say: Callable[[str], Any] = lambda line: None) -> Found:
    """Run the cases from 0 on; `say` is called with each offender."""
    found, first = Found(), 0
    while first < cases:
        number = first
        which = f"--seed {seed} --child {first} --cases {cases}".split()
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments.fuzz_inputs", *which],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        for told in _lines(process):
            if "begins" in told:
                number = told["begins"]
                continue
            first = number + 1
            _note(found, number, told, say)
        if process.wait():
            told = {"outcome": "offence", "what": f"its process ended with {process.returncode}", "words": "alone?"}
            _note(found, number, told, say)
            first = number + 1
    return found


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What a child tells; it is killed when it tells nothing for long."""
    assert process.stdout is not None
    while True:
        watch = threading.Timer(SECONDS, process.kill)
        watch.start()
        line = process.stdout.readline()
        watch.cancel()
        if not line:
            return
        if line.startswith("{"):
            yield json.loads(line)


def _note(found: Found, number: int, told: dict[str, Any], say: Callable[[str], Any]) -> None:
    found.cases += 1
    found.outcomes[told["outcome"]] += 1
    if told["outcome"] == "offence":
        found.offenders.append(f"case {number}: {told['what']}; {told['words']}")
        say(found.offenders[-1])


def child(seed: int, first: int, cases: int) -> None:
    """Run the cases from `first` up to `cases` in this process, and tell what comes of each."""
    quiet()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is none of it
    for number in range(first, cases):
        print(json.dumps({"begins": number}), file=out)
        print(json.dumps(outcome(seed, number)), file=out)


def quiet() -> None:
    """Neither warnings nor logs: most cases have some."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def outcome(seed: int, number: int) -> dict[str, str]:
    """What comes of a case: its result, an error that is dpa's own, or an offence."""
    from experiments.fuzz_inputs.cases import Case

    with TemporaryDirectory() as place:
        case = Case.of(seed, number, Path(place))
        try:
            case.run()
        except ProtocolError as error:
            return _offence(error, case.words)
        except DpaError as error:
            return {"outcome": type(error).__name__, "message": str(error).splitlines()[0]}
        except BaseException as error:
            return _offence(error, case.words)
    return {"outcome": "result"}


def _offence(error: BaseException, words: list[str]) -> dict[str, str]:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/dpa/" in frame.filename]
    at = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[:-4:-1])
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return {"outcome": "offence", "what": f"{what} at {at}", "words": " | ".join(words)}


def trace_of(seed: int, number: int) -> str:
    """What one case raises, in full."""
    from experiments.fuzz_inputs.cases import Case

    quiet()
    with TemporaryDirectory() as place:
        case = Case.of(seed, number, Path(place))
        try:
            case.run()
        except BaseException:
            return f"{' | '.join(case.words)}\n{traceback.format_exc()}"
    return f"{' | '.join(case.words)}\na result"
