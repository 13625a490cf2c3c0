"""What the engine writes into checkpoints is plain data of a number: nothing of it changes without another number, and
checkpoints of every number so far are read, or refused in words."""

from __future__ import annotations

import hashlib
import importlib
import json
import pickle
import pickletools
import pkgutil
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import saved_formats

import dpa.sources
from dpa import Job
from dpa._util.version import VERSION
from dpa.aggregates import READY_MADE
from dpa.checkpoints import Manifest
from dpa.checkpoints._manifest import _SCHEMA, FileRef, Part, Slot, TaskParts
from dpa.errors import CheckpointError, ConfigError
from dpa.executors import Reducer
from dpa.protocol.checkpoint_format import FORMAT, PYTHON, READ, SCHEMA, below_head, read, written
from dpa.protocol.restore import AskedStage
from dpa.protocol.wire.instructions import Commit
from dpa.protocol.wire.snapshots import ChannelTime, JobSnapshot, OperatorSnapshot, SourceSnapshot, TimeReached
from dpa.routing.assignment import KeySplit, Single
from dpa.routing.table import RoutingTable
from dpa.sinks.delta import DeltaLayout, _Part
from dpa.sources.feed import Position
from dpa.sources.foreign import ForeignSplit
from dpa.sources.generated import GeneratedSplit, ReadRate
from dpa.sources.ipc import IpcSplit
from dpa.sources.kafka import KafkaSplit, RecordFormat
from dpa.sources.lines import LineFormat, LinesSplit
from dpa.sources.scans import ScanFormat, ScanSplit
from dpa.sources.splits import FirstRows, MemorySplit, NumberedSplit, ParquetSplit, is_split
from dpa.sources.united import UnitedSplit
from dpa.sources.watched import Seen
from dpa.testing import LocalBackend
from dpa.tolerance import ErrorCount, Failed, Letter

WRITTEN = {2: "4322f1ab6e694b7e"}
"""The digest of the fields of all records, by the format's number."""

MANIFESTS = {2: "cef5dbe22de573dd"}
"""The same of what a manifest holds, by its own."""

AGAIN = """What checkpoints hold has changed. Give `FORMAT` in dpa/protocol/checkpoint_format.py the next number, unless
the last was not released and all that is new are fields with defaults. The old one stays in `READ` if what was written
then is still read right. Leave a checkpoint by `python tests/saved_formats.py NUMBER`, and put the digest here: """

_SCHEMA_OF_ROWS = pa.schema([("a", pa.int64()), ("b", pa.string())])
_PARQUET = ParquetSplit("/in.parquet", (0, 2), 10, ("a",), (), _SCHEMA_OF_ROWS, 99, 3)
_TABLE = RoutingTable(
    3,
    np.array([1, 5, 9], np.uint32),
    np.array([0, 1, 0], np.int32),
    (Single(1), KeySplit((0, 1), (0.25, 0.75), (1.0, 0.0), 2)),
    2,
    7,
)

EXAMPLES: list[Any] = [
    _PARQUET,
    NumberedSplit(_PARQUET, 4, 3),
    UnitedSplit(_PARQUET, pa.schema([("a", pa.int64())])),
    FirstRows(MemorySplit(pa.table({"a": [1, 2]}), "one"), 1),
    KafkaSplit(
        (("bootstrap.servers", "b:9092"),), "t", 3, 10, 20, RecordFormat("string", "json", _SCHEMA_OF_ROWS), ("a",)
    ),
    GeneratedSplit(b"pickled", _SCHEMA_OF_ROWS, 1, 5, 10, 3, ReadRate(100.0)),
    LinesSplit("/in.csv", LineFormat("csv", True, ";"), ("a", "b"), _SCHEMA_OF_ROWS, None, 3, 90, 99, 10),
    IpcSplit("/in.arrow", (0, 1), 10, None, 99, 3),
    ScanSplit("/in.csv", ScanFormat("csv"), ("a", "b"), _SCHEMA_OF_ROWS, None, 3, 90, 99, 10),
    ForeignSplit(b"pickled", "feed", 10, None, 2, "channel"),
    Position((Seen(5, {"a": 6}, ("b", 7, 8)), 3)),
    Position({("topic", 0): 10}),
    Commit(
        "counts",
        3,
        1.5,
        (
            _Part("part-0", DeltaLayout({"minReaderVersion": 1}, {"id": "x"}), ({"path": "f", "stats": None},)),
            "part-1",
            pa.table({"a": [1]}),
        ),
    ),
    SourceSnapshot((_PARQUET,), None, 7, 2, (_PARQUET,), TimeReached(1, None, 3, {"": ChannelTime(4, {0: 5})})),
    OperatorSnapshot(_TABLE, {}, 9, rounds={0: 1}),
    AskedStage(2, {"kind": "consistent", "epsilon": 0.01}, (4, "token-{node}-{token}", 7)),
    Failed(
        (ErrorCount("s", "ValueError", True, 2, "bad"),), (Letter("s", "e", "map", None, "r", "E", "m", "t", b"d"),), 3
    ),
]


def equal(one: Any, other: Any) -> bool:
    if is_dataclass(one):
        return type(one) is type(other) and all(
            equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)
        )
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


def refused(thing: object) -> bytes:
    raise AssertionError(f"{thing!r} is pickled")


def digest(thing: Any) -> str:
    return hashlib.sha256(json.dumps(thing, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("thing", EXAMPLES, ids=lambda thing: type(thing).__name__)
def test_what_the_engine_writes_comes_back_and_none_of_it_is_a_pickle_of_a_class(thing: Any) -> None:
    data = written(thing, refused)
    [found] = read(data, "here")
    assert equal(found, thing)
    names = {code.name for code, *_ in pickletools.genops(data.partition(b"\n")[2])}
    assert not names & {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX"}


def test_every_record_is_a_class_and_every_split_is_a_record() -> None:
    assert all(SCHEMA.name_of(SCHEMA.kind(name)) == name for name in SCHEMA.places)
    splits = {
        (kind.__module__, kind.__name__)
        for found in pkgutil.iter_modules(dpa.sources.__path__, "dpa.sources.")
        for kind in vars(importlib.import_module(found.name)).values()
        if isinstance(kind, type) and is_split(kind) and is_dataclass(kind)
    }
    assert len(splits) > 6 and splits <= {*SCHEMA.places.values()}


def test_what_is_written_changes_only_with_the_number_of_its_format() -> None:
    named = {kind: name for name, (_, kind) in SCHEMA.places.items()}  # a class may be renamed
    form = {
        "records": {
            name: {field: re.sub(r"\w+", lambda word: named.get(word[0], word[0]), of) for field, of in found.items()}
            for name, found in ((name, SCHEMA.fields(name)) for name in SCHEMA.places)
        },
        "derived": sorted(SCHEMA.derived),
        "foreign": sorted(SCHEMA.foreign),
    }
    assert WRITTEN.get(FORMAT) == digest(form), AGAIN + digest(form)
    manifest = {
        kind.__name__: {field.name: str(field.type) for field in fields(kind)}
        for kind in (Slot, Manifest, TaskParts, Part, FileRef)
    }
    again = (
        "manifests have changed: give `_SCHEMA` in dpa/checkpoints/_manifest.py the next number (the old one stays in "
    )
    again += "`_READ` if what is new has a default), and put the digest here: "
    assert MANIFESTS.get(_SCHEMA) == digest(manifest), again + digest(manifest)


def test_states_of_ready_made_reducers_are_columns_or_builtin_values() -> None:
    """Whatever else they were, a later version could not read."""
    classes = set()
    for name, kind in READY_MADE.items():
        reducer = kind()
        if not isinstance(reducer, Reducer):
            continue
        state = reducer.zero()
        for value in (1.5, float("nan"), None, -2.0):
            state = reducer.reduce(state, value)
        found = [(code.name, argument) for code, argument, _ in pickletools.genops(pickle.dumps(state, protocol=2))]
        classes |= {(name, argument) for code, argument in found if code == "GLOBAL"}
    assert classes <= {
        ("top_k", "dpa.aggregates NAN"),
        ("distinct", "dpa.aggregates NAN"),
        ("distinct", "__builtin__ set"),
    }


def formats() -> list[int]:
    return sorted(int(found.name) for found in saved_formats.FORMATS.iterdir() if found.is_dir())


def test_there_is_a_checkpoint_of_each_number() -> None:
    assert formats() == [*range(1, FORMAT + 1)] and {FORMAT} <= READ <= {*formats()}


@pytest.mark.parametrize("number", formats())
def test_a_checkpoint_of_each_number_is_read_or_refused_in_words(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, job, checkpoint = saved_formats.copied(number, tmp_path / "saved")
    head = json.loads(store.chain(job).data.read(checkpoint.coordinator).partition(b"\n")[0])
    if number in READ:
        monkeypatch.setattr("dpa.protocol.checkpoint_format.PYTHON", head["python"])
        about, known = below_head(store.chain(job).data, checkpoint)
        assert about["steps"].keys() == saved_formats.job(tmp_path)["stages"].keys()
        [(cut, asked)] = read(known, "here")
        assert isinstance(cut, JobSnapshot) and asked["joined"].tasks == 2 and cut.sources["rows"].rest
        parts = [part.file for task in checkpoint.tasks for part in task.parts]
        assert all([*read(store.chain(job).data.read(file), file.path)] for file in parts)
        return
    words = (
        rf"was written by dpa 0\.1\.0 on Python .*, in format {number} of checkpoints, and this dpa .* reads {FORMAT}"
    )
    mend = ": use the version that wrote it, or run the job from the start"
    with pytest.raises(CheckpointError, match=words + mend):
        below_head(store.chain(job).data, checkpoint)
    with pytest.raises(ConfigError, match="--resume: .*" + words + mend):
        Job(**saved_formats.job(tmp_path)).run(backend=LocalBackend(), resume=str(tmp_path / "saved"))
    for task in checkpoint.tasks:
        for part in task.parts:
            with pytest.raises(CheckpointError, match=f"is in format {number} of checkpoints"):
                next(read(store.chain(job).data.read(part.file), part.file.path))


def test_a_later_number_is_refused_in_words() -> None:
    later = written(EXAMPLES[0]).replace(b"2\n", b"3\n", 1)
    with pytest.raises(
        CheckpointError, match=rf"file 7 is in format 3 of checkpoints, and this dpa \({VERSION}\) reads 2: use"
    ):
        next(read(later, "file 7"))
    with pytest.raises(CheckpointError, match="file 7 cannot be read: "):
        next(read(written(EXAMPLES[0])[:-9], "file 7"))
    assert PYTHON.count(".") == 1
