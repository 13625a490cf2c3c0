"""A job of one mapper and one reducer, read as the two steps that it is short for."""

from __future__ import annotations

from dpa.config._schema import JobConfig
from dpa.config._stage import StageConfig
from dpa.config.stages import StepConfig
from dpa.protocol.graph import MAPPER, REDUCER

IN_STAGES = {"input": "read", "mapper": "flat_map", "reducer": "reduce", "key": "key_by", "output": "write"}
"""What its keys are called in steps, where that is another name."""

_AT_TOP = {"from": "input", **{name: key for key, name in IN_STAGES.items()}}


def as_steps(job: JobConfig) -> dict[str, StepConfig]:
    """The step that reads and the one that reduces, of a job that has an input and a reducer."""
    same = {field.alias or name: getattr(job, name) for name, field in StageConfig.model_fields.items()}
    read = {"read": job.input, "sample": same.pop("sample"), "parallelism": job.parallelism.mappers}
    reduced = {
        "from": [MAPPER],
        "key_by": job.key,
        "reduce": job.reducer,
        "parallelism": job.parallelism.reducers,
        "grouping": job.grouping,
        "balance": job.balance,
        "write": job.output if job.output.path or job.output.use else None,
        **same,
    }
    return {MAPPER: StepConfig.model_validate(read), REDUCER: StepConfig.model_validate(reduced)}


def written_as(key: str) -> str:
    """The key path at which such a job writes a key of a step."""
    first, dot, rest = key.partition(".")
    return _AT_TOP.get(first, first) + dot + rest
