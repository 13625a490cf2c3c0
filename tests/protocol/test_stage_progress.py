"""Stages on their way to the end: each drains when all that feed it are done, and ends by counting what came to it."""

from __future__ import annotations

import pytest
from wires import CoordinatorWire, instructed, last_table, sent

from dpa.errors import ProtocolError
from dpa.protocol.coordinator.stage_progress import StagePhase
from dpa.protocol.graph import Edge, Graph, Publishing, Stage
from dpa.protocol.wire.addresses import BALANCER, Address
from dpa.protocol.wire.events import Committed, Tick
from dpa.protocol.wire.instructions import Commit, Instruction, JobDone
from dpa.protocol.wire.messages.cuts import Pause, Paused
from dpa.protocol.wire.messages.end import Drain, Freeze
from dpa.protocol.wire.messages.exchange import BeginExchange, Published
from dpa.protocol.wire.metrics import TaskStats


class GraphWire(CoordinatorWire):
    """The coordinator of stages with one task each, and of edges like `a b`."""

    def __init__(self, stages: str, *edges: str, **options) -> None:
        made = tuple(Stage(name, 1, **options.get(name, {})) for name in stages.split())
        super().__init__(graph=Graph(made, tuple(Edge(*edge.split()) for edge in edges)))

    def emitted(self, stage: str, *emitted: int, **stats) -> list[Instruction]:
        """The task of a stage has emitted so much on each edge, its last."""
        return self.progress(Address(stage), emitted=emitted, done=True, **stats)

    def processed(self, stage: str, records: int) -> list[Instruction]:
        return self.progress(Address(stage), processed=records)

    def end(self, stage: str, records: int, *emitted: int) -> list[Instruction]:
        """A stage whose records are all processed exchanges, finishes and delivers."""
        self(BALANCER, last_table(stage, 0))
        self.finished(Address(stage), records)
        return self.emitted(stage, *emitted, processed=records)

    def phase(self, stage: str) -> StagePhase:
        state = self.coordinator.stages[stage].state
        assert isinstance(state, StagePhase)
        return state


def receivers(instructions: list[Instruction], kind: type) -> list[str]:
    return [to.stage for to, _ in sent(instructions, kind)]


def frozen(instructions: list[Instruction]) -> list[str]:
    """The stages whose tables are to be frozen."""
    return [message.stage for _, message in sent(instructions, Freeze)]


# --- a source feeds two stages


def test_each_stage_that_a_source_feeds_counts_its_own_edge() -> None:
    coordinator = GraphWire("rows left right", "rows left", "rows right")
    assert receivers(coordinator.emitted("rows", 2, 3), Drain) == ["left", "right"]
    assert frozen(coordinator.processed("left", 2)) == ["left"]
    with pytest.raises(ProtocolError, match="right: 4 records were processed, but only 3 were emitted"):
        coordinator.processed("right", 4)


# --- a chain


def chain() -> GraphWire:
    return GraphWire("tags counts ranks", "tags counts", "counts ranks")


def test_the_stages_of_a_chain_drain_one_after_another() -> None:
    coordinator = chain()
    assert receivers(coordinator.emitted("tags", 5), Drain) == ["counts"]
    assert frozen(coordinator.processed("counts", 5)) == ["counts"]
    assert coordinator.phase("ranks") is StagePhase.STREAMING
    ended = coordinator.end("counts", 5, 2)
    assert (receivers(ended, Drain), instructed(ended, JobDone)) == (["ranks"], [])
    assert frozen(coordinator.processed("ranks", 2)) == ["ranks"]
    assert instructed(coordinator.end("ranks", 2), JobDone) == [JobDone()]


def test_the_stream_ends_when_the_last_stage_has_processed_all_its_records() -> None:
    coordinator = chain()
    coordinator.emitted("tags", 5)
    coordinator.processed("counts", 5)
    assert coordinator.coordinator.snapshot().phase == "stream"
    coordinator.end("counts", 5, 2)
    coordinator.processed("ranks", 2)
    assert coordinator.coordinator.snapshot().phase == "merge"
    coordinator.end("ranks", 2)
    snapshot = coordinator.coordinator.snapshot()
    assert (snapshot.phase, [stage.phase for stage in snapshot.stages]) == ("done", ["done"] * 3)


# --- while others stream


@pytest.mark.parametrize("is_slow", [False, True])
def test_each_stage_has_partial_results_of_its_own(is_slow: bool) -> None:
    """Also where those of one are committed only while another publishes."""
    coordinator = GraphWire(
        "tags counts ranks",
        "tags counts",
        "tags ranks",
        counts={"publishing": (Publishing(2.0),)},
        ranks={"publishing": (Publishing(3.0),)},
    )
    pending: list[Committed] = []
    for epoch, (stage, now) in enumerate([("counts", 2.0), ("ranks", 3.0), ("counts", 4.0)], start=1):
        for other in ("counts", "ranks"):
            coordinator.processed(other, epoch)
        assert receivers(coordinator.coordinator.handle(Tick(), now), Pause) == ["tags"]
        coordinator(Address("tags"), Paused(TaskStats("tags", 0, emitted=(epoch, epoch))), now)
        assert not receivers(coordinator(BALANCER, last_table("ranks", 0), now), BeginExchange)
        assert receivers(coordinator(BALANCER, last_table("counts", 0), now), BeginExchange) == [stage]
        while pending:
            coordinator.coordinator.handle(pending.pop(), now)
        [commit] = instructed(coordinator(Address(stage), Published(epoch, {0: "file"}, 0, 0.0), now), Commit)
        assert commit == Commit(stage, epoch, at=now, staged=("file",))
        pending.append(Committed(stage, epoch))
        if not is_slow:
            coordinator.coordinator.handle(pending.pop(), now)
        # What a stage gives at its end has a number that no cut has, whether or not it took part in the newest one.
        assert [coordinator.coordinator.stages[name].epoch for name in ("counts", "ranks")] == [epoch, epoch]
    assert coordinator.coordinator.cuts.epoch == 4


def test_records_of_one_stage_are_not_lost_because_another_takes_long() -> None:
    coordinator = chain()
    coordinator.emitted("tags", 5)
    for now in (50.0, 100.0, 1000.0):
        coordinator.progress(Address("counts"), processed=0, queue=5, now=now)
        coordinator.coordinator.handle(Tick(), now)
    coordinator.processed("counts", 5)
    coordinator.end("counts", 5, 2)
    coordinator.coordinator.handle(Tick(), 1001.0)
    for index in range(len(coordinator.coordinator.stages["ranks"].roster.tasks)):
        coordinator.progress(Address("ranks", index), processed=0, now=1100.0)
    with pytest.raises(ProtocolError, match="2 of 2 records to ranks were lost"):
        coordinator.coordinator.handle(Tick(), 1100.0)


def test_a_source_s_queues_are_not_sampled() -> None:
    coordinator = chain()
    coordinator.coordinator.handle(Tick(), 1.0)
    assert [len(stage.samples) for stage in coordinator.coordinator.snapshot().stages] == [0, 1, 1]
