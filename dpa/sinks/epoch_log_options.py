"""What a job knows of its log by epoch before that is begun."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EpochLogOptions:
    """Where the log of a job is.

    Attributes:
        place: its directory, or prefix of object storage, which is the job's own.
        job: the name that is the job's alone.
        config: the text of its configuration, for who reads the log.
    """

    place: str
    job: str
    config: str
