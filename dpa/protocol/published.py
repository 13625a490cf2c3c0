"""Whether what a job has published goes with the checkpoint behind which it begins. It does not where newer checkpoints
were removed, or an older copy of them was put back: epochs would be taken for those that are there, whatever they have.
"""

from __future__ import annotations

from datetime import datetime

from dpa._util.lines import parted
from dpa.checkpoints import Manifest
from dpa.errors import CheckpointError
from dpa.sinks.sink import Newest


def require_known(newest: Newest | None, place: str | None, found: Manifest | None, store: str, job: str) -> None:
    """Check that the epochs at a place are those of a checkpoint.

    Args:
        newest: what is at the place.
        place: for messages.
        found: the newest checkpoint; None: there is none.
        store: where checkpoints are.
        job: its directory there.

    Raises:
        CheckpointError: there are later ones, or others of their numbers.
    """
    epoch = 0 if found is None else found.epoch
    if newest is None:
        return
    apart = parted(newest.line, () if found is None else found.line, min(newest.epoch, epoch))
    if newest.epoch <= epoch and apart is None:
        return
    has = f"{place} has epoch {newest.epoch} of this job"
    if found is None:
        raise CheckpointError(f"{has}, which has no checkpoint at {store}/{job}: put those back that it had")
    made = datetime.fromtimestamp(found.created_at).strftime("%Y-%m-%d %H:%M:%S")
    known = f"the newest checkpoint, {found.number} of {made}, ends with epoch {epoch}"
    if apart is not None:
        with_it = f"from epoch {apart} on they belong to other checkpoints than those at {store}/{job}"
        raise CheckpointError(f"{has}, and {known}; {with_it}: put those back, or go back to one before epoch {apart}")
    command = f"python -m dpa.checkpoints {store} back-to {job} {found.number}"
    raise CheckpointError(
        f"{has}, and {known}: rows would be lost, or there twice; `{command}` takes back what was published since"
    )
