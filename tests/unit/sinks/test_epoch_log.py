"""The log by epoch: which rows of it count, and who may read what."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dpa import epochs
from dpa.errors import TableError
from dpa.sinks.epoch_log import EpochLog, config_of, log_at
from dpa.sinks.sink import EpochLogOptions


def options(path: Path) -> EpochLogOptions:
    return EpochLogOptions(str(path), "job-1", "name: job")


def row(epoch: int, read: int) -> dict[str, Any]:
    return {"epoch": epoch, "ended": 1, "read": read, "splits": b"split"}


def test_epochs_that_were_made_again_count_as_the_last_that_made_them(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="has no log of epochs: name the directory of `epoch_log`"):
        epochs(tmp_path)
    dead = EpochLog(options(tmp_path / "run"), 0)
    dead.add([row(1, 10), row(2, 20)])
    dead.add([row(3, 30)])
    dead.close()  # as its lock ends with its process
    log = EpochLog(options(tmp_path / "run"), 1)
    assert epochs(tmp_path)["read"].to_pylist() == [10], "what the dead generation made behind is not there"
    log.add([row(2, 21)])
    found = epochs(tmp_path, splits=True)
    assert (found["epoch"].to_pylist(), found["read"].to_pylist()) == ([1, 2], [10, 21])
    assert found["splits"].to_pylist() == [b"split"] * 2 and "splits" not in epochs(tmp_path).column_names
    with suppress(TableError):
        dead.add([row(3, 31)])
    assert epochs(tmp_path)["epoch"].to_pylist() == [1, 2], "who is dead adds nothing any more"
    assert config_of(tmp_path) == "name: job" and log_at(tmp_path) == str(tmp_path / "run")


def test_a_long_log_is_few_files(tmp_path: Path) -> None:
    log = EpochLog(options(tmp_path / "run"), 0)
    for epoch in range(1, 101):
        log.add([row(epoch, epoch)])
    assert epochs(tmp_path)["epoch"].to_pylist() == [*range(1, 101)]
    assert len([*(tmp_path / "run").glob("*.parquet")]) < 60


def test_splits_that_another_user_could_have_written_are_not_read(tmp_path: Path) -> None:
    EpochLog(options(tmp_path / "run"), 0).add([row(1, 1)])
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    (tmp_path / "run").chmod(0o777)
    with pytest.raises(TableError, match=r"is not trusted: .*; its splits are unpickled if only their owner can write"):
        epochs(tmp_path, splits=True)
    assert epochs(tmp_path).num_rows == 1
