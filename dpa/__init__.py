"""dpa: map/reduce streams on Ray that stay balanced while they run, checked against Spark.

The names here are what a job of your own needs; the rest of the package is inside.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpa.executors import BatchMapper, BatchReducer, Groups, Mapper, Reducer, batch_mapper

if TYPE_CHECKING:
    from dpa.job import Job
    from dpa.result import Result
    from dpa.runtime.rounds import ResultsSoFar, results_so_far

__all__ = [
    "BatchMapper",
    "BatchReducer",
    "Groups",
    "Job",
    "Mapper",
    "Reducer",
    "Result",
    "ResultsSoFar",
    "batch_mapper",
    "results_so_far",
]

_LATER = {
    "Job": "dpa.job",
    "Result": "dpa.result",
    "ResultsSoFar": "dpa.runtime.rounds",
    "results_so_far": "dpa.runtime.rounds",
}
"""Names that are imported when first used, and where from: actors that only run executors do without them."""


def __getattr__(name: str) -> Any:
    """Import what is imported when first used."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'dpa' has no attribute {name!r}")
