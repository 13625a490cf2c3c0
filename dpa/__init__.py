"""dpa: map/reduce streams on Ray that stay balanced while they run, checked against Spark.

The names here are what a job of your own needs; the rest of the package is inside.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpa._util.streams import quiet_by_default

if TYPE_CHECKING:
    from dpa.driver.control import RunningJob
    from dpa.executors import BatchMapper, BatchReducer, Groups, Mapper, Process, Reducer, RowsReducer, batch_mapper
    from dpa.flow import Flow
    from dpa.job import Job
    from dpa.operators import batch_filter
    from dpa.result import Result
    from dpa.sessions import session
    from dpa.sinks.epoch_log import epochs
    from dpa.sinks.formats import results
    from dpa.sinks.reading import Results
    from dpa.sinks.sink import Sink
    from dpa.sources.feed import Feed, Page
    from dpa.sources.foreign import Poller
    from dpa.sources.generated import Generator
    from dpa.windows.options import sliding, tumbling

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

_HOMES = {
    "dpa.driver.control": ["RunningJob"],
    "dpa.executors": [
        *("BatchMapper", "BatchReducer", "Groups", "Mapper", "Process", "Reducer", "RowsReducer", "batch_mapper"),
    ],
    "dpa.flow": ["Flow"],
    "dpa.job": ["Job"],
    "dpa.operators": ["batch_filter"],
    "dpa.result": ["Result"],
    "dpa.sessions": ["session"],
    "dpa.sinks.epoch_log": ["epochs"],
    "dpa.sinks.formats": ["results"],
    "dpa.sinks.reading": ["Results"],
    "dpa.sinks.sink": ["Sink"],
    "dpa.sources.feed": ["Feed", "Page"],
    "dpa.sources.foreign": ["Poller"],
    "dpa.sources.generated": ["Generator"],
    "dpa.windows.options": ["sliding", "tumbling"],
}
"""Where each name is imported from when it is first used: most programs, and the command line, need few of them."""


def __getattr__(name: str) -> Any:
    """Import what is imported when first used."""
    for module, names in _HOMES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module 'dpa' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names: tab completion also finds those that are not imported yet."""
    return sorted({*globals(), *__all__})
