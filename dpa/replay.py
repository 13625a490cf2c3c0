"""`python -m dpa.replay EVENTS...`: repeat the last events of tasks of a failed job, offline (docs/debugging.md)."""

from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dpa._util.streams import exiting
from dpa.protocol.balancer.machine import LoadBalancerMachine
from dpa.protocol.coordinator.machine import CoordinatorMachine
from dpa.protocol.history.lean import outline
from dpa.protocol.history.recording import Outcome, Recording, Replayed, in_words
from dpa.protocol.machine import Machine
from dpa.protocol.task.machine import TaskMachine

_SHOWN = 20  # events that are shown of each task, the last ones, without `--verbose`

app = typer.Typer(add_completion=False)


@app.command()
def main(
    files: Annotated[list[Path], typer.Argument(metavar="EVENTS...", help="Files of events; open only your own.")],
    until: Annotated[int | None, typer.Option(metavar="N", help="Stop after event number N.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show all events, each with the instructions that came back.")
    ] = False,
) -> None:
    """Repeat the last events of tasks of a failed job, and show them."""
    with exiting():
        recordings = [Recording.read(path) for path in files]
    start = min((handled.now for recording in recordings for handled in recording.events), default=0.0)
    agree = [_replay(recording, start, until, verbose) for recording in recordings]
    raise typer.Exit(0 if all(agree) else 1)


def _replay(recording: Recording, start: float, until: int | None, verbose: bool) -> bool:
    """Replay one recording and show it, with times since `start`; whether the machine did the same."""
    print(f"{recording.task}: events {recording.first:,} to {recording.last:,}")
    steps: deque[Replayed] = deque(maxlen=None if verbose else _SHOWN)
    for step in recording.replay():
        steps.append(step)
        if not step.agrees or step.number == until:
            break
    for step in steps:
        print(f"  #{step.number:<6} {step.handled.now - start:10.6f}  {in_words(outline(step.handled.event))}")
        if verbose:
            _show(step.outcome)
    if not steps:
        return True
    last = steps[-1]
    if not last.agrees:
        print(f"{recording.task} diverges at event {last.number}. Recorded:")
        _show(last.handled.outcome)
        print("Replayed:")
        _show(last.outcome)
        return False
    print(f"{recording.task} did the same, and is {_condition(last.machine)}")
    if isinstance(last.outcome, str):
        print(f"{recording.task} raised {_printable(last.outcome)}")
    elif recording.error is not None and last.number == recording.last:
        print(f"{recording.task} then failed:")
        print("\n".join(f"  {_printable(line)}" for line in recording.error.splitlines()))
    return True


def _show(outcome: Outcome) -> None:
    for line in [f"raised {_printable(outcome)}"] if isinstance(outcome, str) else map(in_words, outcome):
        print(f"{'':21}{line}")


def _condition(machine: Machine) -> str:
    """A machine's state, and a task's statistics that are not zero."""
    known: dict[str, object] = {}
    match machine:
        case TaskMachine():
            known = {name: value for name, value in asdict(machine.stats).items() if value and name != "stage"}
        case CoordinatorMachine():
            known = {
                name: f"{stage.state.value}, {stage.ledger.processed:,} processed"
                for name, stage in machine.stages.items()
            }
        case LoadBalancerMachine():
            known = {
                name: f"{stage.state.value}, table {stage.table.version}" for name, stage in machine.stages.items()
            }
    return "\n".join([machine.state.value, *(f"  {name}: {value}" for name, value in known.items())])


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)  # keys may bring control characters


if __name__ == "__main__":
    app()
