"""Whether a job's published results match the checkpoint from which it continues. They do not if newer checkpoints were
removed, or an older copy was put back: new epochs would then be mistaken for the published ones of the same number."""

from datetime import datetime

from dpa._util.lines import parted
from dpa.checkpoints import Manifest
from dpa.errors import CheckpointError
from dpa.sinks.sink import Newest


def is_ahead(newest: Newest | None, place: str | None, found: Manifest | None) -> bool:
    """Whether there is more at a place than a checkpoint knows of; None: there is none. Raises CheckpointError if what
    is there belongs to other checkpoints."""
    epoch, line = (0, ()) if found is None else (found.epoch, found.line)
    if newest is None:
        return False
    apart = parted(newest.line, line, min(newest.epoch, epoch))
    if apart is not None:
        has = f"{place} has epoch {newest.epoch} of this job; from epoch {apart} on its epochs do not belong to"
        back = f"go back to one before epoch {apart}, or put those back to which they belong"
        raise CheckpointError(f"{has} {_in_words(found)}: {back}")
    return newest.epoch > epoch


def require_known(newest: Newest | None, place: str | None, found: Manifest | None, store: str, job: str) -> None:
    """Check that what is at a place is known to the newest checkpoint, of a job in a store. Raises CheckpointError if
    there are later epochs, or others of their numbers."""
    if newest is None or not is_ahead(newest, place, found):
        return
    has = f"{place} has epoch {newest.epoch} of this job"
    if found is None:
        raise CheckpointError(f"{has}, which has no checkpoint at {store}/{job}: put those back that it had")
    lost = f"rows would be lost, or there twice; {remedy(found, store, job)}"
    raise CheckpointError(f"{has}, and the newest is {_in_words(found)}: {lost}")


def remedy(found: Manifest, store: str, job: str) -> str:
    return f"`dpa checkpoints {store} back-to {job} {found.number}` takes back what was published since"


def _in_words(found: Manifest | None) -> str:
    if found is None:
        return "any checkpoint"
    made = datetime.fromtimestamp(found.created_at).strftime("%Y-%m-%d %H:%M:%S")
    return f"checkpoint {found.number} of {made}, which ends with epoch {found.epoch}"
