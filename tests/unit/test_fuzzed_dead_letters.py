"""Tables of dead letters of any bytes and of any columns: each is shown and replayed, or an error that names its place.

`HYPOTHESIS_PROFILE=fuzz` draws 10,000 of each kind.
"""

import pickle
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dpa import Job
from dpa.dead_letters import _replay
from dpa.dead_letters.__main__ import app
from dpa.dead_letters._letters import FoundLetters
from dpa.errors import DpaError
from dpa.testing import LocalBackend

few = settings(max_examples=settings().max_examples if settings().max_examples > 1_000 else 30)


def pairs(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    if record["n"] % 2:
        raise ValueError("odd")
    yield "key", record["n"]


class Left(NamedTuple):
    """A job that has left dead letters beside its result: their file, and what is in it."""

    job: Job
    file: Path
    content: bytes


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    top = tmp_path_factory.mktemp("fuzz")
    job = Job(
        input=pa.table({"n": [*range(6)]}),
        mapper=pairs,
        reducer="sum",
        on_error="dead_letter",
        dead_letters=str(top / "dead"),
        output={"path": str(top / "out")},
    )
    job.run(backend=LocalBackend())
    file = top / "dead" / "part-00000.parquet"
    return Left(job, file, file.read_bytes())


def shown_or_refused(place: Path) -> None:
    """Run the commands that look at letters."""
    for command in ("list", "show"):
        result = CliRunner().invoke(app, [str(place), command])
        error = result.exception
        assert error is None or isinstance(error, DpaError), error
        assert error is None or str(place) in str(error)


@given(data=st.data())
def test_any_bytes_are_shown_or_refused(left: Left, data: st.DataObject) -> None:
    found = bytearray(left.content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(found)))
        found[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=8))
    left.file.write_bytes(found)
    shown_or_refused(left.file.parent)


TYPES = {
    pa.string(): st.text(max_size=5) | st.sampled_from(["mapper", "reducer", "map", "reduce", "x" * 5_000]),
    pa.binary(): st.binary(max_size=9) | st.sampled_from([("k", {"n": 3}), (None, 1), 5, {}]).map(pickle.dumps),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.list_(pa.int64()): st.just([1]),
}


@few
@given(data=st.data())
def test_any_columns_are_replayed_or_refused(left: Left, data: st.DataObject) -> None:
    found = pq.read_table(pa.BufferReader(left.content))
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(found.column_names))
        kind = data.draw(st.just(found.schema.field(name).type) | st.sampled_from([*TYPES]))
        values = st.lists(st.none() | TYPES[kind], min_size=len(found), max_size=len(found))
        column = pa.array(data.draw(values), kind)
        if data.draw(st.integers(0, 9)):
            found = found.set_column(found.column_names.index(name), name, column)
        else:
            assume(found.num_columns > 1)
            found = found.drop_columns([name])
    pq.write_table(found, left.file)
    shown_or_refused(left.file.parent)
    out = left.file.parents[1] / "out" / "part-00000.parquet"
    result = out.read_bytes()
    with suppress(DpaError):
        _replay.replay(left.job.spec, FoundLetters.read(str(left.file.parent), trusted=True))
    out.write_bytes(result)
    left.file.write_bytes(left.content)
