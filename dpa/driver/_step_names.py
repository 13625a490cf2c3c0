"""The names that steps of a job file have, and by which they name each other."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from dpa.config import JobFile
from dpa.protocol.wire.addresses import RESERVED


def check_names(file: JobFile) -> None:
    """Check that the steps that steps name exist, and that somebody takes what is read.

    Raises:
        ConfigError: naming the step that is wrong, and where.
    """
    stages = file.stages
    for name in stages:
        if name in RESERVED:
            raise file.error(f"stages.{name}", f"tasks of dpa itself are named {name!r}: give the step another name")
        for key, other in _named_by(file, name):
            if other not in stages:
                close = difflib.get_close_matches(other, stages, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(stages)}"
                raise file.error(f"stages.{name}.{key}", f"there is no step {other!r}; {hint}")
    read = [name for name, config in stages.items() if config.read is not None]
    if not read:
        raise file.error("stages", "no step reads an input: give one of them `read`")
    used = taken(file)
    for name in read:
        if name not in used:
            mend = "let a step change, reduce, join or rank them (`key_by` alone makes no step), or do not read them"
            raise file.error(f"stages.{name}", f"no step takes the rows that it reads: {mend}")


def taken(file: JobFile) -> set[str]:
    """The names of the steps whose rows others take."""
    return {other for name in file.stages for _, other in _named_by(file, name)}


def _named_by(file: JobFile, step: str) -> Iterator[tuple[str, str]]:
    """The steps that a step names, each with the key that does."""
    config = file.stages[step]
    yield from (("from", other) for other in config.from_ or [])
    yield from (("join.with", other) for other in (config.join.with_ if config.join else []))
