"""A store of checkpoints: what a job needs to continue after a failure (docs/checkpoints.md). The store does not know
what the bytes mean."""

from dpa.checkpoints._chain import Chain, CheckpointStore, Collected, DataFiles
from dpa.checkpoints._manifest import FileRef, Manifest, Part, TaskParts

__all__ = ["Chain", "CheckpointStore", "Collected", "DataFiles", "FileRef", "Manifest", "Part", "TaskParts"]
