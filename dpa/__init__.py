"""dpa: map/reduce streams on Ray that stay balanced while they run, checked against Spark.

The names here are what a job of your own needs; the rest of the package is inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpa.executors import BatchMapper, BatchReducer, Groups, Mapper, Reducer, batch_mapper

if TYPE_CHECKING:
    from dpa.job import Job
    from dpa.result import Result

__all__ = ["BatchMapper", "BatchReducer", "Groups", "Job", "Mapper", "Reducer", "Result", "batch_mapper"]


def __getattr__(name: str) -> Any:
    """`Job` and `Result` are imported when first used: actors that only run executors do without them."""
    if name == "Job":
        from dpa.job import Job

        return Job
    if name == "Result":
        from dpa.result import Result

        return Result
    raise AttributeError(f"module 'dpa' has no attribute {name!r}")
