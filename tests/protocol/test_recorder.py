"""Recordings of machines: replayed from any segment, a machine does what it did, and is what it was."""

import pickle
import random
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import MethodType
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pytest
from wires import kinds_of

from dpa._util.version import VERSION
from dpa.errors import ProtocolError, RecordingError
from dpa.execution.block import Block
from dpa.execution.mapping import Emitted
from dpa.measure.latency import LatencySketch
from dpa.protocol.balancer.machine import load_balancer_of
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.history.lean import LARGE, has_lean_form, lean_event
from dpa.protocol.history.recording import Recorder, Recording, Replayed
from dpa.protocol.machine import Machine
from dpa.protocol.machines import task_of
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import Event, ProcessDone, StepDone, Tick
from dpa.protocol.wire.instructions import Instruction, ProcessBlocks
from dpa.protocol.wire.messages import Message
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.end import Deliver, Progress
from dpa.protocol.wire.metrics import TaskStats
from dpa.routing.groupings.options import BY_KIND, KINDS
from experiments.simulated_jobs.map_reduce import map_reduce
from experiments.simulated_jobs.random_changes import with_random_changes, with_random_placement
from experiments.simulated_jobs.random_graphs import random_graph
from experiments.simulated_jobs.random_jobs import random_job
from experiments.simulation.cluster import SimulatedCluster
from experiments.simulation.job import SimulatedJob
from experiments.simulation.violation import InvariantViolationError

SOURCE, OPERATOR = Address("mapper", 0), Address("reducer", 0)

OLD = Path(__file__).parents[1] / "formats" / "2.events"
"""As dpa wrote them when the code was not named in them."""


class RecordedMachine:
    """In the place of a machine of a simulated cluster: handles events through a recorder with short segments."""

    def __init__(self, machine: Machine, max_events: int, max_rows: int) -> None:
        self._machine = machine
        self.recorder = Recorder(machine, max_events, max_rows)
        self.handle = self.recorder.handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


def recordings(job: SimulatedJob, seed: int) -> Iterator[tuple[Machine, Recording]]:
    """All machines of a simulated run, whatever became of it, and their recordings."""
    draw = random.Random(seed)
    cluster = SimulatedCluster(job, seed)
    machines = dict(cluster.machines)
    recorded = {at: RecordedMachine(machine, draw.randint(1, 60), 40) for at, machine in machines.items()}
    cluster.machines |= recorded  # type: ignore[arg-type]
    with suppress(InvariantViolationError):
        cluster.run()
    return ((machines[at], recorded[at].recorder.recording()) for at in machines)


def assert_alike(one: Any, other: Any, seen: dict[tuple[int, int], Any], where: str = "") -> None:
    """That two objects hold the same, however their parts are shared; `seen` are those that were compared already."""
    if (id(one), id(other)) in seen:
        return
    seen[id(one), id(other)] = one, other  # they live on, lest others get their places
    (kind, parts), (other_kind, other_parts) = _outline(one), _outline(other)
    assert (kind, parts.keys()) == (other_kind, other_parts.keys()), where
    for name, part in parts.items():
        assert_alike(part, other_parts[name], seen, f"{where}.{name}")


def _outline(thing: Any) -> tuple[str, dict[str, Any]]:
    """What an object is, in a text that can be compared, and its parts by their names."""
    if thing is None or isinstance(
        thing, str | bytes | int | float | Enum | np.generic | type | pa.DataType | pa.Schema
    ):
        return repr(thing), {}
    if isinstance(thing, np.ndarray | pa.Array):
        return repr(thing.tolist()), {}
    if has_lean_form(type(thing)) or type(thing).__name__.endswith("Outline"):
        return "left out", {}
    if isinstance(thing, MethodType):
        return thing.__name__, {"of": thing.__self__}
    if isinstance(thing, set | frozenset):
        return repr(sorted(repr(item) for item in thing)), {}
    if isinstance(thing, dict):
        return "dict", {repr(key): value for key, value in thing.items()}
    if hasattr(thing, "__iter__"):
        return "items", {str(place): item for place, item in enumerate(thing)}
    return type(thing).__name__, {"holds": fields_of(thing)}


def fields_of(thing: Any) -> Any:
    """What an object is made of, without what is derived from it."""
    if is_dataclass(thing):
        return {field.name: getattr(thing, field.name) for field in fields(thing)}
    if hasattr(type(thing), "__setstate__"):
        return thing.__reduce_ex__(2)[2]  # its state; not everything has `__getstate__` before Python 3.11
    return thing.__dict__ if hasattr(thing, "__dict__") else repr(thing)


def replayed(recording: Recording) -> list[Replayed]:
    """The whole replay, from the file as it would be written; what the file shares with nobody."""
    return list(pickle.loads(pickle.dumps(recording)).replay())


@pytest.mark.parametrize("made", [random_job, random_graph], ids=["jobs", "graphs"])
@pytest.mark.parametrize("seed", range(8))
def test_every_machine_of_a_random_run_can_be_replayed(made: Callable[[int], Any], seed: int) -> None:
    for machine, recording in recordings(made(seed).job, seed):
        steps = replayed(recording)
        assert not [(step.handled, step.outcome) for step in steps if not step.agrees]
        assert len(steps) == len(recording.events)
        if steps:
            assert_alike(steps[-1].machine, machine, {})
    if made is random_job and seed < 3:  # and where tasks move by what they use
        job = with_random_placement(with_random_changes(made(seed).job, seed), seed)
        assert all(step.agrees for _, recording in recordings(job, seed) for step in replayed(recording))


@pytest.mark.parametrize("kind", KINDS)
def test_every_machine_can_be_copied_whatever_the_grouping(kind: str) -> None:
    graph = map_reduce((), 2, 3, grouping=BY_KIND[kind]())
    tasks = [task_of(graph, address) for address in graph.addresses]
    for machine in (*tasks, CoordinatorMachine(graph), load_balancer_of(graph)):
        recorder = Recorder(machine)
        recorder.handle(Tick(), 1.0)
        assert all(step.agrees for step in replayed(recorder.recording()))


def reducer() -> Machine:
    """The only task of its stage."""
    return task_of(map_reduce((), 1, 1), OPERATOR)


def push(number: int, rows: int) -> Event:
    """Records with values from the source."""
    values = np.array([object() for _ in range(rows)])
    block = Block.of(pa.array([f"key {row}" for row in range(rows)]), values, 0)
    return Envelope(SOURCE, OPERATOR, number, Push(block, 0, SOURCE, 0, 0.0, 0.0))


def test_the_last_two_segments_are_kept_each_of_so_many_events_or_so_many_records() -> None:
    by_events, by_records = Recorder(reducer(), max_events=10), Recorder(reducer(), max_rows=100)
    for _ in range(35):
        by_events.handle(Tick(), 0.0)
    for number in range(6):
        by_records.handle(push(number, 60), 0.0)
    assert [len(segment.events) for segment in by_events.recording().segments] == [10, 5]
    assert [step.number for step in by_events.recording().replay()] == list(range(21, 36))
    assert [len(segment.events) for segment in by_records.recording().segments] == [2, 2]


def test_values_are_dropped_from_events_and_from_the_queue() -> None:
    recorder = Recorder(reducer(), max_events=3)
    for number in range(5):
        recorder.handle(push(number, 20), 0.0)  # whose values no pickle takes
    assert all(step.agrees for step in replayed(recorder.recording()))
    blocks = [handled.event.message.block for handled in recorder.recording().segments[0].events]
    assert all(block.values is None and block.rows == 20 for block in blocks)


@pytest.mark.parametrize("values", [None, np.array(["x", "y"], dtype=object)], ids=["without values", "with values"])
def test_a_recorded_block_shares_no_memory_with_the_message_that_brought_it(values: Any) -> None:
    block = Block.of(pa.array(["a", "b"]), values, 0)
    memory: list[pickle.PickleBuffer] = []
    brought = pickle.loads(pickle.dumps(block, protocol=5, buffer_callback=memory.append), buffers=memory)
    assert np.shares_memory(brought.codes, block.codes)
    recorder = Recorder(reducer())
    recorder.handle(Envelope(SOURCE, OPERATOR, 0, Push(brought, 0, SOURCE, 0, 0.0, 0.0)), 0.0)
    lean = recorder.recording().events[0].event.message.block
    assert lean.keys.equals(block.keys)
    of_lean, of_block = ({part.address for part in keys.buffers() if part} for keys in (lean.keys, block.keys))
    assert not of_lean & of_block
    assert not np.shares_memory(lean.hashes, block.hashes)
    assert not np.shares_memory(lean.codes, block.codes)


def test_codes_that_a_step_has_made_are_recorded_without_a_copy_and_a_report_without_its_latencies() -> None:
    codes = np.zeros(3, dtype=np.int32)
    block = Block(pa.array(["a"]), np.zeros(1, dtype=np.uint32), codes)
    recorded = lean_event(StepDone(Emitted(((0, block),), read=3, mapped=3)))
    assert isinstance(recorded, StepDone) and recorded.step is not None
    assert recorded.step.blocks[0][1].codes is codes
    report = Progress(TaskStats("reducer", 0), latency=LatencySketch())
    lean = lean_event(Envelope(OPERATOR, COORDINATOR, 0, report))
    assert isinstance(lean, Envelope) and lean.message == report
    assert lean.message.latency is None and report.latency is not None


def test_what_a_machine_raises_is_the_last_event_and_is_raised_again() -> None:
    recorder = Recorder(reducer())
    recorder.handle(Tick(), 0.0)
    with pytest.raises(ProtocolError):
        recorder.handle(Envelope(COORDINATOR, OPERATOR, 0, Deliver(None)), 1.0)
    recorder.handle(Tick(), 2.0)
    recording = recorder.recording()
    last = list(recording.replay())[-1]
    assert len(recording.events) == last.number == 2
    assert last.agrees
    assert last.outcome == f"ProtocolError: {recording.error}"
    assert "cannot take a Deliver" in str(recording.error)


def test_a_machine_that_acts_differently_disagrees() -> None:
    recorder = Recorder(reducer())
    recorder.handle(push(0, 5), 0.0)
    recorder.handle(ProcessDone(0.0), 0.0)
    recording = recorder.recording()
    recording.segments[0].events[0] = recording.segments[0].events[0]._replace(event=push(0, 4))
    assert [step.agrees for step in recording.replay()] == [False, False]


def test_all_that_machines_do_not_look_at_is_known_by_its_field() -> None:
    """Whoever adds a message with a block, states or a split names the field in `LARGE`."""
    for kind in (*kinds_of(Event), *kinds_of(Message), *kinds_of(Instruction)):
        hints = get_type_hints(kind)
        large = [name for name, hint in hints.items() if any(map(has_lean_form, _parts(hint)))]
        assert large == ([LARGE[kind]] if kind in LARGE and kind is not ProcessBlocks else large), kind
        assert not large or kind in LARGE, f"{kind.__name__}.{large[0]}"


def _parts(hint: Any) -> Iterator[Any]:
    """A type, the types that it is made of, and those of the fields of `Emitted` and `Piece`."""
    yield hint
    for part in get_args(hint):
        yield from _parts(part)
    if getattr(hint, "__name__", "") in ("Emitted", "Piece"):
        for part in typing.get_type_hints(hint).values():
            yield from _parts(part)


# --- files


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    recorder = Recorder(reducer())
    for number in range(3):
        recorder.handle(push(number, 5), number)
    recorder.end("no sums today")
    path = tmp_path / recorder.recording().file_name
    path.write_bytes(recorder.recording().to_bytes())
    read = Recording.read(path)
    assert path.name == "reducer-0.events"
    assert (read.task, len(read.events), read.error) == (OPERATOR, 3, "no sums today")
    assert all(step.agrees for step in read.replay())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: pickle.dumps("foreign"), "no events of a task"),
        (lambda data: b"", "no events of a task"),
        (lambda data: data[:-1], "damaged"),
        (lambda data: data.replace(b'"dpa": "', b'"dpa": "9.', 1), r"written by dpa 9\."),
        (
            lambda data: data.replace(f"{VERSION} (".encode(), f"{VERSION} (9".encode(), 1),
            rf"written by dpa {VERSION} \(9.*\); this is dpa {VERSION} \(",
        ),
        (lambda data: data.replace(b"events-3", b"events-4"), "the events of another version of dpa, which can replay"),
        (lambda data: OLD.read_bytes(), "the events of another version of dpa.*: its first line is not dpa-events-3"),
        (lambda data: data.replace(b"{", b"[", 1), "damaged"),
        (lambda data: data[:-100] + bytes(100), "damaged"),
    ],
    ids=["foreign", "empty", "cut off", "another version", "other code", "later form", "old form", "header", "pickle"],
)
def test_a_file_that_is_no_recording_is_refused(change: Callable[[bytes], bytes], why: str, tmp_path: Path) -> None:
    recorder = Recorder(reducer())
    recorder.handle(Tick(), 0.0)
    path = tmp_path / "reducer-0.events"
    path.write_bytes(change(recorder.recording().to_bytes()))
    with pytest.raises(RecordingError, match=why):
        Recording.read(path)
    with pytest.raises(RecordingError, match=r"nothing\.events: No such file"):
        Recording.read(tmp_path / "nothing.events")


def test_a_machine_that_cannot_be_copied_works_without_a_recording() -> None:
    machine = reducer()
    machine.unpicklable = lambda: None  # type: ignore[attr-defined]
    recorder = Recorder(machine)
    assert recorder.handle(push(0, 2), 1.0)
    assert "could be recorded" in str(recorder.recording().error)
