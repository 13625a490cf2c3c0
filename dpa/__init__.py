"""dpa: map/reduce streams on Ray that stay balanced while they run, checked against Spark.

The names here are what a job of your own needs; the rest of the package is inside."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpa._util.streams import quiet_by_default

if TYPE_CHECKING:
    from dpa.driver.control import RunningJob as RunningJob
    from dpa.executors import BatchMapper as BatchMapper
    from dpa.executors import BatchReducer as BatchReducer
    from dpa.executors import Groups as Groups
    from dpa.executors import Mapper as Mapper
    from dpa.executors import Process as Process
    from dpa.executors import Reducer as Reducer
    from dpa.executors import RowsReducer as RowsReducer
    from dpa.executors import batch_mapper as batch_mapper
    from dpa.flow import Flow as Flow
    from dpa.job import Job as Job
    from dpa.operators import batch_filter as batch_filter
    from dpa.result import Result as Result
    from dpa.sessions import session as session
    from dpa.sinks.epoch_log import epochs as epochs
    from dpa.sinks.formats import results as results
    from dpa.sinks.reading import Results as Results
    from dpa.sinks.sink import Sink as Sink
    from dpa.sources.feed import Feed as Feed
    from dpa.sources.feed import Page as Page
    from dpa.sources.foreign import Poller as Poller
    from dpa.sources.generated import Generator as Generator
    from dpa.windows.options import sliding as sliding
    from dpa.windows.options import tumbling as tumbling

quiet_by_default()

_HOMES = {
    "dpa.driver.control": ["RunningJob"],
    "dpa.executors": [
        *("BatchMapper", "BatchReducer", "Groups", "Mapper", "Process", "Reducer", "RowsReducer", "batch_mapper")
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

__all__ = sorted(name for names in _HOMES.values() for name in names)  # noqa: PLE0605


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
