"""The store of checkpoints in object storage: a server in a process of its own, over HTTP."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from checkpoint_machine import CheckpointWalk, FaultyFiles
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from dpa.checkpoints import CheckpointStore, TaskParts
from dpa.errors import CheckpointDamagedError, CheckpointError, ClaimLostError
from experiments.s3_server import KEY, SECRET, client, keys, uri_of


def test_checkpoints_are_written_found_claimed_and_collected_and_nothing_else_is_left(s3_port: int) -> None:
    store = CheckpointStore.open(uri_of(s3_port, "bucket/some/where/"))
    chain = store.create("job")
    with ThreadPoolExecutor(4) as writers:
        data = [pickle.loads(pickle.dumps(store.chain(chain.job).data)) for _ in range(4)]
        sizes = [0, 10, 1000, 6_000_000]  # the last one goes in parts
        files = list(writers.map(lambda one, size: one.write(1, "part", [b"x" * size, b"end"]), data, sizes))
    first = chain.commit(epoch=1, coordinator=files[-1], tasks=(), records=1, seconds=0.1)
    assert [chain.data.read(file) for file in files] == [b"x" * size + b"end" for size in sizes]
    heir = pickle.loads(pickle.dumps(store)).chain(chain.job)
    assert heir.claim() == first
    with pytest.raises(ClaimLostError):
        chain.commit(epoch=2, coordinator=files[-1], tasks=(), records=1, seconds=0.1)
    new = heir.data.write(heir.next, "new", b"abc")
    second = heir.commit(epoch=2, coordinator=new, tasks=[TaskParts("stage", 0, ())], records=1, seconds=0.1)
    writing = heir.data.write(heir.next, "writing", b"")
    assert (heir.collect(1).files, store.jobs()) == (3, [chain.job])
    assert CheckpointStore.open(uri_of(s3_port, "bucket/some/where")).chain(chain.job).newest() == second
    there = keys(s3_port, "bucket")
    names = ["chain/0000000002.json", "chain/0000000003.json", files[-1].path, new.path, writing.path]
    assert there == [f"some/where/{chain.job}/{name}" for name in names]
    client(s3_port).put_object(Bucket="bucket", Key=there[-2], Body=b"abd")
    with pytest.raises(CheckpointDamagedError, match=f"s3://bucket/{there[-2]} is damaged: its checksum"):
        heir.data.read(new)
    client(s3_port).delete_object(Bucket="bucket", Key=there[-2])
    with pytest.raises(CheckpointDamagedError, match=f"s3://bucket/{there[-2]} is missing"):
        heir.data.read(new)
    heir.remove()
    assert not keys(s3_port, "bucket")


def test_a_walk_over_faults(s3_port: int) -> None:
    places = iter(range(1000))

    class Walk(CheckpointWalk):
        can_lose_power = False

        def make_store(self) -> CheckpointStore:
            store = CheckpointStore.open(uri_of(s3_port, f"bucket/walk-{next(places)}"))
            return CheckpointStore(FaultyFiles(store._files, self.faults))

        def error(self) -> None:
            raise CheckpointError("the connection was closed")

        def teardown(self) -> None:
            pass

    run_state_machine_as_test(Walk, settings=settings(max_examples=2, stateful_step_count=15))


def test_a_place_that_cannot_be_is_refused_without_its_secrets(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    nowhere = uri_of(s3_port, "no-such-bucket/x")
    for uri, why in [
        (nowhere, "bucket does not exist, at s3://no-such-bucket/x"),
        (uri_of(1, "bucket/x"), "Could not connect .*, at s3://bucket/x"),
        (f"s3://{KEY}:{SECRET}@bucket/x", "each / in KEY or SECRET written as %2F"),
        ("s3:///x", "write s3://BUCKET/PREFIX"),
        (f"s3://{KEY}:word@bucket/x?unknown=1", "at s3://bucket/x"),
    ]:
        with pytest.raises(CheckpointError, match=why) as refused:
            CheckpointStore.open(uri)
        assert not any(secret in str(refused.value) for secret in ("hidden", "word"))
    store = CheckpointStore.open(uri_of(s3_port, "bucket/x"))
    assert (store.place, "hidden" in repr(store)) == ("s3://bucket/x", False)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(CheckpointError, match=r"need boto3, .*: pip install 'dpa\[s3\]'"):
        CheckpointStore.open(uri_of(1, "bucket/x"))
