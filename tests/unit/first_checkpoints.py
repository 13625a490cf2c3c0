"""A checkpoint behind the first rows of every input, as a coordinator makes it."""

import pickle

from dpa.checkpoints import CheckpointStore
from dpa.protocol.checkpointing import Checkpointing
from dpa.protocol.plan import RunPlan
from dpa.protocol.wire.snapshots import JobSnapshot, OperatorSnapshot, SourceSnapshot


def write_checkpoint(plan: RunPlan, rows: int) -> CheckpointStore:
    """Write one behind `rows` rows into the job's store, which is returned."""
    assert plan.saved is not None
    store = CheckpointStore.open(plan.saved.options.path)
    made = Checkpointing(store, plan.saved, plan.graph, plan.saved.generation, pickle.dumps)
    assert made.graph.checkpoints is not None
    sources = {
        stage.name: SourceSnapshot(stage.input.splits, None, rows, 1)
        for stage in plan.graph.stages
        if stage.input.splits
    }
    operators = {stage.name: OperatorSnapshot(stage.first_table(), {}, 0) for stage in plan.graph.queue_fed()}
    made.write(JobSnapshot(1, made.graph.checkpoints.slot, 1.0, 0.1, sources, operators), print)
    return store
