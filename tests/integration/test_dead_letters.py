"""Dead letters on real Ray actors: each once, whatever dies meanwhile; and records that end their process."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_recovery import KillerBehindCheckpoints

from dpa import Flow, Job, Reducer
from dpa.execution.block import Block, object_array
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import ProcessDone
from dpa.protocol.wire.instructions import ProcessBlocks
from dpa.runtime.actors._trials import Trials
from dpa.runtime.packed_plan import PackedPlan
from dpa.sources.splits import MemorySplit
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")

ROWS = 12_000


def pairs(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield record["key"], record["value"]
    if record["value"] % 101 == 0:
        raise ValueError("the mapper minds")


class Slow(Reducer[list[int], int]):
    """Changes the state before it raises; slow until a file is there."""

    def __init__(self, go: str) -> None:
        self.go = go

    def zero(self) -> list[int]:
        return []

    def reduce(self, state: list[int], value: int) -> list[int]:
        state.append(value)
        if value % 97 == 0:
            raise KeyError("the reducer minds")
        if not Path(self.go).exists():
            time.sleep(0.006)
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def finish(self, state: list[int]) -> int:
        return sum(state)


class KillerBehindLetters(KillerBehindCheckpoints):
    """Kills when a checkpoint has letters in it: one was written, and begun, after the first letter was counted."""

    written_without = 0

    def update(self, snapshot: TrackedSnapshot) -> None:
        written = 0 if snapshot.checkpoints is None else snapshot.checkpoints.written
        if not snapshot.errors:
            self.written_without = written
        elif written >= self.written_without + 2:  # one more may have been under way
            super().update(snapshot)


def test_each_dead_letter_is_there_once_though_a_process_dies(tmp_path: Path) -> None:
    table = pa.table({"key": [f"key {number % 40}" for number in range(ROWS)], "value": [*range(ROWS)]})
    result = Job(
        name="letters",
        input=table,
        mapper=pairs,
        reducer=Slow(str(tmp_path / "go")),
        parallelism={"mappers": 2, "reducers": 2},
        limits={"batch_records": 50, "in_flight_records": 150, "split_records": 1_000},
        recovery={"backoff": "200ms"},
        checkpoint={"path": str(tmp_path / "saved"), "every": "300ms"},
        on_error="dead_letter",
        max_errors="5%",
        dead_letters=str(tmp_path / "dead"),
        output={"path": str(tmp_path / "out")},
    ).run(KillerBehindLetters("letters", ("reducer 1",), tmp_path / "go"))
    of_mapper, of_reducer = [{*range(0, ROWS, step)} for step in (101, 97)]
    letters = pq.read_table(tmp_path / "dead").to_pylist()
    assert Counter(letter["record"] for letter in letters if letter["step"] == "reducer") == Counter(
        map(str, of_reducer - of_mapper)
    )
    places = [letter["split"] * 1_000 + letter["offset"] for letter in letters if letter["step"] == "mapper"]
    assert sorted(places) == sorted(of_mapper)
    assert {letter["generation"] for letter in letters} == {0, 1}
    assert sum(count.records for count in result.report.errors) == len(letters) == len(of_mapper | of_reducer)
    expected = Counter[str]()
    for number in range(ROWS):
        if number not in of_mapper | of_reducer:
            expected[f"key {number % 40}"] += number
    assert dict(zip(*pq.read_table(tmp_path / "out").to_pydict().values(), strict=True)) == expected
    [lost] = result.report.recoveries
    assert lost.task == "reducer 1"


def some(record: dict[str, Any]) -> dict[str, Any]:
    if record["value"] == 1_234:
        os._exit(0)
    if record["value"] == 1_300:
        raise ValueError("an ordinary one")
    return record


class Fatal(Reducer[list[int], int]):
    """Its process ends at one of the values, and it minds another."""

    def zero(self) -> list[int]:
        return []

    def reduce(self, state: list[int], value: int) -> list[int]:
        state.append(value)
        if value == 777:
            os.abort()
        if value == 778:
            raise ValueError("an ordinary one")
        return state

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right


TABLE = pa.table({"key": [f"key {number % 7}" for number in range(2_000)], "value": [*range(2_000)]})


class Noted(Fatal):
    """Notes the processes that it runs in, and how many times it was called there."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def reduce(self, state: list[int], value: int) -> list[int]:
        with Path(self.directory, str(os.getpid())).open("ab") as noted:
            noted.write(b".")
        return super().reduce(state, value)

    def finish(self, state: list[int]) -> int:
        return len(state)


def killers(place: Path, reducer: Any) -> Flow:
    limits = {"batch_records": 200, "split_records": 500}
    recovery = {"attempts": 2, "backoff": "50ms"}
    options = {"on_error": "dead_letter", "dead_letters": str(place), "limits": limits, "recovery": recovery}
    flow = Flow("killers", **options)
    numbers = flow.read(TABLE, name="rows", parallelism=1).map(some, name="some")
    numbers.key_by("key").reduce(reducer, name="total", parallelism=1)
    return flow


def test_a_record_that_ends_its_process_every_time_is_found(tmp_path: Path) -> None:
    result = killers(tmp_path / "dead", "count").run()
    letters = {letter["step"]: letter for letter in pq.read_table(tmp_path / "dead").to_pylist()}
    died, raised = letters.pop("rows"), letters.pop("some")
    assert (died["error"], died["split"], died["offset"]) == ("ProcessDied", 2, 234)
    assert "exits with status 0" in died["message"]
    assert (raised["error"], raised["split"], raised["offset"]) == ("ValueError", 2, 300)
    assert not letters
    assert sum(result.table().column("count").to_pylist()) == 1_998
    assert len(result.report.recoveries) == 2


def test_many_records_are_tried_together_to_find_one_that_ends_the_process_of_a_reducer(tmp_path: Path) -> None:
    rows = 6_000
    noted = tmp_path / "noted"
    noted.mkdir()
    result = Job(
        name="tried",
        input=pa.table({"key": [f"key {number % 1_000}" for number in range(rows)], "value": [*range(rows)]}),
        key="key",
        value="value",
        reducer=Noted(str(noted)),
        parallelism={"mappers": 1, "reducers": 2},
        limits={"queue_seconds": 0.01},  # about what a trial takes
        recovery={"backoff": "50ms"},
        on_error="dead_letter",
        dead_letters=str(tmp_path / "dead"),
    ).run()
    letters = pq.read_table(tmp_path / "dead").to_pylist()
    assert {letter["record"]: letter["error"] for letter in letters} == {"777": "ProcessDied", "778": "ValueError"}
    assert sum(result.table()["value"].to_pylist()) == rows - 2
    assert len([*noted.iterdir()]) < 600


def test_a_value_that_ends_the_process_of_a_reducer_is_found_by_halves(tmp_path: Path) -> None:
    plan = killers(tmp_path / "dead", Fatal()).job().spec.plan({"rows": (MemorySplit(TABLE),)}, {"rows": TABLE.schema})
    address = Address("total", 0)
    trials = Trials(PackedPlan.pack(plan), address)
    code = plan.user_code(address, time.perf_counter, trial=trials)
    dead, found = 0, []
    for start in (0, 500):
        part = TABLE.slice(start, 500).combine_chunks()
        values = object_array(part["value"].to_pylist())
        event = code.carry_out(ProcessBlocks((Block.of(part["key"], values, 0),), 0))
        assert isinstance(event, ProcessDone)
        dead += event.dead
        found += [] if event.failed is None else event.failed.letters
    server = trials._server
    trials.close()
    assert server is not None and server.poll() == 0
    assert dead == 2
    assert [(letter.error, letter.record, letter.key) for letter in found] == [
        ("ProcessDied", "777", '"key 0"'),
        ("ValueError", "778", '"key 1"'),
    ]
    assert "SIGABRT" in found[0].message
