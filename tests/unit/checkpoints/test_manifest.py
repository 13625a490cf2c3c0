"""Manifests: what is read is what was written, or an error that says what is wrong with it."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.checkpoints import FileRef, Manifest, Part, TaskParts
from dpa.checkpoints._manifest import Slot
from dpa.errors import CheckpointDamagedError, CheckpointError

JOB = f"job-{'0' * 32}"


def files(number: int) -> st.SearchStrategy[FileRef]:
    return st.builds(
        lambda written, size, content: FileRef(f"files/{written:010d}-x", size, hashlib.sha256(content).hexdigest()),
        st.integers(0, number),
        st.integers(0),
        st.binary(),
    )


@st.composite
def slots(draw: st.DrawFn) -> Slot:
    number, generation = draw(st.integers(0, 10**10 - 1)), draw(st.integers(0))
    of = draw(st.integers(0, number))
    parts = st.builds(Part, files(of), st.tuples(st.integers(0), st.integers(0)), st.integers(0))
    increments = st.lists(parts.map(lambda part: replace(part, is_increment=True)), max_size=3)
    chains = st.just(()) | st.builds(lambda first, behind: (first, *behind), parts, increments)
    tasks = st.builds(TaskParts, st.text(), st.integers(0), chains)
    manifest = st.builds(
        Manifest,
        number=st.just(of),
        generation=st.integers(0, generation),
        epoch=st.integers(0),
        created_at=st.floats(0, 1e12),
        seconds=st.floats(0, 1e6),
        records=st.integers(0),
        coordinator=files(of),
        tasks=st.lists(tasks, max_size=3).map(tuple),
    )
    return Slot(JOB, draw(st.text()), number, generation, draw(st.text()), draw(st.none() | manifest))


@given(slots())
def test_a_slot_is_read_as_it_was_written(slot: Slot) -> None:
    content = slot.encode()
    assert Slot.decode(content, JOB, slot.number, "here") == slot
    assert json.loads(content)["schema"] == 2


SLOT = Slot(
    JOB,
    "job",
    12,
    3,
    "me",
    Manifest(
        number=12,
        generation=3,
        epoch=7,
        created_at=1.5,
        seconds=0.25,
        records=1000,
        coordinator=FileRef("files/0000000012-coordinator-0a", 5, "0" * 64),
        tasks=(TaskParts("count", 0, (Part(FileRef("files/0000000011-count-0b", 6, "1" * 64), (0, 2**32), 9),)),),
    ),
)


def test_ten_thousand_damaged_manifests_are_refused() -> None:
    chance = random.Random(1)
    whole = SLOT.encode()
    for _ in range(10_000):
        content = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(content))
            match chance.randrange(4):
                case 0:
                    content[at] = chance.randrange(256)
                case 1:
                    del content[at : at + chance.randint(1, 40)]
                case 2:
                    content[at:at] = chance.randbytes(chance.randint(1, 40))
                case 3:
                    content[at:] = b""
            content = content or bytearray(b"{}")
        if content != whole:
            with pytest.raises(CheckpointError, match=r"^here is "):
                Slot.decode(bytes(content), JOB, 12, "here")


def with_checksum(slot: Any) -> bytes:
    body = json.dumps(slot).encode()
    return b'{"schema": 2, "sha256": "%s", "slot": %s}\n' % (hashlib.sha256(body).hexdigest().encode(), body)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 20) | st.floats() | st.text(max_size=5) | st.just("files/../../x"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
@settings(max_examples=150)
def test_a_manifest_that_holds_something_else_is_refused(data: st.DataObject) -> None:
    document = json.loads(SLOT.encode())["slot"]
    node: Any = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(VALUES)
    try:
        found = Slot.decode(with_checksum(document), JOB, 12, "here")
    except CheckpointDamagedError as error:
        assert str(error).startswith("here is damaged: ")
    else:  # it is another one, of the same form
        assert with_checksum(json.loads(found.encode())["slot"]) == with_checksum(document)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"number": 11}, f"it is slot 11 of {JOB}"),
        ({"job": "other"}, "it is slot 12 of other"),
        ({"generation": 2}, "its checkpoint is newer than itself"),
        ({"name": 5}, "name: Input should be a valid string"),
    ],
)
def test_a_manifest_in_the_place_of_another_is_refused(change: dict[str, Any], why: str) -> None:
    document = {**json.loads(SLOT.encode())["slot"], **change}
    with pytest.raises(CheckpointDamagedError, match=f"here is damaged: {why}"):
        Slot.decode(with_checksum(document), JOB, 12, "here")


def test_an_increment_behind_nothing_is_refused() -> None:
    document = json.loads(SLOT.encode())["slot"]
    document["checkpoint"]["tasks"][0]["parts"][0]["is_increment"] = True
    with pytest.raises(CheckpointDamagedError, match="here is damaged: task 0 of count has an increment without"):
        Slot.decode(with_checksum(document), JOB, 12, "here")


@pytest.mark.parametrize("path", ["../../etc/passwd", "files/0000000012-../x", "/tmp/x", "files/0000000013-x"])
def test_a_file_elsewhere_is_refused(path: str) -> None:
    document = json.loads(SLOT.encode())["slot"]
    document["checkpoint"]["coordinator"]["path"] = path
    with pytest.raises(CheckpointDamagedError, match="here is damaged: "):
        Slot.decode(with_checksum(document), JOB, 12, "here")


def test_a_manifest_of_another_version_is_no_damage_but_said() -> None:
    content = SLOT.encode().replace(b'"schema": 2', b'"schema": 1')
    with pytest.raises(CheckpointError, match="here is of schema 1, and this version of dpa reads schema 2") as error:
        Slot.decode(content, JOB, 12, "here")
    assert not isinstance(error.value, CheckpointDamagedError)
