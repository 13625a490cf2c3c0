"""What is said of the epochs of a run: where the time goes until readers see what a row has changed."""

from __future__ import annotations

from collections.abc import Iterator

from dpa.protocol.wire.epochs import EpochPhase, EpochStats
from dpa.result.content import Bar, Cell, Fact, Table
from dpa.result.text import latency, seconds

NOTE = (
    "a row: from its reading on, in the mean of all rows that readers see; an epoch: in the mean of those that had the "
    "phase. What a row waits for before it is read is not known."
)
_WORDS = {
    EpochPhase.WAITING: "for the epoch's end to be due",
    EpochPhase.LATE: "until it began to end",
    EpochPhase.SOURCES: "stop, and push what waits",
    EpochPhase.QUEUES: "run empty",
    EpochPhase.TABLES: "are settled and frozen",
    EpochPhase.WINDOWS: "are closed",
    EpochPhase.RESULTS: "are exchanged and staged",
    EpochPhase.SNAPSHOTS: "of states are taken",
    EpochPhase.CHECKPOINT: "is written, sources go on",
    EpochPhase.COMMIT: "until readers see it",
}
_LEAST = 0.005
"""Parts of less are left out of the sentence."""


def facts(ended: EpochStats) -> Iterator[Fact]:
    """What sources waited for, and when readers see a row's result."""
    if not ended.number:
        return
    words = [f"sources waited {seconds(ended.seconds / ended.number)} each, {seconds(ended.longest)} at most"]
    if ended.waited_for is not None:
        words.append(f"then until {ended.waited_for.task} had {ended.waited_for.what}")
    yield Fact("epochs", f"{ended.number} ended", ", ".join(words))
    after = ended.visible_after
    if after is not None:
        parts = [
            f"{latency(ended.of_row(found))} {found.phase.value}"
            for found in ended.phases
            if ended.of_row(found) >= _LEAST * after
        ]
        yield Fact("visible", f"{latency(after)} after a row was read", ", ".join(parts))


def phases(ended: EpochStats) -> Table:
    """Each phase, of a row and of an epoch, drawn as a part of the time of a row."""
    after = ended.visible_after
    rows: list[tuple[Cell, ...]] = []
    passed = 0.0
    for found in ended.phases:
        own = ended.of_row(found)
        bar: Cell = Bar((passed + own) / after, passed / after) if after and own else ""
        passed += own
        spent = latency(own) if own else ""
        rows.append((found.phase.value, _WORDS[found.phase], spent, latency(found.mean), latency(found.longest), bar))
    title = "until readers see what a row has changed" if after is not None else "the ends of epochs"
    total = ("visible", "", latency(after), "", "", "") if after is not None else ()
    return Table(title, ("phase", "what", "#a row", "#an epoch", "#longest", ""), rows, narrow=5, wide=6, total=total)
