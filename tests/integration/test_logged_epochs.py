"""The log of epochs of a generation, whose place may not answer. It needs what Ray pickles with, and no cluster."""

import pickle
from pathlib import Path

import pytest

from dpa import epochs
from dpa.protocol.wire.epochs import EndedEpoch
from dpa.runtime import asides
from dpa.runtime.asides import LoggedEpochs
from dpa.sinks.epoch_log import EpochLog
from dpa.sinks.sink import EpochLogOptions

ENDED = EndedEpoch(1, 1.0, 1.0, 0.0, 10, 0, None, 0, 0, None, False, {}, {})


def logged(place: Path, failures: list[OSError], said: list[str], monkeypatch: pytest.MonkeyPatch) -> LoggedEpochs:
    """The log in a place that fails at first."""

    def shaky(options: EpochLogOptions, behind: int) -> EpochLog:
        if failures:
            raise failures.pop(0)
        return EpochLog(options, behind)

    monkeypatch.setattr(asides, "EpochLog", shaky)
    return LoggedEpochs(EpochLogOptions(str(place), "job-1", "name: job"), 0, said.append, pickle.dumps)


def test_a_job_begins_without_its_log_that_begins_once_its_place_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    log = logged(tmp_path / "run", [ConnectionRefusedError("refused"), TimeoutError("late")], said, monkeypatch)
    assert said == ["the log of epochs waits for its place: refused"]
    assert log.note(ENDED)
    log.write()
    assert len(said) == 1, "it is said once"
    log.write()
    log.close()
    assert epochs(tmp_path)["read"].to_pylist() == [10] and len(said) == 1


def test_a_place_that_refuses_the_log_ends_it_and_so_does_the_end_of_a_job_that_has_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    log = logged(tmp_path / "run", [PermissionError("not allowed")], said, monkeypatch)
    assert not log.note(ENDED) and said == [
        "the log of epochs ends here, and the job continues without it: not allowed"
    ]
    log = logged(tmp_path / "run", [TimeoutError("late") for _ in range(9)], said, monkeypatch)
    log.note(ENDED)
    log.close()
    assert said[-1] == "the log of epochs ends here, and the job continues without it: its last epochs are not in it"
