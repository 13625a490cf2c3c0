"""Snapshots as files of a checkpoint store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpa.checkpoints import CheckpointStore
from dpa.errors import CheckpointDamagedError
from dpa.execution.reduce_task import TaskSnapshot
from dpa.execution.states import StatePart
from dpa.protocol.wire.addresses import Address
from dpa.runtime._archive import Archive, NotWritten, WrittenSnapshot, read_snapshots


class Local:
    """A state of a class that only this module has."""

    def __init__(self, number: int) -> None:
        self.number = number


def snapshot_of(keys: int) -> TaskSnapshot:
    counts = np.arange(keys, dtype=np.int64)
    states = [Local(number) for number in range(keys)]
    part = StatePart(pa.array(range(keys), pa.int64()), states, counts, counts, counts.astype(np.uint32))
    return TaskSnapshot(part, (pa.record_batch({"row": [1, 2]}),), {})


@pytest.mark.parametrize("keys", [1, 50_000])
def test_a_task_begins_with_what_was_written(tmp_path: Path, keys: int) -> None:
    chain = CheckpointStore.open(str(tmp_path)).create("job")
    written = Archive(chain.data, Address("sums", 1)).write(chain.next, snapshot_of(keys))
    assert isinstance(written, WrittenSnapshot) and written.keys == keys
    slices = [*read_snapshots(chain.data, [written.file])]
    assert sum(rows.num_rows for part in slices for rows in part.rows) == 2
    states = [state.number for part in slices if part.part is not None for state in part.part.states]
    assert states == [*range(keys)]


def test_every_key_is_written_once(tmp_path: Path) -> None:
    counts, keys = np.zeros(100_000, dtype=np.int64), pa.array([f"key {number:050}" for number in range(100_000)])
    part = StatePart(keys, [0] * len(keys), counts, counts, counts.astype(np.uint32))
    chain = CheckpointStore.open(str(tmp_path)).create("job")
    written = Archive(chain.data, Address("sums", 1)).write(chain.next, TaskSnapshot(part, (), {}))
    assert isinstance(written, WrittenSnapshot) and written.file.size < 1.6 * keys.nbytes


def test_what_cannot_be_written_fails_the_checkpoint_and_not_the_task(tmp_path: Path) -> None:
    chain = CheckpointStore.open(str(tmp_path)).create("job")
    next(tmp_path.glob("job-*/files")).rename(tmp_path / "elsewhere")
    (next(tmp_path.glob("job-*")) / "files").write_text("in the way")
    written = Archive(chain.data, Address("sums", 1)).write(chain.next, snapshot_of(1))
    assert isinstance(written, NotWritten) and "files" in written.reason


def test_nothing_is_made_of_a_file_that_another_has_changed(tmp_path: Path) -> None:
    chain = CheckpointStore.open(str(tmp_path)).create("job")
    written = Archive(chain.data, Address("sums", 1)).write(chain.next, snapshot_of(1))
    assert isinstance(written, WrittenSnapshot)
    [file] = (path for path in tmp_path.rglob("*") if path.name == Path(written.file.path).name)
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)
    with pytest.raises(CheckpointDamagedError, match="checksum"):
        [*read_snapshots(chain.data, [written.file])]
