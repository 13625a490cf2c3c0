"""Checkpoints behind the first rows of every input, as a coordinator makes them."""

import pickle
from collections.abc import Callable

from dpa.checkpoints import CheckpointStore
from dpa.protocol.checkpointing import Checkpointing
from dpa.protocol.plan import RunPlan
from dpa.protocol.wire.events import CheckpointWritten
from dpa.protocol.wire.snapshots import JobSnapshot, OperatorSnapshot, SourceSnapshot


def write_checkpoint(
    plan: RunPlan, rows: int, epochs: int = 1, publish: Callable[[int], object] = lambda epoch: None
) -> CheckpointStore:
    """Write as many as `epochs` behind `rows` rows into the job's store, which is returned, and publish each epoch."""
    assert plan.saved is not None
    store = CheckpointStore.open(plan.saved.options.path)
    made = Checkpointing(store, plan.saved, plan.graph, plan.saved.generation, pickle.dumps, plan.sinks)
    times = made.graph.checkpoints
    assert times is not None
    slot = times.slot
    sources = {
        stage.name: SourceSnapshot(stage.input.splits, None, rows, 1)
        for stage in plan.graph.stages
        if plan.graph.is_source(stage.name)
    }
    operators = {stage.name: OperatorSnapshot(stage.first_table(), {}, 0) for stage in plan.graph.queue_fed()}
    for epoch in range(times.epoch + 1, times.epoch + 1 + epochs):
        written = made.write(JobSnapshot(epoch, slot, 1.0, 0.1, sources, operators), print)
        assert isinstance(written, CheckpointWritten)
        slot = written.slot
        publish(epoch)
    return store
