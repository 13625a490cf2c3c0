"""The head of what a coordinator writes of a checkpoint: a line of JSON that says whose it is. Who resumes a job reads
it before anything is unpickled."""

from __future__ import annotations

import json
import sys
from typing import Any

from dpa._util.version import VERSION
from dpa.checkpoints import DataFiles, Manifest
from dpa.errors import CheckpointError

WRITER = f"dpa {VERSION} on Python {sys.version_info.major}.{sys.version_info.minor}"
"""Who can unpickle what it has pickled."""


def headed(about: str, pickled: bytes) -> list[bytes]:
    """What a coordinator knows, below a head; `about`: of the job, as JSON."""
    return [json.dumps({"writer": WRITER, "about": json.loads(about)}).encode(), b"\n", pickled]


def read(data: DataFiles, checkpoint: Manifest) -> tuple[Any, bytes]:
    """What a checkpoint says about its job, and what its coordinator knew, still pickled.

    Raises:
        CheckpointError: it cannot be read, or another version of dpa or Python wrote it.
    """
    head, _, pickled = data.read(checkpoint.coordinator).partition(b"\n")
    said = json.loads(head)
    if said["writer"] != WRITER:
        by = f"{data.job} was written by {said['writer']}, and this is {WRITER}"
        raise CheckpointError(f"{by}: go on with what has written it")
    return said["about"], pickled
