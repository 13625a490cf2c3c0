"""The store of checkpoints on a local file system: what is written, what is refused, what is collected."""

from __future__ import annotations

import errno
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest

from dpa.checkpoints import Chain, CheckpointStore, Collected, FileRef, Manifest, Part, TaskParts
from dpa.errors import CheckpointDamagedError, CheckpointError, ClaimLostError


def commit(chain: Chain, epoch: int, *, reuse: tuple[Part, ...] = (), new: int = 1) -> Manifest:
    """A checkpoint of one task, with some parts of the one before."""
    number = chain.next
    fresh = [
        Part(chain.data.write(number, "count-0", f"{epoch}/{part}".encode()), (part, part), 1) for part in range(new)
    ]
    coordinator = chain.data.write(number, "coordinator", b"tables")
    tasks = [TaskParts("count", 0, (*reuse, *fresh))]
    return chain.commit(epoch=epoch, coordinator=coordinator, tasks=tasks, records=10 * epoch, seconds=0.5)


def files_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return CheckpointStore.open(str(tmp_path / "store")).create("word count")


def test_a_new_job_has_a_directory_where_another_process_finds_what_was_committed(tmp_path: Path, chain: Chain) -> None:
    store = CheckpointStore.open(f"file://{tmp_path}/store")
    assert store.jobs() == [chain.job]
    assert chain.job.startswith("word_count-")
    assert (chain.newest(), chain.next, chain.newest_slot().generation) == (None, 1, 0)
    assert store.create("word count").job != chain.job
    first = commit(chain, 1)
    second = commit(chain, 2, reuse=first.tasks[0].parts)
    store = pickle.loads(pickle.dumps(CheckpointStore.open(str(tmp_path / "store"))))
    found = store.chain(chain.job).newest()
    assert found == second
    assert [store.chain(chain.job).data.read(part.file) for part in found.tasks[0].parts] == [b"1/0", b"2/0"]
    assert (second.number, second.records, second.written) == (2, 20, 3 + 6)


def test_pieces_of_any_kind_are_written_one_after_the_other(chain: Chain) -> None:
    data = pickle.loads(pickle.dumps(chain.data))
    file = data.write(1, "a/b", [b"12", memoryview(b"3456")[::1], bytearray(b""), pickle.PickleBuffer(b"7")])
    assert (data.read(file), file.size) == (b"1234567", 7)
    assert "a_b" in file.path


def test_only_the_owner_can_read_anything(tmp_path: Path, chain: Chain) -> None:
    commit(chain, 1)
    entries = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    assert {(path.is_dir(), path.stat().st_mode & 0o777) for path in entries} == {(True, 0o700), (False, 0o600)}


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_can_write_is_not_read(tmp_path: Path, chain: Chain, mode: int) -> None:
    manifest = commit(chain, 1)
    for path, read in [
        (manifest.coordinator.path, lambda: chain.data.read(manifest.coordinator)),
        ("chain/0000000001.json", chain.newest),
    ]:
        place = tmp_path / "store" / chain.job / path
        place.chmod(mode)
        with pytest.raises(CheckpointError, match="is not trusted: it belongs to user") as refused:
            read()
        assert refused.type is CheckpointError, "no attempt at a generation is spent on it"


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path, chain: Chain) -> None:
    file = chain.data.write(1, "x", b"abc")
    place = tmp_path / "store" / chain.job / file.path
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="symbolic links"):
        chain.data.read(file)


def test_a_file_that_is_missing_short_or_changed_is_named(tmp_path: Path, chain: Chain) -> None:
    file = chain.data.write(1, "x", b"abcdef")
    place = tmp_path / "store" / chain.job / file.path
    for content, why in [(b"abcde", "5 bytes, not 6"), (b"abcdeF", "checksum")]:
        place.write_bytes(content)
        with pytest.raises(CheckpointDamagedError, match=f"{file.path} is damaged: .*{why}"):
            chain.data.read(file)
    place.unlink()
    with pytest.raises(CheckpointDamagedError, match=f"{file.path} is missing"):
        chain.data.read(file)


def test_who_claims_has_the_newest_checkpoint_and_fences_who_was_there(tmp_path: Path, chain: Chain) -> None:
    first = commit(chain, 1)
    heir = CheckpointStore.open(str(tmp_path / "store")).chain(chain.job)
    assert heir.claim() == first
    assert (heir.newest_slot().generation, heir.next) == (1, 3)
    for _ in range(2):
        with pytest.raises(ClaimLostError):
            commit(chain, 2)
    assert heir.newest() == first
    second = commit(heir, 2, reuse=first.tasks[0].parts)
    assert (second.number, second.generation) == (3, 1)


def test_who_does_not_claim_cannot_commit_and_of_two_that_claim_one_loses(tmp_path: Path, chain: Chain) -> None:
    store = CheckpointStore.open(str(tmp_path / "store"))
    one, other = store.chain(chain.job), store.chain(chain.job)
    with pytest.raises(ClaimLostError, match="is not claimed"):
        commit(one, 1)
    one.claim(7)
    with pytest.raises(ClaimLostError, match="slot 1 belongs to generation 7"):
        other.claim(7)
    assert one.next == 2


def test_of_many_that_claim_and_commit_at_once_each_slot_has_one(tmp_path: Path, chain: Chain) -> None:
    store = CheckpointStore.open(str(tmp_path / "store"))
    begin = Barrier(6)

    def work(number: int) -> list[int]:
        won = []
        one = store.chain(chain.job)
        begin.wait()
        with suppress(ClaimLostError):
            one.claim()
            won.append(one.next - 1)
            while len(won) < 5:
                won.append(commit(one, number).number)
                one.collect(1)
        return won

    with ThreadPoolExecutor(6) as workers:
        won = [number for numbers in workers.map(work, range(6)) for number in numbers]
    assert sorted(won) == list(range(1, len(won) + 1))
    newest = chain.newest()
    assert newest is not None
    for file in newest.files().values():
        chain.data.read(file)


def test_a_checkpoint_that_was_asked_for_is_there_or_an_error(chain: Chain) -> None:
    manifests = [commit(chain, epoch) for epoch in (1, 2, 3)]
    assert chain.manifest(2) == manifests[1]
    chain.collect(1)
    with pytest.raises(CheckpointDamagedError, match=r"0000000001.json is missing"):
        chain.manifest(1)
    chain.claim()
    with pytest.raises(CheckpointError, match=r"0000000004.json is no checkpoint, but the claim"):
        chain.manifest(4)


def test_a_checkpoint_may_need_files_of_its_own_slot_and_of_the_one_before_only(chain: Chain) -> None:
    first = commit(chain, 1)
    early = chain.data.write(chain.next + 2, "early", b"")
    commit(chain, 2)
    for file in (first.coordinator, FileRef(first.coordinator.path, 1, "0" * 64), early):
        with pytest.raises(CheckpointError, match="is no file of slot 3 or 2"):
            chain.commit(epoch=3, coordinator=file, tasks=(), records=0, seconds=0.0)


def test_collection_leaves_what_is_needed_and_what_is_being_written(tmp_path: Path, chain: Chain) -> None:
    directory = tmp_path / "store" / chain.job
    commit(chain, 1)
    abandoned = chain.data.write(chain.next, "abandoned", b"x")
    assert chain.collect(3) == Collected()
    second = commit(chain, 2)
    assert chain.collect(3) == Collected(files=1)
    assert abandoned.path not in files_in(directory)
    third = commit(chain, 3, reuse=second.tasks[0].parts)
    fourth = commit(chain, 4, reuse=third.tasks[0].parts)
    writing = chain.data.write(chain.next, "writing", b"x")
    assert chain.collect(3) == Collected(slots=2, files=2)
    assert chain.collect(1) == Collected(slots=1, files=1)
    slots = {"chain/0000000003.json", "chain/0000000004.json"}
    assert files_in(directory) == slots | {writing.path} | {*third.files(), *fourth.files()}
    assert second.tasks[0].parts[0].file.path in fourth.files()
    assert chain.collect(1) == Collected()


def test_a_job_that_has_ended_is_removed_as_a_whole(tmp_path: Path, chain: Chain) -> None:
    other = CheckpointStore.open(str(tmp_path / "store")).create("other")
    commit(chain, 1)
    orphan = chain.data.write(chain.next, "orphan", b"")
    CheckpointStore.open(str(tmp_path / "store")).chain(chain.job).remove()
    assert [path.name for path in (tmp_path / "store").iterdir()] == [other.job]
    with pytest.raises(CheckpointError):
        chain.data.write(chain.next, "late", b"")
    with pytest.raises(CheckpointError, match="No such file"):
        chain.commit(epoch=2, coordinator=orphan, tasks=(), records=0, seconds=0.0)
    with pytest.raises(CheckpointDamagedError, match="has no slot of a chain: it was removed"):
        chain.newest()


def test_nothing_is_collected_beside_a_damaged_manifest(tmp_path: Path, chain: Chain) -> None:
    for epoch in (1, 2):
        commit(chain, epoch)
    orphan = chain.data.write(1, "orphan", b"")
    (tmp_path / "store" / chain.job / "chain" / "0000000002.json").write_bytes(b"{}")
    with pytest.raises(CheckpointDamagedError, match=r"0000000002.json is damaged: it is no manifest"):
        chain.collect(1)
    assert chain.data.read(orphan) == b""
    assert chain.numbers() == [0, 1, 2]


def test_a_commit_whose_answer_is_lost_is_found(chain: Chain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = os.link

    def link_and_fail(*paths: str) -> None:
        real(*paths)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "link", link_and_fail)
        with pytest.raises(CheckpointError, match="Input/output error"):
            commit(chain, 1)
    with pytest.raises(CheckpointError, match="is there already, from an attempt that had seemed to fail"):
        commit(chain, 1)
    assert commit(chain, 2).number == 2


def test_a_store_that_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="which is no directory: name a directory"):
        CheckpointStore.open(str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match="cannot be at gs://bucket/x: name a directory, file:///") as refused:
        CheckpointStore.open("gs://user:hidden@bucket/x?token=hidden")
    assert "hidden" not in str(refused.value)
    with pytest.raises(CheckpointError, match="Not a directory"):
        CheckpointStore.open(str(tmp_path / "file" / "below")).create("job")
    store = CheckpointStore.open(str(tmp_path / "new"))
    with pytest.raises(CheckpointError, match="no checkpoints of x; jobs there: none"):
        store.chain("x")

    def link(*paths: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(CheckpointError, match="has no hard links: name a directory on another one"):
        store.create("job")
