"""dpa: map/reduce streams on Ray that stay balanced while they run, checked against Spark.

The names here are what a job of your own needs; the rest of the package is inside.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpa._util.streams import quiet_by_default
from dpa.executors import BatchMapper, BatchReducer, Groups, Mapper, Process, Reducer, RowsReducer, batch_mapper
from dpa.operators import batch_filter
from dpa.windows.options import session, sliding, tumbling

if TYPE_CHECKING:
    from dpa.driver.control import RunningJob
    from dpa.flow import Flow
    from dpa.job import Job
    from dpa.result import Result
    from dpa.sinks.epoch_log import epochs
    from dpa.sinks.formats import results
    from dpa.sinks.reading import Results
    from dpa.sinks.sink import Sink
    from dpa.sources.feed import Feed, Page
    from dpa.sources.foreign import Poller
    from dpa.sources.generated import Generator

quiet_by_default()

__all__ = [
    "BatchMapper",
    "BatchReducer",
    "Feed",
    "Flow",
    "Generator",
    "Groups",
    "Job",
    "Mapper",
    "Page",
    "Poller",
    "Process",
    "Reducer",
    "Result",
    "Results",
    "RowsReducer",
    "RunningJob",
    "Sink",
    "batch_filter",
    "batch_mapper",
    "epochs",
    "results",
    "session",
    "sliding",
    "tumbling",
]

_LATER = {
    "Feed": "dpa.sources.feed",
    "Flow": "dpa.flow",
    "Generator": "dpa.sources.generated",
    "Job": "dpa.job",
    "Result": "dpa.result",
    "RunningJob": "dpa.driver.control",
    "Page": "dpa.sources.feed",
    "Poller": "dpa.sources.foreign",
    "Results": "dpa.sinks.reading",
    "Sink": "dpa.sinks.sink",
    "epochs": "dpa.sinks.epoch_log",
    "results": "dpa.sinks.formats",
}
"""Names that are imported when first used, and where from: actors that only run executors do without them."""


def __getattr__(name: str) -> Any:
    """Import what is imported when first used."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'dpa' has no attribute {name!r}")
