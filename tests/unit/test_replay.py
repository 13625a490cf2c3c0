"""`python -m dpa.replay`: what it shows of a task's last events, and how it ends."""

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from dpa.errors import ProtocolError
from dpa.execution.block import Block
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.history.recording import Recorder, Recording
from dpa.protocol.machines import task_of
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.events import ProcessDone, Start, Tick
from dpa.protocol.wire.messages.data import Push
from dpa.protocol.wire.messages.end import Deliver
from dpa.replay import app
from experiments.simulated_jobs.map_reduce import map_reduce

SOURCE, OPERATOR = Address("mapper", 0), Address("reducer", 0)


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def recorder() -> Recorder:
    """Of a reducer that has processed 5 records, and then seen 30 ticks, a second apart."""
    made = Recorder(task_of(map_reduce((), 1, 1), OPERATOR))
    block = Block.of(pa.array(["a", "b", "a", "a", "b"]), None, 0)
    made.handle(Envelope(SOURCE, OPERATOR, 0, Push(block, 0, SOURCE, 0, 0.0, 0.0)), 100.0)
    made.handle(ProcessDone(0.5), 100.5)
    for second in range(30):
        made.handle(Tick(), 101.0 + second)
    return made


def written(recording: Recording, directory: Path) -> Path:
    path = directory / recording.file_name
    path.write_bytes(recording.to_bytes())
    return path


def test_the_last_events_are_shown_and_the_machines_end(recorder: Recorder, tmp_path: Path) -> None:
    done = replay(written(recorder.recording(), tmp_path))
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0] == "reducer 0: events 1 to 32"
    assert [line.split() for line in lines[1:21]] == [
        [f"#{at}", f"{at - 2:.6f}", "Tick(cores_busy=0.0)"] for at in range(13, 33)
    ]
    assert "reducer 0 did the same, and is streaming" in lines
    assert "  processed: 5" in lines


def test_until_stops_after_an_event_and_verbose_shows_all_that_came_of_each(recorder: Recorder, tmp_path: Path) -> None:
    done = replay(written(recorder.recording(), tmp_path), "--until", 1, "--verbose")
    assert "  #1        0.000000  <- mapper 0 #0: Push(block=<5 records>" in done.stdout
    assert "ProcessBlocks(blocks=(<5 records>), version=0, closed=None)" in done.stdout
    assert "#2 " not in done.stdout
    assert "  queue: 5" in done.stdout.splitlines()


def test_times_of_several_files_are_relative_to_the_first_event_of_all(recorder: Recorder, tmp_path: Path) -> None:
    other = Recorder(CoordinatorMachine(map_reduce((), 1, 1)))
    other.handle(Start(), 98.0)
    done = replay(written(recorder.recording(), tmp_path), written(other.recording(), tmp_path), "--until", 1)
    assert done.exit_code == 0
    assert "  #1        2.000000  <- mapper 0" in done.stdout
    assert "  #1        0.000000  Start()" in done.stdout


def test_what_the_machine_raised_is_shown(recorder: Recorder, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError):
        recorder.handle(Envelope(COORDINATOR, OPERATOR, 0, Deliver(None)), 200.0)
    done = replay(written(recorder.recording(), tmp_path))
    assert done.exit_code == 0
    assert "raised ProtocolError: reducer 0 cannot take a Deliver from coordinator while streaming" in done.stdout


def test_what_ended_the_task_is_shown(recorder: Recorder, tmp_path: Path) -> None:
    recorder.end("reducer 0: no sums today\n\x1b[31mred")
    done = replay(written(recorder.recording(), tmp_path))
    assert done.stdout.endswith("reducer 0 then failed:\n  reducer 0: no sums today\n  '\\x1b[31mred'\n")


def test_a_machine_that_does_not_do_the_same_gives_status_1_and_names_the_event(
    recorder: Recorder, tmp_path: Path
) -> None:
    recording = recorder.recording()
    events = recording.segments[0].events
    events[1] = events[1]._replace(outcome=())
    done = replay(written(recording, tmp_path))
    assert done.exit_code == 1
    assert "reducer 0 diverges at event 2" in done.stdout
    assert "-> mapper 0 #0: Ack(edge=0, records=5, window=5, signal=None)" in done.stdout


def test_a_foreign_file_gives_status_2_and_one_line(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.events"
    foreign.write_text("anything")
    done = replay(foreign)
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_another_user_can_write_is_not_read(recorder: Recorder, tmp_path: Path, mode: int) -> None:
    path = written(recorder.recording(), tmp_path)
    path.chmod(mode)
    done = replay(path)
    assert done.exit_code == 2
    assert "is not trusted: it belongs to user" in done.output
    assert "only files that no other user can write" in done.output


def test_a_file_that_was_changed_is_not_unpickled(recorder: Recorder, tmp_path: Path) -> None:
    path = written(recorder.recording(), tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-9] + b"c" + content[-8:])
    done = replay(path)
    assert done.exit_code == 2 and "damaged: its checksum does not fit" in done.output
