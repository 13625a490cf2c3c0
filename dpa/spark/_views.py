"""Names for DataFrames in SQL, only for as long as a query is being resolved."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpa.spark._errors import as_table_error, tidying_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TURN = threading.RLock()


@contextmanager
def temporary_view(frame: DataFrame, name: str) -> Iterator[None]:
    """Let queries in this block name a DataFrame; what they resolved to stays valid afterwards. Threads take turns, as
    their jobs share a session, and may mean different things by one name.

    Raises:
        TableError: the name is none for a view, or the session has a temporary view of that name, which is left alone.
    """
    with _TURN:
        with as_table_error(f"the view {name!r}"):
            frame.createTempView(name)
        try:
            yield
        finally:
            with tidying_up():
                frame.sparkSession.catalog.dropTempView(name)
