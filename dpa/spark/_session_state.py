"""What a block changes of a running Spark session, and leaves as it was: settings, and the names of views."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpa._util.sharing import Shared
from dpa.spark._errors import as_table_error, quoted, tidying_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TURN = threading.RLock()


@dataclass(eq=False)
class SharedSetting:
    """A setting that has a value of its own while there is a block that needs it, in whatever thread: jobs that run at
    the same time share a session. `default` is what it is in a session that says nothing of it."""

    name: str
    value: str
    default: str
    _shared: Shared[None] = field(default_factory=Shared, init=False)

    def of(self, spark: SparkSession) -> AbstractContextManager[None]:
        """A block in which a session has the value."""
        return self._shared.use(lambda: self._changed(spark))

    @contextmanager
    def _changed(self, spark: SparkSession) -> Iterator[None]:
        before = spark.conf.get(self.name, self.default) or self.default
        spark.conf.set(self.name, self.value)
        try:
            yield
        finally:
            with tidying_up():
                spark.conf.set(self.name, before)


@contextmanager
def temporary_view(frame: DataFrame, name: str) -> Iterator[None]:
    """Let queries in this block name a DataFrame; what they resolved to stays valid afterwards. Threads take turns, as
    their jobs share a session, and may mean different things by one name.

    Args:
        name: any text; one that is no identifier, such as `my-trades`, is put into backticks in a query.

    Raises:
        TableError: the session has a temporary view of that name already, which is left alone.
    """
    with _TURN:
        with as_table_error(f"the view {name!r}"):
            frame.createTempView(quoted(name))
        try:
            yield
        finally:
            with tidying_up():
                frame.sparkSession.catalog.dropTempView(name)
