"""Snapshots as files of a checkpoint store."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from builders import table_giving

from dpa.checkpoints import CheckpointStore, FileRef, TaskParts
from dpa.checkpoints._chain import Chain
from dpa.errors import CheckpointDamagedError, CheckpointError
from dpa.execution.block import Block
from dpa.execution.publishing import EmittedRows
from dpa.execution.receivers import receiver_of
from dpa.execution.reduce_task import ReduceStage, ReduceTask
from dpa.execution.snapshots import TaskSnapshot
from dpa.execution.states import ObjectPart
from dpa.executors import Reducer
from dpa.protocol.checkpointing import Archive, Written, read_snapshots
from dpa.protocol.wire.addresses import Address
from dpa.routing.hashing import hash_column


class Local:
    """A state of a class that only this module has."""

    def __init__(self, number: int) -> None:
        self.number = number


class Numbers(Reducer[Local, int]):
    """Keeps the last number."""

    def zero(self) -> Local:
        return Local(-1)

    def reduce(self, state: Local, value: int) -> Local:
        return Local(value)


def task_of(keys: int, column: pa.Array | None = None) -> ReduceTask:
    """A task with this many keys, each with its number."""
    column, counts = pa.array(range(keys), pa.int64()) if column is None else column, np.ones(keys, dtype=np.int64)
    task = ReduceTask(ReduceStage(receiver_of(Numbers()), "key"), 1)
    states = [Local(number) for number in range(keys)]
    task.install([ObjectPart(column, states, counts, counts, hash_column(column, 0))])
    task.add_rows([EmittedRows(pa.record_batch({"row": [1, 2]}))])
    return task


def put(task: ReduceTask, states: dict[int, int]) -> None:
    """A record for each of these keys."""
    keys, values = (
        pa.array(states.keys(), pa.int64()),
        pa.record_batch({"value": pa.array(states.values(), pa.int64())}),
    )
    task.process(Block.of(keys, values, 0))


def archive_of(chain: Chain) -> Archive:
    return Archive(chain.data, Address("sums", 1), pickle.dumps)


def commit(chain: Chain, written: Written) -> None:
    assert not isinstance(written, str)
    chain.commit(
        epoch=1,
        coordinator=chain.data.write(chain.next, "coordinator", b""),
        tasks=[TaskParts("sums", 1, written)],
        records=1,
        seconds=0.1,
    )


def files_of(written: Written) -> list[FileRef]:
    assert not isinstance(written, str)
    return [part.file for part in written]


def states_in(slices: Iterable[TaskSnapshot]) -> dict[int, int]:
    parts = [found.part for found in slices if found.part is not None]
    pairs = [(key, state) for part in parts for key, state in zip(part.keys.to_pylist(), part.states, strict=True)]
    assert len(dict(pairs)) == len(pairs)
    return {key: state.number for key, state in pairs}


@pytest.mark.parametrize("keys", [1, 50_000])
def test_a_task_begins_with_what_was_written(tmp_path: Path, keys: int) -> None:
    chain = CheckpointStore.open(str(tmp_path)).create("job")
    written = archive_of(chain).start_saving(chain.next, task_of(keys))()
    assert not isinstance(written, str) and [part.keys for part in written] == [keys]
    slices = [*read_snapshots(chain.data, [files_of(written)])]
    assert sum(rows.num_rows for part in slices for rows in part.rows) == 2
    assert states_in(slices) == {number: number for number in range(keys)}


def test_only_what_has_changed_is_written_until_that_is_much(tmp_path: Path) -> None:
    chain, task = CheckpointStore.open(str(tmp_path)).create("job"), task_of(1000)
    archive, expected, made = archive_of(chain), {number: number for number in range(1000)}, []
    for turn in range(12):
        written = archive.start_saving(chain.next, task)()
        assert not isinstance(written, str)
        commit(chain, written)
        made.append([part.keys for part in written])
        slices = [*read_snapshots(chain.data, [files_of(written)])]
        assert states_in(slices) == expected
        assert sum(rows.num_rows for part in slices for rows in part.rows) == 2
        changed = {(turn * 50 + number) % 900: turn for number in range(100)}
        put(task, changed)
        expected |= changed
    assert made[:4] == [[1000], [1000, 100], [1000, 100, 100], [1000, 100, 100, 100]]
    assert [1000] in made[4:8]


def test_where_most_has_changed_all_is_written(tmp_path: Path) -> None:
    chain, task = CheckpointStore.open(str(tmp_path)).create("job"), task_of(1000)
    archive, lengths = archive_of(chain), []
    for slot, changed in enumerate((0, 500, 501, 1), start=1):
        put(task, dict.fromkeys(range(changed), 0))
        lengths.append(len(files_of(archive.start_saving(slot, task)())))
    assert lengths == [1, 2, 1, 2]


def test_what_a_task_gave_away_is_not_its_own_any_more_and_what_came_back_is(tmp_path: Path) -> None:
    chain, task = CheckpointStore.open(str(tmp_path)).create("job"), task_of(100)
    archive, table = archive_of(chain), table_giving({number: int(number >= 5) for number in range(100)})
    assert len(files_of(archive.start_saving(1, task)())) == 1
    [gone] = task.extract(table).values()
    put(task, {3: 33})
    written = archive.start_saving(2, task)()
    assert len(files_of(written)) == 2
    assert states_in(read_snapshots(chain.data, [files_of(written)])) == {3: 33, **{n: n for n in range(5, 100)}}
    task.install([gone.take(np.array([0], dtype=np.intp))])
    written = archive.start_saving(3, task)()
    assert len(files_of(written)) == 3
    [back] = gone.keys[:1].to_pylist()
    expected = {3: 33, back: back, **{number: number for number in range(5, 100)}}
    assert states_in(read_snapshots(chain.data, [files_of(written)])) == expected


@pytest.mark.parametrize("failed", ["not written", "not in the chain"])
def test_behind_a_checkpoint_that_failed_all_is_written(tmp_path: Path, failed: str) -> None:
    chain, task = CheckpointStore.open(str(tmp_path)).create("job"), task_of(100)
    archive, files = archive_of(chain), next(tmp_path.glob("job-*/files"))
    commit(chain, archive.start_saving(chain.next, task)())
    put(task, {1: 11})
    if failed == "not written":
        files.rename(tmp_path / "elsewhere")
        files.write_text("in the way")
    written = archive.start_saving(chain.next, task)()
    assert isinstance(written, str) == (failed == "not written")
    if failed == "not written":
        files.unlink()
        (tmp_path / "elsewhere").rename(files)
    put(task, {2: 22})
    written = archive.start_saving(chain.next, task)()
    assert len(files_of(written)) == 1
    commit(chain, written)
    put(task, {3: 33})
    written = archive.start_saving(chain.next, task)()
    assert len(files_of(written)) == 2
    commit(chain, written)
    found = states_in(read_snapshots(chain.data, [files_of(written)]))
    assert found == {number: number for number in range(100)} | {1: 11, 2: 22, 3: 33}


def test_an_increment_behind_what_no_checkpoint_has_is_refused(tmp_path: Path) -> None:
    chain, task = CheckpointStore.open(str(tmp_path)).create("job"), task_of(100)
    archive, other = archive_of(chain), archive_of(chain)
    commit(chain, other.start_saving(chain.next, task)())
    commit(chain, other.start_saving(chain.next, task)())
    archive.start_saving(chain.next - 1, task)()  # that of an attempt that had seemed to fail is in the chain
    with pytest.raises(CheckpointError, match="is no file of slot"):
        commit(chain, archive.start_saving(chain.next, task)())
    commit(chain, archive.start_saving(chain.next, task)())


def test_every_key_is_written_once(tmp_path: Path) -> None:
    keys = pa.array([f"key {number:050}" for number in range(100_000)])
    chain = CheckpointStore.open(str(tmp_path)).create("job")
    [file] = files_of(archive_of(chain).start_saving(chain.next, task_of(len(keys), keys))())
    assert file.size < 1.9 * keys.nbytes


def test_nothing_is_made_of_a_file_that_another_has_changed(tmp_path: Path) -> None:
    chain = CheckpointStore.open(str(tmp_path)).create("job")
    [written] = files_of(archive_of(chain).start_saving(chain.next, task_of(1))())
    [file] = (path for path in tmp_path.rglob("*") if path.name == Path(written.path).name)
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)
    with pytest.raises(CheckpointDamagedError, match="checksum"):
        [*read_snapshots(chain.data, [[written]])]
