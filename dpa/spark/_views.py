"""Names for DataFrames in SQL, only for as long as a query is being resolved."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpa.spark._errors import as_table_error, quoted, tidying_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TURN = threading.RLock()


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
